"""docker on a workstation, on images that it has or fetches itself; words only.

The daemon starts containers as root, so the caller's ids, limits and folders are said by name.
"""

from __future__ import annotations

import msgspec

from argosy.layout import entered_if_there
from argosy.model import Bind, Entry, GpuWay, Host, ImageKind, Variable, Word
from argosy.runtimes import FAMILIES, FAMILY_NAMES, Traits, assignment, forced_variables, in_environment
from argosy.runtimes.podman import TEMPORARY, WAY_OUT, mount_words, refuse_mount
from argosy.shell import Program

START = Program(
    "start",
    f"""\
# Start docker: its words are given; what ranks find each other and the network by comes along by name.
for name in {FAMILY_NAMES}; do set -- --env "$name" "$@"; done
exec docker run "$@"
""",
)

GPU_WORDS = {
    GpuWay.NONE: (),
    GpuWay.NV: ("--gpus", "all"),
    GpuWay.CDI: ("--device", "nvidia.com/gpu=all"),
    GpuWay.ROCM: ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video", "--group-add", "render"),
}
"""--gpus needs NVIDIA's container toolkit; AMD's are device nodes (https://rocm.docs.amd.com, "Running ROCm Docker
containers")."""

LIMITS = ("--ulimit", "memlock=-1", "--ulimit", "stack=67108864")
"""Pinned memory and stack as NVIDIA's images ask for (https://docs.nvidia.com/deeplearning/frameworks/user-guide)."""


TRAITS = Traits(
    images=frozenset({ImageKind.REGISTRY}),
    caller=f"nothing but {', '.join(f'{family}*' for family in FAMILIES)}",
    unlike="signals go to docker, which passes them on; the daemon is not a child of the caller",
    host_mpi=False,
)


class Docker(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "docker"
    program: str = "docker"
    package: str = "docker.io, or docker-ce (docs.docker.com)"
    proof: str = "rendered"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - whether its daemon answers, only a start tells
        """Say why docker cannot do what is asked; empty where it can."""
        if entry.gpu not in GPU_WORDS:
            return f"docker has no way '{entry.gpu}' for GPUs; it knows nv, cdi and rocm"
        return refuse_mount(entry.binds, "docker")

    def exports(self, entry: Entry) -> tuple[Variable, ...]:  # noqa: ARG002 - variables travel as arguments
        """Give nothing: the variables are options."""
        return ()

    def words(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        person = entry.person
        names = (Bind("/etc/passwd", "/etc/passwd", read_only=True), Bind("/etc/group", "/etc/group", read_only=True))
        binds = entry.binds if entry.contain else (*names, Bind(TEMPORARY[0], TEMPORARY[0]), *entry.binds)
        variables = (Variable("HOME", person.home), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-docker", "--rm", "--interactive"),
            *(("--tty",) if entry.interactive else ()),
            *("--user", f"{person.uid}:{person.gid}", "--network=host", "--read-only", *LIMITS),
            *(("--tmpfs", TEMPORARY[0], "--tmpfs", person.home) if entry.contain else ("--ipc=host", "--pid=host")),
            *(word for bind in dict.fromkeys(binds) for word in mount_words(bind)),
            *("--workdir", entry.workdir or "/"),
            *GPU_WORDS[entry.gpu],
            *(word for variable in variables for word in ("--env", assignment(variable))),
            *entry.options,
            "--entrypoint=",
            entry.image.path,
            *(() if entry.image.argosy else entered_if_there()),
            *in_environment(entry, command, way_out=WAY_OUT),
        )


DOCKER = Docker()
