"""Look into an image by one start of its container: its programs, its PATH, what lies beside them."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.containers import ContainerPlan
from argosy.entering import outer_environment
from argosy.errors import ImageError
from argosy.process import Command, failed
from argosy.session import Session
from argosy.shell import plain_words
from argosy.wrap.records import Inside

MARK = "argosy:"
"""Before each line, since an image's own scripts may print."""

LOOK = """\
say() { printf "argosy:%s\\n" "$1:$2"; }
say path "$PATH"
say glibc "$(getconf GNU_LIBC_VERSION 2> /dev/null)"
for folder in /*/; do
    for entry in "$folder"*; do [ ! -e "$entry" ] || { say folder "${folder%/}"; break; }; done
done
first=yes
for place in "$@"; do
    found=""
    if [ -d "$place" ]; then
        for file in "$place"/*; do
            if [ -f "$file" ] && [ -x "$file" ]; then say program "$file"; found=yes; fi
        done
    elif [ -f "$place" ] && [ -x "$place" ]; then
        say program "$place"; found=yes
    fi
    [ -n "$found" ] || say missing "$place"
    [ -n "$first" ] || continue
    first="" above=${place%/*}
    [ ! -x "$place/python" ] || say python "$(readlink -f "$place/python")"
    case $above in "" | /usr | /usr/local | /usr/*) continue ;; esac
    [ ! -d "$place" ] || for file in "$above"/* ; do say beside "$file"; done
    [ ! -r "$above/pyvenv.cfg" ] || while read -r line; do say setting "$line"; done < "$above/pyvenv.cfg"
done
say end yes
"""


def look_inside(plan: ContainerPlan, paths: Iterable[str], session: Session, *, image: str) -> Inside:
    """Start a container once and list what is to be wrapped.

    Parameters
    ----------
    image
        What the user calls the image, for errors.

    Raises
    ------
    ImageError
        When the image has no shell, so that nothing can be listed.
    ToolFailed
        When the container does not start.
    """
    words = plain_words(plan.words(("/bin/sh", "-c", LOOK, "sh", *paths)))
    command = Command(words, env=outer_environment(plan, session.host.environment))
    reply = session.runner.run(command)
    inside = parse_look(reply.stdout)
    if inside is not None:
        return inside
    if any(text in reply.stderr for text in ('"/bin/sh"', "/bin/sh: no such", "no /bin/sh", "execvp /bin/sh")):
        raise ImageError(
            f"{image} has no /bin/sh, so it cannot be asked for its programs",
            evidence=reply.stderr.strip(),
            hint="build over it with a base that has a shell; or start its program by argosy run IMAGE -- PROGRAM",
        )
    raise failed(command, reply, doing="looking for programs in the image")


def parse_look(text: str) -> Inside | None:
    """Read what `LOOK` prints; None where it did not come to its end."""
    rows = [line.removeprefix(MARK).partition(":") for line in text.splitlines() if line.startswith(MARK)]
    found: dict[str, list[str]] = {}
    for key, _, value in rows:
        found.setdefault(key, []).append(value)
    if "end" not in found:
        return None
    return Inside(
        programs=tuple(found.get("program", ())),
        missing=tuple(found.get("missing", ())),
        path=next(iter(found.get("path", ())), ""),
        beside=tuple(found.get("beside", ())),
        folders=tuple(found.get("folder", ())),
        python=next(iter(found.get("python", ())), ""),
        glibc=next(iter(found.get("glibc", ())), "").removeprefix("glibc "),
        venv=_settings(found.get("setting", ())),
    )


def _settings(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    rows = (line.partition("=") for line in lines)
    return tuple((key.strip().lower(), value.strip()) for key, sign, value in rows if sign)
