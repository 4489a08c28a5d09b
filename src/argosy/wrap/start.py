"""How Apptainer and SingularityCE are started by a wrapper, as lines of sh; text only."""

from __future__ import annotations

import textwrap

from argosy.core.model import Attach, Devices, GpuMode
from argosy.core.shell import ShellExpr, Word, in_double_quotes, join, quote, render_functions
from argosy.runtimes.apptainer import FAMILIES, GPU_FLAGS
from argosy.runtimes.bwrap import ENTER, HOLD, JOIN
from argosy.wrap.mounts import render_visible, system_cases, tree_path
from argosy.wrap.plan import USUALLY_EMPTY
from argosy.wrap.root_entries import How, RootEntry, root_entry_words
from argosy.wrap.start_settings import Start

OF_A_CONTAINER = ("BIND", "BINDPATH", "COMMAND", "CONTAINER", "ENVIRONMENT", "MOUNT", "NAME")
"""Variables that a runtime sets inside: a task started from a container brings them to nodes where they are wrong."""

CHANGES_THE_CONTAINER = (
    *("CLEANENV", "CONTAIN", "CONTAINALL", "CWD", "FAKEROOT", "HOME", "NO_EVAL", "NO_HOME", "NO_MOUNT", "NO_UMASK"),
    *("NV", "NVCCLI", "OVERLAY", "PWD", "ROCM", "SCRATCH", "TARGET_PWD", "TMP_SANDBOX", "UNDERLAY", "UNSQUASH"),
    *("WORKDIR", "WRITABLE", "WRITABLE_TMPFS"),
)
"""Options of the runtime that a user's environment may set: they were meant for another container."""


def _gpu(start: Start) -> list[str]:
    if start.gpu is not GpuMode.AUTO:
        return [f'set -- {" ".join(GPU_FLAGS[start.gpu])} "$@"'] if GPU_FLAGS.get(start.gpu) else []
    return [
        "# GPUs as this node has them.",
        '[ ! -e /dev/nvidiactl ] || set -- --nv "$@"',
        '[ ! -e /dev/kfd ] || set -- --rocm "$@"',
    ]


def _both(name: str, value: ShellExpr | str) -> str:
    return " ".join(f"{family}ENV_{name}={quote(value)}" for family in FAMILIES)


def render_apptainer(start: Start) -> str:
    """Render the start by Apptainer or SingularityCE."""
    path = ShellExpr("$argosy_prefix/bin:$PATH") if start.host else ShellExpr("$argosy_path")
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
        f'exec {start.program} --silent exec --no-eval "$@"',
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


SYSTEM_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin"


def render_bwrap(start: Start) -> str:
    """Render the start by bubblewrap, out of unpacked trees."""
    path = ShellExpr("PATH=$argosy_prefix/bin:$PATH") if start.host else ShellExpr("PATH=$argosy_path")
    libraries = ":".join(start.devices.library_folders)
    variables = [quote(path), *(quote(f"{name}={value}") for name, value in start.variables)]
    variables += [quote(f"{variable.name}={variable.value}") for variable in start.devices.variables]
    rows = [
        *render_functions((HOLD, ENTER)),
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
        "# The tools of the system, not those of this prefix.",
        f"PATH={quote(SYSTEM_PATH)}{':$PATH' if start.host else ''}",
        *(_in_place(start) if start.root.root_entries else ()),
        '. "$argosy_version/join.sh"',
    ]
    return "\n".join(rows) + "\n"


def render_join(start: Start) -> str:
    """Render the file that joins the trees by an overlay."""
    trees = [quote(tree_path(tree)) for tree in start.trees]
    rows = [
        "# shellcheck shell=sh disable=SC2154",
        "# Read by start.sh where the folders of the image have to be joined by an overlay before bubblewrap starts.",
        *render_functions((JOIN,)),
        "# Folders that mounts lie in are made in the upper tree, where they belong to the caller.",
        'argosy_parents=""',
        'for argosy_place in "$argosy_prefix" "${HOME:-/}" "$PWD"; do',
        "    case $argosy_place in /bin* | /sbin* | /lib* | /run* | /usr* | /etc*) continue ;; esac",
        '    argosy_parents="${argosy_parents}upper${argosy_place%/*}',
        '"',
        "done",
        'set -- --bind root / --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"',
        f'set -- {len(trees)} {" ".join(trees)} "$(($# - argosy_rest))" "$@"',
        'set -- "$argosy_passwd" "$argosy_group" "$argosy_parents" "" "$walk_in" "" "" "$@"',
        'set -- sh -c "$join" argosy-join "$argosy_prefix/cache/mount" "$@"',
        'set -- --mount --propagation slave -- "$@"',
        '[ "$argosy_uid" = 0 ] || set -- --user --map-root-user "$@"',
        'exec unshare "$@"',
    ]
    return "\n".join(rows) + "\n"


def render_names(start: Start) -> str:
    """Render what the image says of users and groups, for those who are not in it."""
    rows = [
        "# shellcheck shell=sh disable=SC2034",
        "# The image's /etc/passwd and /etc/group: the caller is added to them.",
        f"argosy_users={quote(start.root.users.rstrip())}",
        f"argosy_groups={quote(start.root.groups.rstrip())}",
    ]
    return "\n".join(rows) + "\n"


