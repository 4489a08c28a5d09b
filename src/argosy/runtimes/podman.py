"""podman on a workstation, and podman-hpc (NERSC): podman with the site's own flags for GPUs, network and MPI.

podman starts unpacked image files and images in a registry. The base of an unpacked image is its root file system, and
the layer is mounted on /opt/argosy, its place in every image. Supports podman 4.3 (Debian 12) and later.

podman-hpc starts images in its store; ``podman-hpc pull`` or ``podman-hpc migrate`` on a login node makes them
available on compute nodes. Flags: https://github.com/NERSC/podman-hpc/blob/01b02d6/etc/modules.d.
"""

from __future__ import annotations

from argosy.core.layout import ROOT, enter_if_present
from argosy.core.model import Attach, Bind, Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, read_function
from argosy.runtimes.bwrap import ENTER_IMAGE, LAYER_HINT, PREFIX
from argosy.runtimes.runtime import (
    CDI_DEVICE,
    FILES,
    PASSED_NAMES,
    RANK_VARIABLES,
    SCRIPTS,
    SHARED_MEMORY,
    TEMPORARY,
    VARIABLE_PREFIXES,
    Runtime,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

START = read_function(SCRIPTS / "podman_start.sh", "start_podman")
START_HPC = read_function(SCRIPTS / "podman_hpc_start.sh", "start_podman_hpc")

GPU_OPTIONS = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--device", CDI_DEVICE),
    GpuMode.CDI: ("--device", CDI_DEVICE),
    GpuMode.ROCM: ("--device", "/dev/kfd", "--device", "/dev/dri"),
}
"""NVIDIA GPUs through the machine's CDI specification (podman-run(1), ``--device``); AMD GPUs are device nodes."""


def _mount_refusal(binds: tuple[Bind, ...], name: str) -> str:
    """Return why a mount cannot be expressed: ``--volume`` splits at colons, ``--mount`` at commas; else empty."""
    odd = next((b for b in binds if ":" in b.source + b.target and "," in b.source + b.target), None)
    return f"{name} cannot mount a path with both a comma and a colon: {odd.source}" if odd else ""


def _mount_option(bind: Bind) -> tuple[str, str]:
    """Return the option for a bind mount: ``--volume``, or ``--mount`` if a path contains a colon."""
    if ":" in bind.source + bind.target:
        read_only = ",ro=true" if bind.read_only else ""
        return "--mount", f"type=bind,src={bind.source},dst={bind.target}{read_only}"
    return "--volume", f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


FIXED = (*("--network=host", "--pid=host"), "--read-only", "--read-only-tmpfs=false", "--security-opt=label=disable")
"""Options of every container: the host's network and processes, and no SELinux labels on mounts.

With the host's process ids no program has the id 1, which ignores signals by default.
"""

PASSED_OPTIONS = tuple(
    word for name in (*(f"{family}*" for family in VARIABLE_PREFIXES), *RANK_VARIABLES) for word in ("--env", name)
)
"""Options that pass the caller's variables into a registry image, if they are set."""


