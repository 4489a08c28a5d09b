"""podman-hpc (NERSC): podman with the site's own flags for GPUs, network and MPI.

Flags: https://github.com/NERSC/podman-hpc/blob/01b02d6/etc/modules.d. Images are in podman's store; ``podman-hpc pull``
or ``podman-hpc migrate`` on a login node makes them available on compute nodes.
"""

from __future__ import annotations

import msgspec

from argosy.core.layout import enter_if_present
from argosy.core.model import Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word, read_function
from argosy.runtimes.bwrap import LAYER_HINT
from argosy.runtimes.podman import PASSED_OPTIONS, mount_option, mount_refusal
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    SCRIPTS,
    SHARED_MEMORY,
    TEMPORARY,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

START = read_function(SCRIPTS / "podman_hpc_start.sh", "start_podman_hpc")

TRAITS = Traits(
    images=frozenset({ImageKind.REGISTRY}),
    caller=f"only {PASSED_NAMES}, and what the site's flags add",
    unlike="the container is writable; changes are lost at the end",
)


class PodmanHpc(msgspec.Struct, frozen=True):
    """The adapter of podman-hpc."""

    name: str = "podman-hpc"
    program: str = "podman-hpc"
    package: str = "podman-hpc (https://github.com/NERSC/podman-hpc; the site's administrators install it)"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - the site configures podman-hpc
        """Return the reason why podman-hpc cannot start the entry; empty if it can."""
        if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
            return f"podman-hpc does not support --gpu {entry.gpu}; use nv"
        return mount_refusal(entry.binds, "podman-hpc")

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Return the values that ``--env NAME`` reads from the environment; the others are options."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        flags = ("--gpu",) if entry.gpu is GpuMode.NV else ()
        folder: Word = entry.workdir or ("/" if entry.contain else ShellExpr("$PWD"))
        variables = (Variable("HOME", entry.person.home or ShellExpr("$HOME")), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-podman-hpc", *flags, *entry.options, "--"),
            *("--rm", "--interactive"),
            *(("--tty",) if entry.interactive else ()),
            *("--network=host", "--pid=host", *(() if entry.contain else ("--ipc=host",))),
            *(("--userns=keep-id",) if entry.person.uid != 0 else ()),
            *_mount_options(entry),
            *("--workdir", folder),
            *PASSED_OPTIONS,
            *(word for variable in variables for word in ("--env", env_value(variable))),
            "--entrypoint=",
            entry.image.path,
            *(() if entry.image.argosy else enter_if_present()),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


PODMAN_HPC = PodmanHpc()


def _mount_options(entry: Entry) -> list[Word]:
    """Return the options for mounts, outer folders first; all other folders are private in podman."""
    asked: list[Word] = [word for bind in entry.binds for word in mount_option(bind)]
    if entry.contain:
        home: Word = f"{entry.person.home}:mode=1777" if entry.person.home else ShellExpr("$HOME:mode=1777")
        private = [f"{SHARED_MEMORY}:mode=1777", *([] if entry.person.home == "/" else [home])]
        return [*(word for place in private for word in ("--tmpfs", place)), *asked]
    usual = [word for place in TEMPORARY for word in ("--volume", f"{place}:{place}")]
    late: list[Word] = [] if entry.person.home else ["--volume", ShellExpr("$HOME:$HOME")]
    late += [] if entry.workdir else ["--volume", ShellExpr("$PWD:$PWD")]
    return [*usual, *asked, *late]
