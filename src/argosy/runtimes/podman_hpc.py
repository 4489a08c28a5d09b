"""podman-hpc (NERSC): podman with the site's own flags for GPUs, network and MPI; words only.

Flags: https://github.com/NERSC/podman-hpc/blob/01b02d6/etc/modules.d.  Images lie in podman's store, and are brought to
the compute nodes by ``podman-hpc pull`` or ``podman-hpc migrate`` on a login node.
"""

from __future__ import annotations

import msgspec

from argosy.core.layout import enter_if_present
from argosy.core.model import Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellExpr, Word
from argosy.runtimes.podman import LAYER_HINT, NAMED_WORDS, TEMPORARY, mount_words, refuse_mount
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

TRAITS = Traits(
    images=frozenset({ImageKind.REGISTRY}),
    caller=f"nothing but {PASSED_NAMES}, and what the site's flags add",
    unlike="the image may be written to; what is written there is gone at the end",
)


class PodmanHpc(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "podman-hpc"
    program: str = "podman-hpc"
    package: str = "podman-hpc (https://github.com/NERSC/podman-hpc; the site's administrators do that)"
    proof: str = "rendered"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - the site set it up, or it is not there
        """Say why podman-hpc cannot do what is asked; empty where it can."""
        if entry.gpu not in {GpuMode.NONE, GpuMode.NV}:
            return f"podman-hpc carries NVIDIA's GPUs in by --gpu, and has no way '{entry.gpu}'"
        return refuse_mount(entry.binds, "podman-hpc")

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that ``--env NAME`` takes from the environment; the others are options."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        folder: Word = entry.workdir or ("/" if entry.contain else ShellExpr("$PWD"))
        variables = (Variable("HOME", entry.person.home or ShellExpr("$HOME")), *forced_variables(entry))
        return (
            *("podman-hpc", "run"),
            *(("--gpu",) if entry.gpu is GpuMode.NV else ()),
            *entry.options,
            "--",  # after it podman-hpc takes no word for one of its own flags, be it the program's
            *("--rm", "--interactive"),
            *(("--tty",) if entry.interactive else ()),
            *("--network=host", *(() if entry.contain else ("--ipc=host", "--pid=host"))),
            *(("--userns=keep-id",) if entry.person.uid != 0 else ()),
            *_place_words(entry),
            *("--workdir", folder),
            *NAMED_WORDS,
            *(word for variable in variables for word in ("--env", env_value(variable))),
            "--entrypoint=",
            entry.image.path,
            *(() if entry.image.argosy else enter_if_present()),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


PODMAN_HPC = PodmanHpc()


def _place_words(entry: Entry) -> list[Word]:
    """Mount what is asked for, outer folders first: by itself podman gives a container its own folders for all else."""
    asked: list[Word] = [word for bind in entry.binds for word in mount_words(bind)]
    if entry.contain:
        home: Word = f"{entry.person.home}:mode=1777" if entry.person.home else ShellExpr("$HOME:mode=1777")
        return [*(() if entry.person.home == "/" else ("--tmpfs", home)), *asked]
    usual = [word for place in TEMPORARY for word in ("--volume", f"{place}:{place}")]
    late: list[Word] = [] if entry.person.home else ["--volume", ShellExpr("$HOME:$HOME")]
    late += [] if entry.workdir else ["--volume", ShellExpr("$PWD:$PWD")]
    return [*usual, *asked, *late]
