"""The site that an image is for: its profile, and its bases where another one is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.builder.inputs import read_lock
from argosy.builder.python.conflicts import CannotHave
from argosy.builder.report import BuildRequest
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import Host
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.emulation import MACHINES, emulating, machine_named
from argosy.sites.bases import bases_with, render_bases
from argosy.sites.profile import Site
from argosy.sites.read import read_site, search_path


def find_target_site(request: BuildRequest, host: Host) -> Site | None:
    """Read the profile of the site that the image is for; None where none is named.

    Raises
    ------
    SiteError
        When there is no such site.
    """
    return read_named_site(request.site, host) if request.site else None


def resolve_target_session(request: BuildRequest, session: Session) -> Session:
    """Give the session in which programs are those of the machine that the image is for: as asked, or the site's.

    Raises
    ------
    UsageError
        For a word that names no architecture, or another one than the site's.
    SiteError, CheckFailed
        When there is no such site, or its programs do not run here.
    """
    host = session.host
    site = find_target_site(request, host)
    locked = machine_named(read_lock(request.locked, session).base.arch) if request.locked else ""
    asked, there = _architecture(request.arch) or locked, site.node.arch if site else ""
    if site and asked and there and asked != there:
        raise UsageError(f"{site.name} is {there}, and --arch says {asked}", hint="leave --arch out")
    wanted = asked or there or host.arch
    try:
        aimed_at = emulating(host, wanted)
    except CheckFailed as error:
        if site and not asked:
            error.what = f"{site.name} is {there}: {error.what}"
            error.hint += "; --on-node --dry-run shows the plan from here"
        raise
    if aimed_at.emulated:
        session.reporter.note(f"programs for {wanted} run under an emulator here, which takes its time")
    return replace(session, host=aimed_at)


def _architecture(word: str) -> str:
    machine = machine_named(word)
    if machine and machine not in MACHINES.values():
        raise UsageError(f"{word!r} is no architecture", hint=f"one of {', '.join(sorted(MACHINES.values()))}")
    return machine


def read_named_site(name: str, host: Host) -> Site:
    """Read the profile of a name or a file, as the user of this machine finds it.

    Raises
    ------
    SiteError
        When there is none.
    """
    return read_site(name, search_path(host.environment, Path(host.cwd)))


def explain_no_base(name: str, host: Host) -> UsageError:
    """Say that no base was named, with those of the site that the image is for, if there is one."""
    what, hint = "no base was named", "add --base debian:bookworm, a SIF file or docker://NAME"
    if not name:
        return UsageError(what, hint=hint)
    bases = read_named_site(name, host).images.bases
    if not bases:
        return UsageError(what, evidence=f"the profile of {name} recommends none", hint=hint)
    known = "\n".join((f"bases of {name}:", *render_bases(bases)))
    return UsageError(what, evidence=known, hint=f"add one of them, as in --base {bases[0].name}")


def refuse_base_of_other_machine(base: str, site: Site | None) -> None:
    """Refuse a base by an absolute path that is not on this machine, where the machines of the site may have it.

    Raises
    ------
    UsageError
        When the base is a path from the root, and not there.
    """
    if site and base.startswith("/") and not Path(base).exists():
        known = any(base == each.name for each in site.images.bases)
        raise UsageError(
            f"the base {base} is not on this machine",
            evidence=f"the profile of {site.name} names it: it lies there" if known else f"looked for at {site.name}?",
            hint=f"build on a machine of {site.name}, or copy the file here and name the copy by --base",
        )


@contextmanager
def suggesting_site_bases(site: Site | None) -> Iterator[None]:
    """Where a base has another torch than what is asked for, name those of the site that have it.

    Raises
    ------
    CheckFailed
        What came, with those bases.
    """
    try:
        yield
    except CannotHave as error:
        bases = bases_with(site.images, error.wanted) if site else ()
        if not (site and bases):
            raise
        evidence = "\n".join((error.evidence, f"bases of {site.name} that have it:", *render_bases(bases)))
        raise CheckFailed(error.what, evidence=evidence, hint=f"add --base {bases[0].name}") from None
