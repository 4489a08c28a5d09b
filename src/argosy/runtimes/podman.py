"""podman on a workstation: on unpacked trees, as bubblewrap, or on an image that podman fetches itself; words only.

Of an unpacked image the base is podman's root file system, and the layer is mounted on /opt/argosy: it lies there in
every image, so the tree is the same.  Written for podman 4.3 (Debian 12) and later.
"""

from __future__ import annotations

import msgspec

from argosy.core.layout import DEFAULT_PATH, ROOT, enter_if_present
from argosy.core.model import Attach, Bind, Entry, GpuMode, Host, ImageKind, Variable
from argosy.core.shell import ShellFunction, Word
from argosy.runtimes.bwrap_scripts import PREFIX, TAKE
from argosy.runtimes.runtime import (
    FILES,
    PASSED_NAMES,
    RANK_VARIABLES,
    VARIABLE_PREFIXES,
    Traits,
    env_value,
    forced_variables,
    inherited_variables,
    with_image_environment,
)

LAYER_HINT = "remove its tree from the cache of Argosy and start again"

AT_TERMINAL = '[ ! -t 0 ] || [ ! -t 1 ] || [ ! -t 2 ] || set -- --tty "$@"'
"""In sh: a terminal inside where all three streams here are one: programs see it, and ^C reaches all of them."""

START = ShellFunction(
    "start",
    f"""\
# Start podman with the umask and the limits of this shell: its words are given.  By itself it raises these two limits.
limit() {{ sed -n "s/^Max $1 *[^ ]* *\\([^ ]*\\).*/\\1/p" /proc/self/limits; }}
{AT_TERMINAL}
processes=$(limit processes) most=$(cat /proc/sys/kernel/pid_max)
[ "$processes" != unlimited ] && [ "$processes" -le "$most" ] || processes=$most
exec podman run --umask="$(umask)" --ulimit="nofile=$(limit 'open files')" --ulimit="nproc=$processes" "$@"
""",
)

INSIDE = ShellFunction(
    "inside",
    f"""\
# In the container: words count and VARIABLES, then the command.  The environment of the image comes first.
PATH={DEFAULT_PATH}
export PATH
argosy_environment() {{{{
    for argosy_script in /.singularity.d/env/*.sh; do [ ! -r "$argosy_script" ] || . "$argosy_script"; done
}}}}
argosy_environment
argosy_count=$1
shift
while [ "$argosy_count" -gt 0 ]; do {TAKE}; shift; argosy_count=$((argosy_count - 1)); done
unset -v argosy_count argosy_script
exec "$@"
""".replace("{{", "{").replace("}}", "}"),
)

GPU_WORDS = {
    GpuMode.NONE: (),
    GpuMode.NV: ("--device", "nvidia.com/gpu=all"),
    GpuMode.CDI: ("--device", "nvidia.com/gpu=all"),
    GpuMode.ROCM: ("--device", "/dev/kfd", "--device", "/dev/dri"),
}
"""NVIDIA's by the machine's CDI specification (podman-run(1), --device); AMD's are device nodes."""


def refuse_mount(binds: tuple[Bind, ...], name: str) -> str:
    """Say which mount cannot be said: ``--volume`` splits at colons, ``--mount`` at commas; empty where all can."""
    odd = next((b for b in binds if ":" in b.source + b.target and "," in b.source + b.target), None)
    return f"{name} cannot mount a path with both a comma and a colon: {odd.source}" if odd else ""


def mount_words(bind: Bind) -> tuple[str, str]:
    """Say one bind mount."""
    if ":" in bind.source + bind.target:
        read_only = ",ro=true" if bind.read_only else ""
        return "--mount", f"type=bind,src={bind.source},dst={bind.target}{read_only}"
    return "--volume", f"{bind.source}:{bind.target}" + (":ro" if bind.read_only else "")


TRAITS = Traits(
    images=FILES | {ImageKind.REGISTRY},
    caller=f"all of it, except what names software of the host; of a fetched image only {PASSED_NAMES}",
    unlike="memory locking and stack have the caller's limits",
    unpacks=True,
    host_mpi=False,
)


