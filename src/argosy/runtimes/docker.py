"""docker on a workstation, on images that it has or fetches itself; words only.

The daemon starts containers as root, so the caller's ids, limits and folders are said by name.  Written for docker
20.10 (Debian 12) and later.
"""

from __future__ import annotations

import msgspec

from argosy.core.layout import enter_if_present
from argosy.core.model import Bind, Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellFunction, Word
from argosy.runtimes.podman import AT_TERMINAL, SHARED_MEMORY, TEMPORARY
from argosy.runtimes.runtime import (
    PASSED_NAMES,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    render_set_names,
)

START = ShellFunction(
    "start",
    f"""\
# Start docker: its words are given.  What ranks find each other and the network by comes along by name; groups, limits
# and umask are those of this shell: by itself the daemon gives its own.
for name in {render_set_names()}; do
    set -- --env "$name" "$@"
done
for group in $(id -G); do set -- --group-add "$group" "$@"; done
limit() {{ sed -n "s/unlimited/-1/g; s/^Max $1 *\\([^ ]*\\) *\\([^ ]*\\).*/$2=\\1:\\2/p" /proc/self/limits; }}
{AT_TERMINAL}
set -- --ulimit "$(limit 'core file size' core)" --ulimit "$(limit 'locked memory' memlock)" "$@"
set -- --ulimit "$(limit 'open files' nofile)" --ulimit "$(limit processes nproc)" "$@"
exec docker run --ulimit "$(limit 'stack size' stack)" --env ARGOSY_UMASK="$(umask)" "$@"
""",
)

UMASK = 'umask "$ARGOSY_UMASK"; unset ARGOSY_UMASK; '
"""In the container, in sh: docker run has no option for it."""

GPU_WORDS = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--gpus", "all"),
    GpuMode.CDI: ("--device", "nvidia.com/gpu=all"),
    GpuMode.ROCM: ("--device", "/dev/kfd", "--device", "/dev/dri", "--group-add", "video", "--group-add", "render"),
}
"""--gpus needs NVIDIA's container toolkit; AMD's are device nodes (https://rocm.docs.amd.com, "Running ROCm Docker
containers")."""

FIXED = ("--network=host", "--ipc=host", "--pid=host", "--read-only", "--security-opt=label=disable")
"""What every container gets: the machine's network, shared memory and processes, so no program has the number 1, which
hears no signal by default; no labels of SELinux on what is mounted."""

DAEMON = "docker-daemon:"
"""Begins the word for an image that docker has: no other of that name is fetched."""

DOUBLE = '"'
ODD = '",\n\r'
"""Characters that a field of CSV is quoted for."""


TRAITS = Traits(
    images=frozenset({ImageKind.REGISTRY}),
    caller=f"nothing but {PASSED_NAMES}",
    unlike="devices are docker's few and the GPUs; docker passes signals on, all but KILL: that ends docker alone",
    store=f"{DAEMON}NAME",
    host_mpi=False,
)


class Docker(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "docker"
    program: str = "docker"
    package: str = "docker.io, or docker-ce (docs.docker.com)"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:  # noqa: ARG002 - whether its daemon answers, only a start tells
        """Say why docker cannot do what is asked; empty where it can."""
        return "" if entry.gpu in GPU_WORDS else f"docker has no way '{entry.gpu}' for GPUs; it knows nv, cdi and rocm"

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that ``--env NAME`` takes from the environment; the others are options."""
        return inherited_variables(entry)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        person = entry.person
        variables = (Variable("HOME", person.home), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-docker", "--rm", "--interactive"),
            *("--user", f"{person.uid}:{person.gid}"),
            *FIXED,
            *_place_words(entry),
            *("--workdir", entry.workdir or "/"),
            *GPU_WORDS[entry.gpu],
            *(word for variable in variables for word in ("--env", env_value(variable))),
            *entry.options,
            *(("--pull=never",) if entry.image.path.startswith(DAEMON) else ()),
            "--entrypoint=",
            entry.image.path.removeprefix(DAEMON),
            *enter_if_present(UMASK),
            *command,
        )


DOCKER = Docker()


def _place_words(entry: Entry) -> list[str]:
    """Mount what is asked for, the files that name the caller, and the usual places: the machine's, or private ones."""
    bound, owner = {bind.target for bind in entry.binds}, f"uid={entry.person.uid},gid={entry.person.gid}"
    paths = [place for place in (entry.person.home, *TEMPORARY) if place not in bound and place not in {"", "/"}]
    names = [Bind(path, path, read_only=True) for path in ("/etc/passwd", "/etc/group")]
    usual = [] if entry.contain else [Bind(place, place) for place in paths]
    # By themselves these are noexec, and what compiles a kernel loads it from here; docker's own /dev/shm has 64 MB.
    private = [f"{place}:exec,mode=1777,{owner}" for place in (*paths, SHARED_MEMORY)] if entry.contain else []
    return [
        *(word for place in private for word in ("--tmpfs", place)),
        *(word for bind in (*names, *usual, *entry.binds) for word in ("--mount", _mount(bind))),
    ]


def _mount(bind: Bind) -> str:
    """Say one bind mount, as one row of CSV: any path can be said, and one that is not there is an error."""
    fields = ["type=bind", f"source={bind.source}", f"target={bind.target}", *(["readonly"] if bind.read_only else [])]
    return ",".join(f'"{field.replace(DOUBLE, DOUBLE * 2)}"' if set(field) & set(ODD) else field for field in fields)
