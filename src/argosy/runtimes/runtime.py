"""The table of container runtimes and the interface that each implements.

A runtime turns a container record into a command line and starts nothing. It declares what it does not support, so
that planning refuses such a request with a reason instead of ignoring it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Literal, cast

import msgspec

from argosy.core import layout
from argosy.core.errors import UsageError
from argosy.core.model import Entry, Host, ImageKind, Variable
from argosy.core.records import replace
from argosy.core.shell import Word, join_words, quote
from argosy.core.suggest import did_you_mean

RUNTIMES: Mapping[str, str] = {
    "apptainer": "argosy.runtimes.apptainer:APPTAINER",
    "singularity": "argosy.runtimes.apptainer:SINGULARITY",
    "bwrap": "argosy.runtimes.bwrap:BWRAP",
    "podman": "argosy.runtimes.podman:PODMAN",
    "docker": "argosy.runtimes.docker:DOCKER",
    "podman-hpc": "argosy.runtimes.podman:PODMAN_HPC",
    "enroot": "argosy.runtimes.enroot:ENROOT",
    "pyxis": "argosy.runtimes.enroot:PYXIS",
    "edf": "argosy.runtimes.edf:EDF",
    "bare": "argosy.runtimes.bare:BARE",
}
"""Value of ``--runtime`` -> module and attribute of its adapter, which is imported on first use."""

CDI_DEVICE = "nvidia.com/gpu=all"
"""All NVIDIA GPUs, as podman and docker name them through CDI."""

AUTOMATIC = ("apptainer", "singularity", "bwrap")
"""Runtimes that Argosy chooses without ``--runtime``, in order of preference.

They start every kind of image file and need neither a daemon nor a Slurm plug-in.
"""

SCRIPTS = Path(__file__).with_name("scripts")
"""The sh programs of the runtimes."""

FILES = frozenset({ImageKind.SIF, ImageKind.SQUASHFS, ImageKind.TREE})
"""Kinds of image that are files or folders."""

TEMPORARY, SHARED_MEMORY = ("/tmp", "/var/tmp"), "/dev/shm"  # noqa: S108 - mount points
"""Folders of the host that every container shows, except with ``--contain``."""

SYSTEM_FOLDERS = (
    *("bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "opt", "proc", "run", "sbin", "sys", "usr", "var"),
)
"""Top-level folders that belong to the image: a path below them is not a file of the host."""

VARIABLE_PREFIXES = ("PMI_", "PMIX_", "SLURM_", "I_MPI_", "FI_", "CCL_", "NCCL_", "UCX_")
"""Prefixes of variables that MPI, Slurm and the network libraries need; they are passed into every container."""

RANK_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "SLURMD_NODENAME",
)
"""Variables in which Slurm gives a rank its node and its own GPUs."""

PASSED_NAMES = f"{', '.join(f'{prefix}*' for prefix in VARIABLE_PREFIXES)}, {', '.join(RANK_VARIABLES)}"
"""Text for users: the variables that a runtime passes by name if it does not pass the whole environment."""

PASSED_PATTERNS = {"PREFIXES": "|".join(VARIABLE_PREFIXES), "NAMES": "|".join(RANK_VARIABLES)}
"""The same for the sh programs, as alternatives of a regular expression."""


class Traits(msgspec.Struct, frozen=True):
    """Capabilities of a runtime, for planning."""

    images: frozenset[ImageKind]
    """Kinds of image that it starts."""
    caller: str
    """Text: the part of the caller's environment that enters the container."""
    host_mpi: bool
    """Whether the host's MPI can start ranks in it."""
    pmi2: bool
    """Whether it keeps the file descriptor open through which srun and a rank use PMI2."""
    unlike: str = ""
    """Text: how it differs from the policy that `Runtime.argv` describes; empty if it does not."""
    store: str = ""
    """How to write a reference to its own image store; empty if it has none."""
    unpacks: bool = False
    """Whether it needs unpacked root file systems instead of image files."""
    node_binds: bool = False
    """Whether it accepts mounts whose source is only known on the compute node."""
    skips_binds: bool = False
    """Whether it has an option for mounts that are skipped if the host does not have the path."""
    overlays: bool = False
    """Whether it supports a writable overlay on an image (``--dev``)."""
    layer: Literal["partition", "overlay", "bind"] = "partition"
    """How the layer of an image gets over its base: the runtime mounts the overlay partition of the file; Argosy mounts
    an overlay of both unpacked trees; or Argosy mounts the folder of the unpacked layer."""
    sees_cwd: bool = False
    """Whether its containers show the host's current directory."""
    driver: str = ""
    """Text: where the GPU driver comes from; empty if the runtime finds it."""
    hint_for_files: str = ""
    """The hint for an image file that it does not start; empty for the general one."""