class Podman(Runtime, frozen=True):
    """The adapter of podman."""

    def refusal(self, entry: Entry, host: Host) -> str:
        """Return the reason why podman cannot start the entry on this machine; empty if it can."""
        if entry.gpu not in GPU_OPTIONS:
            return f"podman does not support --gpu {entry.gpu}; use cdi, nv (through CDI) or rocm"
        if entry.person.uid != 0 and not host.user_namespaces:
            return "podman needs user namespaces, which are disabled on this machine"
        return _mount_refusal(entry.binds, "podman")

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the values that ``--env NAME`` or ENTER_IMAGE reads from the environment; the others are arguments."""
        return inherited_variables(entry, "" if entry.image.kind is ImageKind.REGISTRY else PREFIX)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        variables = (Variable("HOME", entry.person.home), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-podman", "--rm", "--interactive"),
            *FIXED,
            *(("--userns=keep-id",) if entry.person.uid != 0 else ()),
            *_mount_options(entry),
            *GPU_OPTIONS[entry.gpu],
            *entry.options,
            *_image_words(entry, variables),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


PODMAN = Podman(
    name="podman",
    program="podman",
    package="podman and crun",
    traits=Traits(
        images=FILES | {ImageKind.REGISTRY},
        caller=f"all, except those that refer to host software; for registry images only {PASSED_NAMES}",
        host_mpi=False,
        pmi2=False,
        unlike="memory locking and stack have the caller's limits",
        unpacks=True,
        layer="bind",
    ),
    proof="ran",
)


def _mount_options(entry: Entry) -> tuple[str, ...]:
    """Return the options for the requested mounts and the usual folders, which ``--contain`` makes private."""
    if entry.contain:
        paths = (entry.person.home, *TEMPORARY, SHARED_MEMORY)
        private = [word for place in paths for word in ("--tmpfs", f"{place}:mode=1777")]
        asked = [word for bind in entry.binds for word in _mount_option(bind)]
        return (*private, *asked, "--workdir", entry.workdir or "/")
    bound = {bind.target for bind in entry.binds}
    usual = (entry.person.home, *TEMPORARY, "/dev", "/sys")
    binds = (*(Bind(place, place) for place in usual if place not in bound and place not in {"", "/"}), *entry.binds)
    words = [word for bind in binds for word in _mount_option(bind)]
    return ("--ipc=host", *words, "--workdir", entry.workdir or "/")


def _image_words(entry: Entry, variables: tuple[Variable, ...]) -> tuple[Word, ...]:
    """Return the arguments for the image: a reference that podman pulls, or unpacked trees and their environment."""
    if entry.image.kind is ImageKind.REGISTRY:
        return _registry_words(entry, variables)
    tree = entry.trees[-1] if entry.trees else entry.image.path
    layered = entry.attach is not Attach.FLAT and entry.trees[:-1]
    layer = _mount_option(Bind(f"{entry.trees[0]}{ROOT}", ROOT, read_only=True)) if layered else ()
    inside = ("/bin/sh", "-c", ENTER_IMAGE, "argosy-enter", "", str(len(variables)), *map(env_value, variables))
    return ("--env-host", *layer, "--rootfs", f"{tree}:O", *inside)


def _registry_words(entry: Entry, variables: tuple[Variable, ...]) -> tuple[Word, ...]:
    """Return the arguments for an image in a registry or in podman's store, and for its environment."""
    forced = [word for variable in variables for word in ("--env", env_value(variable))]
    enter = () if entry.image.argosy else enter_if_present()
    return (*PASSED_OPTIONS, *forced, "--entrypoint=", entry.image.path, *enter)


class PodmanHpc(Runtime, frozen=True):
    """The adapter of podman-hpc."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - the site configures podman-hpc
        """Return the reason why podman-hpc cannot start the entry; empty if it can."""
        if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
            return f"podman-hpc does not support --gpu {entry.gpu}; use nv"
        return _mount_refusal(entry.binds, "podman-hpc")

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        flags = ("--gpu",) if entry.gpu is GpuMode.NV else ()
        folder: Word = entry.workdir or ("/" if entry.contain else ShellExpr("$PWD"))
        variables = (Variable("HOME", entry.person.home or ShellExpr("$HOME")), *forced_variables(entry))
        return (
            *("sh", "-c", START_HPC, "argosy-podman-hpc", *flags, *entry.options, "--"),
            *("--rm", "--interactive"),
            *(("--tty",) if entry.interactive else ()),
            *("--network=host", "--pid=host", *(() if entry.contain else ("--ipc=host",))),
            *(("--userns=keep-id",) if entry.person.uid != 0 else ()),
            *_hpc_mount_options(entry),
            *("--workdir", folder),
            *_registry_words(entry, variables),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


PODMAN_HPC = PodmanHpc(
    name="podman-hpc",
    program="podman-hpc",
    package="podman-hpc (https://github.com/NERSC/podman-hpc; the site's administrators install it)",
    traits=Traits(
        images=frozenset({ImageKind.REGISTRY}),
        caller=f"only {PASSED_NAMES}, and what the site's flags add",
        host_mpi=True,
        pmi2=True,
        unlike="the container is writable; changes are lost at the end",
    ),
    proof="ran",
)


def _hpc_mount_options(entry: Entry) -> list[Word]:
    """Return the options for mounts, outer folders first; all other folders are private in podman."""
    asked: list[Word] = [word for bind in entry.binds for word in _mount_option(bind)]
    if entry.contain:
        home: Word = f"{entry.person.home}:mode=1777" if entry.person.home else ShellExpr("$HOME:mode=1777")
        private = [f"{SHARED_MEMORY}:mode=1777", *([] if entry.person.home == "/" else [home])]
        return [*(word for place in private for word in ("--tmpfs", place)), *asked]
    usual = [word for place in TEMPORARY for word in ("--volume", f"{place}:{place}")]
    late: list[Word] = [] if entry.person.home else ["--volume", ShellExpr("$HOME:$HOME")]
    late += [] if entry.workdir else ["--volume", ShellExpr("$PWD:$PWD")]
    return [*usual, *asked, *late]
