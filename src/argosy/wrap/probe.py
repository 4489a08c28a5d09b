"""Ask a container of an image for the programs to wrap, and for facts about its Python."""

from __future__ import annotations

from collections.abc import Iterable

from argosy.core.errors import ImageError
from argosy.core.process import tool_error
from argosy.core.session import Session
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import start_command
from argosy.wrap.model import InContainer
from argosy.wrap.templates import read_template

MARK = "argosy:"
"""Prefix of each line of ``probe.sh``, because an image's own scripts may print, too."""


CONTAINER_HINT = "see whether a container of the image starts: argosy run IMAGE -- /bin/sh -c true"


def probe_image(plan: ContainerPlan, paths: Iterable[str], session: Session, *, image: str) -> InContainer:
    """Start a container once, and list the programs to wrap.

    Parameters
    ----------
    image
        The image as the user wrote it, for errors.

    Raises
    ------
    ImageError
        If the image has no shell.
    ToolFailed
        If the container does not start.
    """
    command = start_command(plan, ("/bin/sh", "-c", read_template("probe.sh"), "sh", *paths), session)
    reply = session.runner.run(command)
    inside = parse_probe(reply.stdout)
    if inside is not None:
        return inside
    if any(text in reply.stderr for text in ('"/bin/sh"', "/bin/sh: no such", "no /bin/sh", "execvp /bin/sh")):
        raise ImageError(
            f"cannot list the programs of {image}: it has no /bin/sh",
            evidence=reply.stderr.strip(),
            hint="use an image with a shell, or start the program with argosy run IMAGE -- PROGRAM",
        )
    raise tool_error(command, reply, doing="looking for programs in the image", hint=CONTAINER_HINT)


def parse_probe(text: str) -> InContainer | None:
    """Parse the output of ``probe.sh``; return None if the script did not finish."""
    rows = [line.removeprefix(MARK).partition(":") for line in text.splitlines() if line.startswith(MARK)]
    found: dict[str, list[str]] = {}
    for key, _, value in rows:
        found.setdefault(key, []).append(value)
    if "end" not in found:
        return None
    return InContainer(
        programs=tuple(found.get("program", ())),
        missing=tuple(found.get("missing", ())),
        path=next(iter(found.get("path", ())), ""),
        neighbours=tuple(found.get("neighbour", ())),
        folders=tuple(found.get("folder", ())),
        python=next(iter(found.get("python", ())), ""),
        glibc=next(iter(found.get("glibc", ())), "").removeprefix("glibc "),
        venv=_settings(found.get("setting", ())),
    )


def _settings(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    rows = (line.partition("=") for line in lines)
    return tuple((key.strip().lower(), value.strip()) for key, sign, value in rows if sign)
