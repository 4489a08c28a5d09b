"""docker on a workstation, for images in its store or in a registry.

The daemon starts containers as root, so the caller's ids, limits and folders are passed as options. Supports docker
20.10 (Debian 12) and later.
"""

from __future__ import annotations

from argosy.core.layout import enter_if_present, enter_image
from argosy.core.model import Bind, Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import Word, read_function
from argosy.runtimes.runtime import (
    CDI_DEVICE,
    PASSED_NAMES,
    PASSED_PATTERNS,
    SCRIPTS,
    SHARED_MEMORY,
    TEMPORARY,
    Runtime,
    Traits,
    env_value,
    forced_variables,
)

START = read_function(SCRIPTS / "docker_start.sh", "start_docker", PASSED_PATTERNS)

UMASK = 'umask "$ARGOSY_UMASK"\nunset ARGOSY_UMASK\n'
"""sh commands for inside the container: docker run has no option for the umask."""

GPU_OPTIONS = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--gpus", "all"),
    GpuMode.CDI: ("--device", CDI_DEVICE),
    GpuMode.ROCM: ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video", "--group-add", "render"),
}
"""``--gpus`` needs NVIDIA's container toolkit. AMD GPUs are device nodes (https://rocm.docs.amd.com, "Running ROCm
Docker containers")."""

FIXED = ("--network=host", "--ipc=host", "--pid=host", "--read-only", "--security-opt=label=disable")
"""Options of every container: the host's network, shared memory and processes, and no SELinux labels on mounts.

With the host's process ids no program has the id 1, which ignores signals by default.
"""

DAEMON = "docker-daemon:"
"""Prefix of references to images in docker's own store; such an image is never pulled."""

DOUBLE = '"'
CSV_SPECIAL = '",\n\r'
"""Characters that require quotes in a CSV field."""


class Docker(Runtime, frozen=True):
    """The adapter of docker."""

    def refusal(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - only a start shows whether the daemon answers
        """Return the reason why docker cannot start the entry; empty if it can."""
        return "" if entry.gpu in GPU_OPTIONS else f"docker does not support --gpu {entry.gpu}; use nv, cdi or rocm"

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Return the command line that starts `command` in the container."""
        person = entry.person
        variables = (Variable("HOME", person.home), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-docker", "--rm", "--interactive"),
            *("--user", f"{person.uid}:{person.gid}"),
            *FIXED,
            *_mount_options(entry),
            *("--workdir", entry.workdir or "/"),
            *GPU_OPTIONS[entry.gpu],
            *(word for variable in variables for word in ("--env", env_value(variable))),
            *entry.options,
            *(("--pull=never",) if entry.image.path.startswith(DAEMON) else ()),
            "--entrypoint=",
            entry.image.path.removeprefix(DAEMON),
            *enter_if_present(UMASK),
            *enter_image(entry.image.enter, command),
        )


DOCKER = Docker(
    name="docker",
    program="docker",
    package="docker.io, or docker-ce (docs.docker.com)",
    traits=Traits(
        images=frozenset({ImageKind.REGISTRY}),
        caller=f"only {PASSED_NAMES}",
        host_mpi=False,
        pmi2=False,
        unlike="only docker's default devices and the GPUs are visible; SIGKILL ends the docker client only",
        store=f"{DAEMON}NAME",
        hint_for_files="argosy images export … --format docker-archive -o NAME.tar; docker load -i NAME.tar; "
        "then pass docker-daemon:NAME",
    ),
    proof="ran",
)


def _mount_options(entry: Entry) -> list[str]:
    """Return the options for the requested mounts, passwd and group, and home and temporary folders.

    With ``--contain``, home and temporary folders are private.
    """
    bound, owner = {bind.target for bind in entry.binds}, f"uid={entry.person.uid},gid={entry.person.gid}"
    paths = [place for place in (entry.person.home, *TEMPORARY) if place not in bound and place not in {"", "/"}]
    names = [Bind(path, path, read_only=True) for path in ("/etc/passwd", "/etc/group")]
    usual = [] if entry.contain else [Bind(place, place) for place in paths]
    # tmpfs mounts of docker are noexec, but compilers of GPU kernels load code from there. Its /dev/shm has only 64 MB.
    private = [f"{place}:exec,mode=1777,{owner}" for place in (*paths, SHARED_MEMORY)] if entry.contain else []
    return [
        *(word for place in private for word in ("--tmpfs", place)),
        *(word for bind in (*names, *usual, *entry.binds) for word in ("--mount", _mount(bind))),
    ]


def _mount(bind: Bind) -> str:
    """Render a bind mount as a CSV row: ``--mount`` accepts any path, and a missing source is an error."""
    fields = ["type=bind", f"source={bind.source}", f"target={bind.target}", *(["readonly"] if bind.read_only else [])]
    return ",".join(
        f'"{field.replace(DOUBLE, DOUBLE * 2)}"' if set(field) & set(CSV_SPECIAL) else field for field in fields
    )
