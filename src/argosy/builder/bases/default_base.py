"""Open the default base, or another one if the default cannot be created on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from argosy.builder.bases.base import NO_OPTIONS, Base, open_base
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.needs import PYTHON_PACKAGES
from argosy.core.errors import ArgosyError, ToolMissing
from argosy.core.session import Session, Step
from argosy.sites.detect import sites_here
from argosy.sites.profile import Site

PLAIN, PYTHON, PYTHON_AND_GIT = (
    "docker://debian:bookworm-slim",
    "docker://python:3.11-slim-bookworm",
    "docker://python:3.11-bookworm",
)
"""Images similar to ``debian:bookworm``: plain, with its Python, and with Python and git."""

HINT = (
    "install mmdebstrap for debian:SUITE, or skopeo and umoci for docker://NAME; "
    "or use an image file or folder as the base: --base FILE (tykky: container_src)"
)


def open_default_base(
    reference: str,
    session: Session,
    work: Path,
    *,
    needs: tuple[str, ...] = (),
    options: EngineOptions = NO_OPTIONS,
    step: Step | None = None,
) -> Base:
    """Open the default base, or the first alternative that works, which is then reported.

    The alternatives are the bases in the profile of this machine's site, then an image from a registry.

    Raises
    ------
    ToolMissing
        If no base is available; the evidence has the reason for each.
    """
    try:
        return open_base(reference, session, work, needs=needs, options=options, step=step)
    except ToolMissing as error:
        cause = error
    tried = [f"{reference}: {_reason(cause)}"]
    for name in other_bases(sites_here(session.host), needs):
        try:
            base = open_base(name, session, work, options=options, step=step)
        except ArgosyError as error:
            tried.append(f"{name}: {_reason(error)}")
        else:
            session.reporter.note(f"{cause.what}: the base is {name}, not {reference}")
            return base
    raise ToolMissing(
        "cannot create or download any base on this machine", evidence="\n".join(tried), hint=HINT
    ) from cause


def _reason(error: ArgosyError) -> str:
    """Describe an error in one line: the message, and the last meaningful line of its evidence."""
    said = [line.strip() for line in error.evidence.splitlines() if not line.strip().startswith(("$", "(exit code"))]
    return "; ".join(filter(None, (error.what, *said[-1:])))


def other_bases(sites: Iterable[Site], needs: tuple[str, ...]) -> Iterator[str]:
    """Return the bases that may replace the default, best first.

    Parameters
    ----------
    needs
        Debian packages that the environment needs in its base.
    """
    python, more = bool(set(PYTHON_PACKAGES) & {*needs}), {*needs} - {*PYTHON_PACKAGES}
    for site in sites:
        for base in site.images.bases:
            there = not base.name.startswith("/") or Path(base.name).exists()
            if there and base.enter == "exec" and (base.python or "python" in base.holds or not python):
                yield base.name
    yield PYTHON_AND_GIT if more else PYTHON if python else PLAIN