class Runtime(msgspec.Struct, frozen=True):
    """The adapter of one runtime: turns an `Entry` into a command line."""

    name: str
    """The value of ``--runtime``."""
    program: str
    """The program that must be on PATH."""
    package: str
    """The package to install if the program is missing."""
    traits: Traits
    proof: Literal["ran", "rendered"]
    """``ran`` if the contract tests run real containers with it, ``rendered`` if they only check the command."""

    def refusal(self, entry: Entry, host: Host) -> str:
        """Return the reason why this runtime cannot start the entry on this machine; empty if it can."""
        raise NotImplementedError

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the variables to export before the runtime starts: secrets, which must not appear in arguments."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container.

        If srun starts the container, return the command that srun starts inside it; the options of `StepRuntime` do
        the rest. Every runtime keeps this policy. `Traits.unlike` tells users where it differs, and `refusal` returns a
        reason for an entry that it cannot start; nothing is ignored silently.

        - The program has the ids and the name of ``entry.person``, its home, the folder ``workdir``, and the caller's
          umask and limits. Its arguments, standard input, exit code and signals pass unchanged.
        - The image is read-only, unless ``dev`` names a folder for its changes (`Traits.overlays`). The command runs
          in the environment of the image and its layer (`with_image_environment`).
        - /dev, /proc, /sys, `TEMPORARY` and `SHARED_MEMORY` are those of the host, and so are the files for the names
          of hosts. Then come ``binds``, also those that are read-only.
        - With ``contain``, only ``binds`` are from the host. The home, `TEMPORARY` and `SHARED_MEMORY` are private and
          empty, and programs can be started from them. /dev has only the usual devices and the requested GPUs.
        - All of `forced_variables` are set, whatever the image or the caller sets. A value that is ``inherited`` must
          not be in an argument: `exports` returns it. The variables of `VARIABLE_PREFIXES` and `RANK_VARIABLES` come
          from the caller; those of ``drop`` do not. The script that starts the runtime unsets them already; a runtime
          that sets them again must remove them itself.
        - ``gpu`` selects the options for GPUs. A runtime without any mounts all of ``devices``: nodes, binds, links and
          folders of libraries.
        - ``options`` are passed to the program before the image. With ``interactive``, the program has a terminal if
          the caller has one.
        """
        raise NotImplementedError


class StepRuntime(Runtime, frozen=True):
    """A runtime whose containers srun starts: a set of options of srun instead of a program."""

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Return the srun options that start the container."""
        raise NotImplementedError

    def variables(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the variables to set for srun."""
        raise NotImplementedError

    def document(self, entry: Entry) -> tuple[Word, ...]:  # noqa: ARG002 - most options refer to no file
        """Return the lines of the file ``$environment`` that the options refer to; empty if they need no file."""
        return ()


def load_runtime(name: str) -> Runtime:
    """Return the adapter of a runtime by its name.

    Raises
    ------
    UsageError
        If there is no such runtime.
    """
    path = RUNTIMES.get(name)
    if path is None:
        raise UsageError(
            f"unknown runtime {name!r}",
            evidence=f"known: {', '.join(RUNTIMES)}",
            hint=did_you_mean(
                name, RUNTIMES, "omit --runtime to use the one of the site or machine", form="--runtime {}"
            ),
        )
    module, _, attribute = path.partition(":")
    return cast("Runtime", getattr(import_module(module), attribute))


def forced_variables(entry: Entry) -> tuple[Variable, ...]:
    """Return all variables to set inside: the entry's, those of GPUs, and TMPDIR if /tmp is private."""
    asked = {variable.name for variable in entry.variables}
    usual = [*entry.devices.variables, *([Variable("TMPDIR", "/tmp")] if entry.contain else [])]  # noqa: S108 - a name
    return (*(variable for variable in usual if variable.name not in asked), *entry.variables)


def with_image_environment(entry: Entry, command: tuple[Word, ...], *, hint: str) -> tuple[Word, ...]:
    """Return the command that sets up the environment of the image and runs `command` in it.

    The start script of the image runs first, if `Image.enter` asks for it. Then the environment of Argosy's layer is
    set: the start script may change PATH, and the programs of the layer must stay first. Without a command, the start
    script is the program itself.

    Parameters
    ----------
    hint
        Hint for the user if the runtime did not attach the image's layer.
    """
    path, mode = entry.image.path, entry.image.enter
    if not entry.image.argosy:
        return layout.enter_image(mode, command)
    if not command:
        return layout.command_in_layer(path, layout.enter_image(mode, ()), hint=hint)
    return layout.enter_image(mode, layout.command_in_layer(path, command, hint=hint))


def inherited_variables(entry: Entry, prefix: str = "") -> tuple[Variable, ...]:
    """Return the variables whose values are passed through the environment.

    They may be secrets, and every user of a node can read the arguments of all processes.
    """
    return tuple(replace(each, name=f"{prefix}{each.name}") for each in forced_variables(entry) if each.inherited)


def env_value(variable: Variable) -> Word:
    """Return ``NAME=value`` as one argument; only ``NAME`` if the value is passed through the environment."""
    return variable.name if variable.inherited else assignment(variable)


def assignment(variable: Variable) -> Word:
    """Return ``NAME=value`` as one argument."""
    return join_words((f"{variable.name}=", variable.value), "")


def export_command(image: str, form: Literal["sif", "sqsh"]) -> str:
    """Return the command that converts an image: to a SIF file with a single partition, or for enroot and pyxis."""
    from argosy.images.registry.references import file_for  # noqa: PLC0415 - only for this hint

    file = file_for(image, ".flat.sif" if form == "sif" else ".sqsh")
    return f"argosy images export {quote(image)} --format {form} -o {quote(file)}"


def image_refusal(runtime: Runtime, kind: ImageKind, path: str) -> tuple[str, str]:
    """Return why a runtime cannot start this kind of image, and a hint; both empty if it can."""
    images = runtime.traits.images
    if kind in images:
        return "", ""
    if kind is ImageKind.HOST:
        return f"{path or 'bare:'} means no container", "omit --runtime, or pass an image instead"
    if images == {ImageKind.HOST}:
        return f"the runtime bare starts no containers, and {path} is an image", "pass bare: instead of the image"
    accepted = " or ".join(KIND_NAMES[form] for form in KIND_NAMES if form in images)
    hint = f"choose another runtime with --runtime; {runtime.name} starts {accepted}"
    if ImageKind.SQUASHFS in images:
        hint = f"convert it: {export_command(path, 'sqsh')}"
    elif ImageKind.REGISTRY in images and kind in FILES:
        hint = runtime.traits.hint_for_files or "push the image to a registry and pass docker://…"
    return f"{path} is {KIND_NAMES[kind]}, but {runtime.name} starts only {accepted}", hint


KIND_NAMES: Mapping[ImageKind, str] = {
    ImageKind.SIF: "a SIF file",
    ImageKind.SQUASHFS: "a squashfs (.sqsh)",
    ImageKind.TREE: "a root file system in a folder",
    ImageKind.REGISTRY: "a reference to a registry (docker://…)",
    ImageKind.EDF: "an environment definition file (.toml)",
    ImageKind.HOST: "the machine's own software (bare:)",
}
