"""Open the default base, refuse bases that cannot be used, and suggest the bases of a site."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.builder.bases.base import NO_OPTIONS, Base, is_made_by_engine, open_base
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.python.pins import CannotHave
from argosy.builder.python.sources import find_git_packages
from argosy.core.errors import ArgosyError, CheckFailed, ToolMissing, UsageError
from argosy.core.session import Session, Step
from argosy.images.find import find_local
from argosy.images.identify import Kind, identify_file
from argosy.recipes.build_options import PYTHON_BASE
from argosy.recipes.recipe import Recipe
from argosy.sites.bases import bases_with, render_bases
from argosy.sites.load import sites_here
from argosy.sites.profile import Site

PLAIN, PYTHON, PYTHON_AND_GIT = ("docker://debian:bookworm-slim", PYTHON_BASE, "docker://python:3.11-bookworm")
"""Images similar to ``debian:bookworm``: plain, with its Python, and with Python and git."""

HINT = (
    "install mmdebstrap for debian:SUITE (it needs subordinate user ids), or skopeo and umoci for docker://NAME; "
    "or use an image file or folder as the base: --base FILE"
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
    sites = tuple(sites_here(session.host))
    for name in other_bases(sites, needs):
        try:
            base = open_base(name, session, work, options=options, step=step)
        except ArgosyError as error:
            tried.append(f"{name}: {_reason(error)}")
        else:
            session.reporter.note(f"the base is {name}, not {reference}: {cause.what}")
            return base
    known = (
        f"; bases of {site.name}: {', '.join(base.name for base in site.images.bases)}"
        for site in sites
        if site.images.bases
    )
    raise ToolMissing(
        "cannot create or download any base on this machine", evidence="\n".join(tried), hint=HINT + "".join(known)
    ) from cause


def _reason(error: ArgosyError) -> str:
    """Describe an error in one line: the message, and the last meaningful line of its evidence."""
    said = [line.strip() for line in error.evidence.splitlines() if not line.strip().startswith(("$", "(exit code"))]
    return "; ".join(filter(None, (error.what, *said[-1:])))


def other_bases(sites: Iterable[Site], needs: tuple[str, ...]) -> Iterator[str]:
    """Return the bases that may replace the default, best first."""
    python, more = bool(set(PYTHON_PACKAGES) & {*needs}), {*needs} - {*PYTHON_PACKAGES}
    for site in sites:
        for base in site.images.bases:
            there = not base.name.startswith("/") or Path(base.name).exists()
            if there and base.enter == "exec" and (base.python or "python" in base.holds or not python):
                yield base.name
    yield PYTHON_AND_GIT if more else PYTHON if python else PLAIN


def refuse_base_of_other_machine(base: str, site: Site | None) -> None:
    """Refuse a base with an absolute path that is not on this machine; the site's machines may have it."""
    if site and base.startswith("/") and not Path(base).exists():
        known = any(base == each.name for each in site.images.bases)
        raise UsageError(
            f"the base {base} is not on this machine",
            evidence=f"it is a base of {site.name}" if known else f"it may be a file of {site.name}",
            hint=f"build on a machine of {site.name}, or copy the file here and pass the copy with --base",
        )


def refuse_base_around(base: str, output: Path, session: Session, options: EngineOptions = NO_OPTIONS) -> None:
    """Refuse a root file system, for example ``/``, that contains folders to which the build writes."""
    folder = find_local(base, session)
    if folder is None or is_made_by_engine(base, options) or identify_file(folder).kind is not Kind.ROOT_DIRECTORY:
        return
    tree = folder.resolve()
    written = {"the work files": session.work_parent(), "the cache": session.paths.cache, "the output": output}
    for what, path in written.items():
        if path.is_absolute() and path.resolve().is_relative_to(tree):
            is_root = tree == tree.parent
            why = "is this whole machine" if is_root else f"contains {what} of the build"
            raise UsageError(
                f"cannot build over {base}: it {why}",
                evidence=f"{what}: {path}",
                hint="use a folder that contains only the base, or for example --base debian:bookworm"
                if is_root
                else "use --base with a folder that contains only the root file system, and -o, --work-dir and "
                "ARGOSY_CACHE with folders outside it",
            )


@contextmanager
def suggesting_site_bases(site: Site | None) -> Iterator[None]:
    """Add the site's bases with the requested torch to the error for a base with another torch."""
    try:
        yield
    except CannotHave as error:
        bases = bases_with(site.images, error.wanted) if site else ()
        if not (site and bases):
            raise
        evidence = "\n".join((error.evidence, f"bases of {site.name} that have it:", *render_bases(bases)))
        raise CheckFailed(error.what, evidence=evidence, hint=f"add --base {bases[0].name}") from None


PYTHON_PACKAGES = ("python3", "python3-venv")


def needs_python(recipe: Recipe) -> bool:
    """Return whether a recipe needs Python in its base; a conda environment has its own."""
    return bool(recipe.pip or recipe.python) and not recipe.wants_conda


def find_needs(recipe: Recipe) -> tuple[str, ...]:
    """Return the Debian packages that the recipe needs in its base; local repositories are read for this."""
    return (*(PYTHON_PACKAGES if needs_python(recipe) else ()), *find_git_packages(recipe))
