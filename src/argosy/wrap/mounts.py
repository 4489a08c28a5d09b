"""What of the host is seen inside, as lines of sh; each line puts the words of one mount in front of those gathered."""

from __future__ import annotations

from argosy.model import Bind
from argosy.shell import Late, quote
from argosy.wrap.plan import SYSTEM_FOLDERS
from argosy.wrap.starting import Start


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
        _mount(mount, Late("$argosy_version/inside"), Late("$argosy_prefix"), read_only=True),
        *binds,
        f'[ -z "$argosy_above" ] || {_mount(mount, Late("$argosy_above"), Late("$argosy_above"))}',
        "case $PWD in",
        f"{system_cases(start)}) ;;",
        f"*) {_mount(mount, Late('$PWD'), Late('$PWD'))} ;;",
        "esac",
        'for argosy_place in "${TMPDIR-}" "${HOME-}"; do',
        '    case $argosy_place in "" | /) continue ;; esac',
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, Late("$argosy_place"), Late("$argosy_place"))}',
        "done",
        *_places(start, mount),
    ]
    return "\n".join(rows) + "\n"


def _places(start: Start, mount: str) -> list[str]:
    # With --host the system folders of the host take the place of the image's; /opt holds the layer, so one by one.
    skipped = ("dev", "opt", "proc", "run", "sys", "tmp") if start.host else (*SYSTEM_FOLDERS, *start.shadowed)
    patterns = [f"/{name}" for name in (*skipped, *(("opt/argosy",) if start.host else ()))]
    return [
        f"for argosy_place in /*{' /opt/*' if start.host else ''}; do",
        f"    case $argosy_place in {' | '.join(patterns)}) continue ;; esac",
        f'    [ ! -d "$argosy_place" ] || {_mount(mount, Late("$argosy_place"), Late("$argosy_place"))}',
        "done",
    ]


def system_cases(start: Start) -> str:
    """Give the patterns of directories that are the image's own, where a caller's directory cannot be shown."""
    names = [name for name in (*SYSTEM_FOLDERS, *start.shadowed) if name not in {"tmp", "var", "run", "opt"}]
    return " | ".join(["/", *(f"/{name}" if name.endswith("*") else f"/{name} | /{name}/*" for name in names)])


def _bound(bind: Bind, mount: str) -> str:
    return _mount(mount, bind.source, bind.target, read_only=bind.read_only)


def _mount(way: str, source: Late | str, target: Late | str, *, read_only: bool = False) -> str:
    """Render one mount that is put in front of the words gathered so far."""
    if way == "bwrap":
        option = "--ro-bind" if read_only else "--bind"
        return f'set -- {option} {quote(source)} {quote(target)} "$@"'
    # One line of CSV, whose fields are quoted: paths may hold commas, colons and blanks.
    fields = (f'\\"src={_inner(source)}\\"', f'\\"dst={_inner(target)}\\"', *(("ro",) if read_only else ()))
    return f'set -- --mount "type=bind,{",".join(fields)}" "$@"'


def _inner(word: Late | str) -> str:
    """Give a word for within double quotes."""
    if isinstance(word, Late):
        return word.expression
    return "".join(f"\\{sign}" if sign in '\\"$`' else sign for sign in word)
