"""Container runtimes: one module and one table row each; they turn records into words and start nothing.

A runtime declares what it cannot do; planning refuses such a request by name instead of dropping it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, cast, runtime_checkable

import msgspec

from argosy.core import layout
from argosy.core.errors import UsageError
from argosy.core.model import Entry, Host, ImageKind, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word
from argosy.core.suggest import suggest_word

RUNTIMES: Mapping[str, str] = MappingProxyType(
    {
        "apptainer": "argosy.runtimes.apptainer:APPTAINER",
        "singularity": "argosy.runtimes.apptainer:SINGULARITY",
        "bwrap": "argosy.runtimes.bwrap:BWRAP",
        "podman": "argosy.runtimes.podman:PODMAN",
        "docker": "argosy.runtimes.docker:DOCKER",
        "podman-hpc": "argosy.runtimes.podman_hpc:PODMAN_HPC",
        "enroot": "argosy.runtimes.enroot:ENROOT",
        "pyxis": "argosy.runtimes.pyxis:PYXIS",
        "edf": "argosy.runtimes.edf:EDF",
        "bare": "argosy.runtimes.bare:BARE",
    }
)
"""Word of ``--runtime`` -> where its adapter lies; imported when used, tried in this order when nobody asks."""

AUTOMATIC = ("apptainer", "singularity", "bwrap")
"""Runtimes that are chosen by themselves: they start every form of image, and need no service and no plug-in."""

FILES = frozenset({ImageKind.SIF, ImageKind.SQUASHFS, ImageKind.TREE})

VARIABLE_PREFIXES = ("PMI_", "PMIX_", "SLURM_", "I_MPI_", "FI_", "CCL_", "NCCL_", "UCX_")
"""Variables that ranks find each other and the network by: they always enter a container."""

RANK_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
    "SLURMD_NODENAME",
)
"""Variables by which Slurm tells a rank its own GPUs, else it takes those of another one, and its node."""

PASSED_NAMES = f"{', '.join(f'{family}*' for family in VARIABLE_PREFIXES)}, {', '.join(RANK_VARIABLES)}"
"""What enters by name where a runtime lets in nothing else, for people."""


def render_set_names(*more: str) -> str:
    """Render a sh expression that lists which of the passed variables, and of `more`, the environment has."""
    names = "|".join((*RANK_VARIABLES, *more))
    families = "|".join(VARIABLE_PREFIXES)
    return f"""\
