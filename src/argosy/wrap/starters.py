"""How each runtime is started by a wrapper, as lines of sh; text only."""

from __future__ import annotations

import textwrap

from argosy.model import Attach, Devices, GpuWay
from argosy.runtimes.apptainer import FAMILIES, GPU_FLAGS
from argosy.runtimes.bwrap_scripts import ENTER, HOLD, JOIN
from argosy.shell import Late, quote, render_programs
from argosy.wrap.mounts import render_visible, system_cases
from argosy.wrap.starting import Start

OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""What a runtime sets inside; a task that was started from there carries it along to a node where it means nothing."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that a user's environment may set: they were meant for another container."""


def _gpu(start: Start) -> list[str]:
    if start.gpu is not GpuWay.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# GPUs as this node has them.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: Late | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in FAMILIES)


def render_apptainer(start: Start) -> str:
    """Render the start by Apptainer or SingularityCE."""
    path = Late("$argosy_prefix/bin:$PATH") if start.host else Late("$argosy_path")
    layer = []
    if start.attach is Attach.BIND:
        fields = f'type=bind,\\"src=$argosy_image\\",dst=/opt/argosy,id={start.layer_part},image-src=/opt/argosy'
        layer = [f'set -- --mount "{fields}" "$@"']
    rows = [
        "# Settings of other containers do not count here.  Mounts that the site's modules ask for do, except where a",
        "# task carried them out of a container that it was started in.",
        'if [ -n "${APPTAINER_CONTAINER-}${SINGULARITY_CONTAINER-}" ]; then',
        *(f"    {line}" for line in _forget("_", OF_A_CONTAINER)),
        "fi",
        *_forget("_", CHANGES_THE_CONTAINER),
        *_forget("ENV_", ("PREPEND_PATH", "APPEND_PATH", *start.drop)),
        f"export {_both('PATH', path)}",
        *(f"export {_both(name, value)}" for name, value in start.variables),
        "",
        'set -- "$argosy_image" "$argosy_command" "$@"',
        render_visible(start, "apptainer").rstrip(),
        *layer,
        *_gpu(start),
        *_workdir(start),
        f'exec {start.program} --quiet exec --no-eval "$@"',
    ]
    return "\n".join(rows) + "\n"


def _forget(between: str, names: tuple[str, ...]) -> list[str]:
    """Unset variables of both families, a few on a line."""
    words = textwrap.wrap(" ".join(names), 96)
    return [
        f"for argosy_key in {f' {chr(92)}{chr(10)}    '.join(words)}; do",
        f'    unset -v "APPTAINER{between}$argosy_key" "SINGULARITY{between}$argosy_key"',
        "done",
    ]


def _workdir(start: Start) -> list[str]:
    return ["case $PWD in", f"{system_cases(start)}) ;;", '*) set -- --pwd "$PWD" "$@" ;;', "esac"]


def render_bwrap(start: Start) -> str:
    """Render the start by bubblewrap, whose container is joined out of unpacked trees."""
    path = Late("PATH=$argosy_prefix/bin:$PATH") if start.host else Late("PATH=$argosy_path")
    libraries = ":".join(start.devices.library_folders)
    variables = [quote(path), *(quote(f"{name}={value}") for name, value in start.variables)]
    variables += [quote(f"{variable.name}={variable.value}") for variable in start.devices.variables]
    trees = [
        quote(Late(f"$argosy_prefix/cache/trees/{tree}/root") if "/" not in tree else tree) for tree in start.trees
    ]
    rows = [
        *_who(),
        "",
        f'set -- "HOME=${{HOME:-/}}" {" ".join(variables)} "$argosy_command" "$@"',
        f'set -- {quote(libraries)} {len(variables) + 1} "$@"',
        "argosy_rest=$#",
        'set -- -- /bin/sh -c "$hold" argosy-hold "$@"',
        'set -- --remount-ro / "$@"',
        *_devices(start.devices),
        render_visible(start, "bwrap").rstrip(),
        "for argosy_place in /tmp /var/tmp; do",
        '    [ ! -d "$argosy_place" ] || set -- --bind "$argosy_place" "$argosy_place" "$@"',
        "done",
        "for argosy_place in resolv.conf hosts localtime; do",
        '    set -- --ro-bind-try "/etc/$argosy_place" "/etc/$argosy_place" "$@"',
        "done",
        'set -- --bind root / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"',
        f'set -- {len(trees)} {" ".join(trees)} "$(($# - argosy_rest))" "$@"',
        'set -- "$argosy_passwd" "$argosy_group" "$argosy_parents" "" "$walk_in" "" "$@"',
        'set -- sh -c "$join" argosy-join "$argosy_prefix/cache/mount" "$@"',
        'set -- --mount --propagation slave -- "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --user --map-root-user "$@"',
        "# The tools of the system, not those of this prefix.",
        f"PATH={quote('/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin')}{':$PATH' if start.host else ''}",
        'exec unshare "$@"',
    ]
    programs = render_programs((JOIN, HOLD, ENTER))
    return "\n".join([*programs, *rows]) + "\n"


def _who() -> list[str]:
    return [
        "# Who calls, without a start of id(1).",
        "while read -r argosy_key argosy_id argosy_rest; do",
        "    case $argosy_key in Uid:) argosy_uid=$argosy_id ;; Gid:) argosy_gid=$argosy_id ;; esac",
        "done < /proc/self/status",
        'argosy_passwd="" argosy_group="" argosy_user=${USER:-user$argosy_uid}',
        'if [ "$argosy_uid" != 0 ]; then',
        "    argosy_passwd=$argosy_user:x:$argosy_uid:$argosy_gid::${HOME:-/}:/bin/sh",
        "    argosy_group=$argosy_user:x:$argosy_gid:$argosy_user",
        "fi",
        "# Folders that mounts lie in are made in the upper tree, where they belong to the caller.",
        'argosy_parents=""',
        'for argosy_place in "$argosy_prefix" "${HOME:-/}" "$PWD"; do',
        "    case $argosy_place in /bin* | /sbin* | /lib* | /run* | /usr* | /etc*) continue ;; esac",
        '    argosy_parents="${argosy_parents}upper${argosy_place%/*}',
        '"',
        "done",
    ]


def _devices(devices: Devices) -> list[str]:
    return [f'set -- --ro-bind-try {quote(bind.source)} {quote(bind.target)} "$@"' for bind in devices.binds]