def _in_place(start: Start) -> list[str]:
    """Give the way without an overlay.

    HOLD waits for the end of a pipe, which a here-document is in most shells; it is opened once more for writing, so
    that it ends when this process has walked in, or is gone.
    """
    owned = [
        root_entry.target
        for root_entry in start.root.root_entries
        if root_entry.how is How.BIND and root_entry.target[1:] not in USUALLY_EMPTY
    ]
    patterns = " | ".join(f"{target}/*" for target in sorted(owned))
    return [
        *_container(start),
        "# What must be mounted on a folder of the image needs an overlay, and so does a shell without pipes at hand.",
        'argosy_fd=""',
        'for argosy_key in 9 8 7 6; do [ -e "/proc/self/fd/$argosy_key" ] || argosy_fd=$argosy_key; done',
        'for argosy_place in "$argosy_prefix" "${argosy_above:-/}" "$PWD" "${HOME:-/}" "${TMPDIR:-/}"; do',
        "    case $argosy_place in",
        "    /var/tmp/*) ;;",
        f'    {patterns}) argosy_fd="" ;;',
        "    esac",
        "done",
        'if [ -n "$argosy_fd" ]; then',
        '    eval "exec $argosy_fd<<END',
        "END",
        '"',
        '    if [ -p "/proc/self/fd/$argosy_fd" ]; then',
        '        eval "exec $argosy_fd<>/proc/self/fd/$argosy_fd"',
        '        argosy_pid=$(argosy_container "$@" &)',
        '        [ -n "$argosy_pid" ] || exit 125',
        '        shift "$(($# - argosy_rest))"',
        '        set -- -- /bin/sh -c "$walk_in" argosy "$argosy_fd" "$PWD" "$@"',
        '        [ "$argosy_uid" = 0 ] || set -- --user --preserve-credentials "$@"',
        '        exec nsenter --target "$argosy_pid" --mount "$@"',
        "    fi",
        '    eval "exec $argosy_fd<&-"',
        "fi",
    ]


def _container(start: Start) -> list[str]:
    root_entries = [f"        {_top(root_entry)} \\" for root_entry in start.root.root_entries]
    return [
        "# The container: bubblewrap puts it together, says the number of its first process, and that one waits.",
        "argosy_container() {",
        "    # bubblewrap takes 9000 words; those of the command are not for it.",
        "    if [ $# -gt 8000 ]; then",
        '        argosy_words="" argosy_key=1',
        "        while [ $argosy_key -le $(($# - argosy_rest)) ]; do",
        '            argosy_words="$argosy_words \\"\\${$argosy_key}\\"" argosy_key=$((argosy_key + 1))',
        "        done",
        '        eval "set -- $argosy_words"',
        "    fi",
        '    eval "exec < /proc/self/fd/$argosy_fd $argosy_fd>&-"',
        '    if [ "$argosy_uid" != 0 ]; then',
        '        . "$argosy_version/names.sh"',
        '        set -- --perms 0644 --ro-bind-data 4 /etc/passwd --perms 0644 --ro-bind-data 5 /etc/group "$@"',
        "    fi",
        "    set -- \\",
        *root_entries,
        '        --dev-bind /dev /dev --bind /proc /proc --bind /sys /sys "$@"',
        '    [ "$argosy_uid" = 0 ] || set -- --unshare-user --uid "$argosy_uid" --gid "$argosy_gid" "$@"',
        '    exec bwrap "$@" 3>&1 > /dev/null 4<< USERS 5<< GROUPS',
        "$argosy_passwd",
        "${argosy_users-}",
        "USERS",
        "${argosy_groups-}",
        "$argosy_group",
        "GROUPS",
        "}",
    ]


def _top(root_entry: RootEntry) -> str:
    words: tuple[Word, ...] = root_entry_words(root_entry)
    if root_entry.how is How.BIND and not root_entry.source.startswith("/"):
        words = (words[0], ShellExpr(f"$argosy_trees/{in_double_quotes(root_entry.source)}"), root_entry.target)
    return join(words)


def _who() -> list[str]:
    return [
        "# Who calls, without a start of id(1).",
        "while read -r argosy_key argosy_id argosy_rest; do",
        "    case $argosy_key in Uid:) argosy_uid=$argosy_id ;; Gid:) argosy_gid=$argosy_id && break ;; esac",
        "done < /proc/self/status",
        'argosy_passwd="" argosy_group="" argosy_user=${USER:-user$argosy_uid}',
        'if [ "$argosy_uid" != 0 ]; then',
        "    argosy_passwd=$argosy_user:x:$argosy_uid:$argosy_gid::${HOME:-/}:/bin/sh",
        "    argosy_group=$argosy_user:x:$argosy_gid:$argosy_user",
        "fi",
    ]


def _devices(devices: Devices) -> list[str]:
    return [f'set -- --ro-bind-try {quote(bind.source)} {quote(bind.target)} "$@"' for bind in devices.binds]