$(env | sed -nE "s/^(({families})[A-Za-z0-9_]*)=.*/\\1/p
    s/^({names})=.*/\\1/p")"""


class Traits(msgspec.Struct, frozen=True):
    """What sets a runtime apart for planning.

    Attributes
    ----------
    images
        Forms of image that it starts.
    store
        Word for an image of a store that it keeps itself; empty where it has none.
    caller
        What of the caller's environment enters, in words.
    unlike
        Where it differs from the others' policy, in words; empty where it keeps all of it.
    by_srun
        Whether srun starts the containers, so that a runtime is options of srun and no program.
    unpacks
        Whether it works on unpacked trees.
    host_mpi
        Whether the host's MPI can wire up ranks in it.
    pmi2
        Whether it leaves the file open by which srun speaks PMI2 with a rank.
    late_binds
        Whether it can mount what only a node can look for.
    skips_binds
        Whether it has words for a mount that is left out where the host has no such path.
    overlays
        Whether it can lay a writable folder over an image.
    """

    images: frozenset[ImageKind]
    caller: str
    unlike: str = ""
    store: str = ""
    by_srun: bool = False
    unpacks: bool = False
    host_mpi: bool = True
    pmi2: bool = True
    late_binds: bool = False
    skips_binds: bool = False
    overlays: bool = False


class Runtime(Protocol):
    """How one runtime says what an `Entry` means."""

    @property
    def name(self) -> str:
        """The word of ``--runtime``."""

    @property
    def program(self) -> str:
        """The program that must be on PATH."""

    @property
    def package(self) -> str:
        """What to install where the program is missing."""

    @property
    def proof(self) -> str:
        """``ran``: the contract tests start it for real; ``rendered``: only its words are tested."""

    @property
    def traits(self) -> Traits:
        """What sets it apart for planning."""

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why this runtime cannot do what is asked on this machine; empty where it can."""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give what must be exported before the runtime starts, so that the entry's variables arrive verbatim."""

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container.

        Where srun starts the container, this is what srun is to start in it.
        """


@runtime_checkable
class StepRuntime(Runtime, Protocol):
    """A runtime whose containers srun starts."""

    def srun_options(self, entry: Entry) -> tuple[Word, ...]:
        """Give the options of srun that start the container."""

    def variables(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the variables that srun is started with."""

    def document(self, entry: Entry) -> tuple[Word, ...]:
        """Give the lines of the file ``$environment`` that the options name; none where they name no file."""


def load_runtime(name: str) -> Runtime:
    """Give the adapter of a runtime by the word of ``--runtime``.

    Raises
    ------
    UsageError
        When no row has that name; the nearest one is the hint.
    """
    place = RUNTIMES.get(name)
    if place is None:
        near = suggest_word(name, RUNTIMES)
        raise UsageError(
            f"no runtime is called {name!r}",
            evidence=f"known: {', '.join(RUNTIMES)}",
            hint=f"did you mean --runtime {near}?" if near else "",
        )
    module, _, attribute = place.partition(":")
    return cast("Runtime", getattr(import_module(module), attribute))


def forced_variables(entry: Entry) -> tuple[Variable, ...]:
    """Give every variable that must arrive verbatim: the entry's, the GPU's, and TMPDIR where /tmp is a private one."""
    asked = {variable.name for variable in entry.variables}
    usual = [*entry.devices.variables, *([Variable("TMPDIR", "/tmp")] if entry.contain else [])]  # noqa: S108 - a name
    return (*(variable for variable in usual if variable.name not in asked), *entry.variables)


def with_image_environment(entry: Entry, command: tuple[Word, ...], *, hint: str) -> tuple[Word, ...]:
    """Give what starts `command` in a container: in an image of ours it has the layer's environment, or ends."""
    return layout.require_layer(entry.image.path, command, hint=hint) if entry.image.argosy else command


def inherited_variables(entry: Entry, prefix: str = "") -> tuple[Variable, ...]:
    """Give the variables whose values go through the environment: every user of the node reads argument lists."""
    return tuple(replace(each, name=f"{prefix}{each.name}") for each in forced_variables(entry) if each.inherited)


def env_value(variable: Variable) -> Word:
    """Give ``NAME=value`` as one word; ``NAME`` alone where the environment has the value."""
    return variable.name if variable.inherited else assignment(variable)


def assignment(variable: Variable) -> Word:
    """Give ``NAME=value`` as one word."""
    if isinstance(variable.value, ShellExpr):
        return ShellExpr(f"{variable.name}={variable.value.expression}")
    return f"{variable.name}={variable.value}"


def refuse_image(runtime: Runtime, kind: ImageKind, path: str) -> tuple[str, str]:
    """Say why a runtime does not start an image of this form, and what to do; empty where it does."""
    images = runtime.traits.images
    if kind in images:
        return "", ""
    if kind is ImageKind.HOST:
        return f"{path or 'bare:'} is no image but the machine's own software", "leave --runtime out, or name an image"
    if images == {ImageKind.HOST}:
        return f"bare starts the machine's own software, and {path} is an image", "write bare: in place of the image"
    takes = " or ".join(FORMS[form] for form in FORMS if form in images)
    hint = f"name another runtime with --runtime; {runtime.name} takes {takes}"
    if ImageKind.SQUASHFS in images:
        hint = "make a squashfs of it: argosy build … --format sqsh -o NAME.sqsh"
    elif ImageKind.REGISTRY in images and kind in FILES:
        hint = f"push it to a registry, and name it as docker://…; or use a runtime that starts files: {AUTOMATIC[0]}"
        if runtime.name == "docker":
            hint = (
                "argosy images export … --format docker-archive -o NAME.tar; docker load -i NAME.tar; "
                f"then name it docker-daemon:NAME; or use a runtime that starts files: {AUTOMATIC[0]}"
            )
    return f"{path} is {FORMS[kind]}, and {runtime.name} starts {takes}", hint


FORMS: Mapping[ImageKind, str] = MappingProxyType(
    {
        ImageKind.SIF: "a SIF file",
        ImageKind.SQUASHFS: "a squashfs (.sqsh)",
        ImageKind.TREE: "a root file system in a folder",
        ImageKind.REGISTRY: "a reference to a registry (docker://…)",
        ImageKind.EDF: "an environment definition file (.toml)",
        ImageKind.HOST: "the machine's own software (bare:)",
    }
)
