"""What of the host is seen inside, as lines of sh; each line puts the words of one mount in front of those gathered."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from argosy.core.model import Bind
from argosy.core.shell import ShellExpr, in_double_quotes, quote
from argosy.wrap.plan import SYSTEM_FOLDERS
from argosy.wrap.start_settings import Start


def render_visible(start: Start, mount: str) -> str:
    """Render all mounts; a later one stands first, since words are put in front.

    Parameters
    ----------
    mount
        Whose words: ``apptainer`` or ``bwrap``.
    """
    binds = [_bound(bind, mount) for bind in reversed(start.binds)]
    rows = [
        "# What is seen of the host, the last mount first: the prefix itself, the folder of an environment on top, the",
        "# current directory, TMPDIR, home, and the node's file systems.",
        _mount(mount, ShellExpr("$argosy_version/inside"), ShellExpr("$argosy_prefix"), read_only=True),
        *binds,
        *_installation(start, mount),
        f'[ -z "$argosy_above" ] || {_mount(mount, ShellExpr("$argosy_above"), ShellExpr("$argosy_above"))}',
        *(_callers_if_apart(start) if mount == "bwrap" else _callers(start, mount)),
        *_places(start, mount),
    ]
    return "\n".join(rows) + "\n"


def _callers(start: Start, mount: str) -> list[str]:
    return [
        "# Nothing is mounted over the commands, also not by the runtime, which mounts the current directory, too.",
        "# shellcheck disable=SC3013",
        'if [ . -ef "$argosy_prefix" ] || [ . -ef "$argosy_prefix/bin" ]; then',
        '    set -- --no-mount cwd "$@"',
        "else",
        "    case $PWD in",
        f"    {system_cases(start)}) ;;",
        f'    *) [ ! -d "$PWD" ] || {_mount(mount, ShellExpr("$PWD"), ShellExpr("$PWD"))} ;;',
        "    esac",
        "fi",
        'for argosy_place in "${TMPDIR-}" "${HOME-}"; do',
        '    case $argosy_place in "" | /) continue ;; esac',
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, ShellExpr("$argosy_place"), ShellExpr("$argosy_place"))}',
        "done",
    ]


def _callers_if_apart(start: Start) -> list[str]:
    """Mount the caller's folders that no other mount shows: each one costs bubblewrap 0.2 ms.

    Whether a folder is there is asked in any case, since that makes an automounter bring it.
    """
    names = [name for name in (*_left_out(start), ".*") if name != "tmp"]
    apart = " | ".join([*(f"/{name}" for name in ("run", "var") if name in names), *(f"/{name}/*" for name in names)])
    return [
        "argosy_here=$PWD",
        f'case $PWD in {system_cases(start)}) argosy_here="" ;; esac',
        'for argosy_place in "$argosy_here" "${TMPDIR-}" "${HOME-}"; do',
        '    [ -d "$argosy_place" ] || continue',
        "    case $argosy_place in",
        "    /var/tmp | /var/tmp/*) ;;",
        f"    {apart}) {_mount('bwrap', ShellExpr('$argosy_place'), ShellExpr('$argosy_place'))} ;;",
        "    esac",
        "done",
    ]


def _installation(start: Start, mount: str) -> list[str]:
    """Show the installation of the image at its own path, over what the host has there."""
    if not start.at:
        return []
    above = quote(str(PurePosixPath(start.at).parent))
    message = f"{start.at} is shown from the image, and is not there to be mounted on"
    rows = [
        f"[ -d {quote(start.at)} ] || [ ! -d {above} ] ||",
        f"    argosy_fail {quote(message)} {quote(f'leave an empty folder there: mkdir {quote(start.at)}')}",
        f"argosy_unlinked {quote(start.at)}",
    ]
    if mount == "bwrap":
        return [*rows, f'set -- --ro-bind {quote(tree_path(start.trees[0], start.at))} "$argosy_folder" "$@"']
    fields = ('\\"src=$argosy_image\\"', '\\"dst=$argosy_folder\\"', f'\\"image-src={_inner(start.at)}\\"', "ro")
    return [*rows, f'set -- --mount "type=bind,{",".join(fields)},id={start.layer_part}" "$@"']


def tree_path(tree: str, path: str = "") -> ShellExpr | str:
    """Give a path in an unpacked tree, which lies in the prefix, or elsewhere under a whole path."""
    return tree + path if "/" in tree else ShellExpr(f"$argosy_prefix/cache/trees/{tree}/root{in_double_quotes(path)}")


def _places(start: Start, mount: str) -> list[str]:
    patterns = [f"/{name}" for name in (*_left_out(start), "lost+found", *(("opt/argosy",) if start.host else ()))]
    return [
        f"for argosy_place in /*{' /opt/*' if start.host else ''}; do",
        f"    case $argosy_place in {' | '.join(patterns)}) continue ;; esac",
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, ShellExpr("$argosy_place"), ShellExpr("$argosy_place"))}',
        "done",
        *_beside_installation(start, mount),
    ]


def _left_out(start: Start) -> tuple[str, ...]:
    """Name folders at the root that are not shown whole."""
    # With --host the system folders of the host take the place of the image's, with /run, where Slurm's commands find
    # munge; /opt holds the layer, so one by one.
    skipped = ("dev", "opt", "proc", "sys", "tmp") if start.host else (*SYSTEM_FOLDERS, *start.shadowed)
    root_entry = _top_of_installation(start)
    return tuple(dict.fromkeys((*skipped, *((root_entry,) if root_entry and f"/{root_entry}" != start.at else ()))))


def _top_of_installation(start: Start) -> str:
    return start.at.split("/")[1] if start.at else ""


def _beside_installation(start: Start, mount: str) -> list[str]:
    """Show what the host has beside an installation, one folder at a time, so that its own path can be made."""
    root_entry = _top_of_installation(start)
    if not root_entry or any(fnmatchcase(root_entry, name) for name in SYSTEM_FOLDERS) or f"/{root_entry}" == start.at:
        return []
    return [
        f"for argosy_place in {quote('/' + root_entry)}/*; do",
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, ShellExpr("$argosy_place"), ShellExpr("$argosy_place"))}',
        "done",
    ]


def system_cases(start: Start) -> str:
    """Give the patterns of directories that are the image's own, where a caller's directory cannot be shown."""
    names = [name for name in (*SYSTEM_FOLDERS, *start.shadowed) if name not in {"tmp", "var", "run", "opt"}]
    return " | ".join(["/", "/opt", *(f"/{name}" if name.endswith("*") else f"/{name} | /{name}/*" for name in names)])


def _bound(bind: Bind, mount: str) -> str:
    return _mount(mount, bind.source, bind.target, read_only=bind.read_only)


def _mount(way: str, source: ShellExpr | str, target: ShellExpr | str, *, read_only: bool = False) -> str:
    """Render one mount that is put in front of the words gathered so far."""
    if way == "bwrap":
        option = "--ro-bind" if read_only else "--bind"
        return f'set -- {option} {quote(source)} {quote(target)} "$@"'
    # One line of CSV, whose fields are quoted: paths may hold commas, colons and blanks.
    fields = (f'\\"src={_inner(source)}\\"', f'\\"dst={_inner(target)}\\"', *(("ro",) if read_only else ()))
    return f'set -- --mount "type=bind,{",".join(fields)}" "$@"'


def _inner(word: ShellExpr | str) -> str:
    """Give a word for within double quotes."""
    return word.expression if isinstance(word, ShellExpr) else in_double_quotes(word)