FIXED = (
    *("--network=host", "--pid=host"),
    "--read-only",
    "--read-only-tmpfs=false",
    "--security-opt=label=disable",
)
"""What every container gets: the machine's network and processes, so no program has the number 1, which hears no signal
by default; no labels of SELinux on what is mounted."""

NAMED_WORDS = tuple(
    word for name in (*(f"{family}*" for family in VARIABLE_PREFIXES), *RANK_VARIABLES) for word in ("--env", name)
)
"""The caller's variables that enter beside those of a fetched image, if they are set."""

TEMPORARY = ("/tmp", "/var/tmp")  # noqa: S108 - mount points
SHARED_MEMORY = "/dev/shm"  # noqa: S108 - likewise


class Podman(msgspec.Struct, frozen=True):
    """The adapter; it has no settings."""

    name: str = "podman"
    program: str = "podman"
    package: str = "podman and crun"
    proof: str = "ran"
    traits: Traits = TRAITS

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why podman cannot do what is asked on this machine; empty where it can."""
        if entry.gpu not in GPU_WORDS:
            return f"podman has no way '{entry.gpu}' for GPUs; it knows cdi, nv (by CDI) and rocm"
        if entry.person.uid != 0 and not host.user_namespaces:
            return "podman needs user namespaces, which are switched off on this machine"
        return refuse_mount(entry.binds, "podman")

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give the values that ``--env NAME`` takes from the environment, or `TAKE`; the others are arguments."""
        return inherited_variables(entry, "" if entry.image.kind is ImageKind.REGISTRY else PREFIX)

    def argv(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""
        variables = (Variable("HOME", entry.person.home), *forced_variables(entry))
        return (
            *("sh", "-c", START, "argosy-podman", "--rm", "--interactive"),
            *FIXED,
            *(("--userns=keep-id",) if entry.person.uid != 0 else ()),
            *_place_words(entry),
            *GPU_WORDS[entry.gpu],
            *entry.options,
            *_image_words(entry, variables),
            *with_image_environment(entry, command, hint=LAYER_HINT),
        )


PODMAN = Podman()


def _place_words(entry: Entry) -> tuple[str, ...]:
    """Mount what is asked for, and the usual places: the machine's, or private ones."""
    if entry.contain:
        paths = (entry.person.home, *TEMPORARY, SHARED_MEMORY)
        private = [word for place in paths for word in ("--tmpfs", f"{place}:mode=1777")]
        asked = [word for bind in entry.binds for word in mount_words(bind)]
        return (*private, *asked, "--workdir", entry.workdir or "/")
    bound = {bind.target for bind in entry.binds}
    usual = (entry.person.home, *TEMPORARY, "/dev", "/sys")
    binds = (*(Bind(place, place) for place in usual if place not in bound and place not in {"", "/"}), *entry.binds)
    words = [word for bind in binds for word in mount_words(bind)]
    return ("--ipc=host", *words, "--workdir", entry.workdir or "/")


def _image_words(entry: Entry, variables: tuple[Variable, ...]) -> tuple[Word, ...]:
    """Name the image: one that podman fetches, or unpacked trees, whose own environment is read inside."""
    if entry.image.kind is ImageKind.REGISTRY:
        forced = [word for variable in variables for word in ("--env", env_value(variable))]
        return (
            *NAMED_WORDS,
            *forced,
            "--entrypoint=",
            entry.image.path,
            *(() if entry.image.argosy else enter_if_present()),
        )
    tree = entry.trees[-1] if entry.trees else entry.image.path
    layered = entry.attach is not Attach.FLAT and entry.trees[:-1]
    layer = mount_words(Bind(f"{entry.trees[0]}{ROOT}", ROOT, read_only=True)) if layered else ()
    inside = ("/bin/sh", "-c", INSIDE, "argosy-inside", str(len(variables)), *map(env_value, variables))
    return ("--env-host", *layer, "--rootfs", f"{tree}:O", *inside)
