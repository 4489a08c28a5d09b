"""Find the site that an image is for, and suggest its bases."""

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
    """Read the profile of the site that the image is for; return None without one.

    Raises
    ------
    SiteError
        If there is no such site.
    """
    return read_named_site(request.site, host) if request.site else None


def resolve_target_session(request: BuildRequest, session: Session) -> Session:
    """Return a session for the architecture that the image is for: the requested one, or the site's.

    Raises
    ------
    UsageError
        If the architecture is unknown, or is not the site's.
    SiteError, CheckFailed
        If there is no such site, or this machine cannot run its programs.
    """
    host = session.host
    site = find_target_site(request, host)
    locked = machine_named(read_lock(request.locked, session).base.arch) if request.locked else ""
    asked, there = _architecture(request.arch) or locked, site.node.arch if site else ""
    if site and asked and there and asked != there:
        raise UsageError(f"--arch is {asked}, but {site.name} is {there}", hint="remove --arch")
    wanted = asked or there or host.arch
    try:
        aimed_at = emulating(host, wanted)
    except CheckFailed as error:
        if site and not asked:
            error.what = f"{site.name} is {there}: {error.what}"
            error.hint += "; --on-node --dry-run shows the plan from here"
        raise
    if aimed_at.emulated:
        session.reporter.note(f"programs for {wanted} run in an emulator on this machine, which is slow")
    return replace(session, host=aimed_at)


def _architecture(word: str) -> str:
    machine = machine_named(word)
    if machine and machine not in MACHINES.values():
        raise UsageError(f"unknown architecture {word!r}", hint=f"use one of {', '.join(sorted(MACHINES.values()))}")
    return machine


def read_named_site(name: str, host: Host) -> Site:
    """Read a profile by its name or file.

    Raises
    ------
    SiteError
        If there is no such profile.
    """
    return read_site(name, search_path(host.environment, Path(host.cwd)))


def explain_no_base(name: str, host: Host) -> UsageError:
    """Return the error for a missing base, with the bases of the site if there is one."""
    what, hint = "no base is given", "add --base debian:bookworm, a SIF file or docker://NAME"
    if not name:
        return UsageError(what, hint=hint)
    bases = read_named_site(name, host).images.bases
    if not bases:
        return UsageError(what, evidence=f"the profile of {name} recommends no base", hint=hint)
    known = "\n".join((f"bases of {name}:", *render_bases(bases)))
    return UsageError(what, evidence=known, hint=f"add one of them, for example --base {bases[0].name}")


def refuse_base_of_other_machine(base: str, site: Site | None) -> None:
    """Refuse a base with an absolute path that is not on this machine; the site's machines may have it.

    Raises
    ------
    UsageError
        If the base is an absolute path that does not exist.
    """
    if site and base.startswith("/") and not Path(base).exists():
        known = any(base == each.name for each in site.images.bases)
        raise UsageError(
            f"the base {base} is not on this machine",
            evidence=f"it is a base of {site.name}" if known else f"it may be a file of {site.name}",
            hint=f"build on a machine of {site.name}, or copy the file here and pass the copy with --base",
        )


@contextmanager
def suggesting_site_bases(site: Site | None) -> Iterator[None]:
    """Add the site's bases with the requested torch to the error for a base with another torch.

    Raises
    ------
    CheckFailed
        The original error, with those bases.
    """
    try:
        yield
    except CannotHave as error:
        bases = bases_with(site.images, error.wanted) if site else ()
        if not (site and bases):
            raise
        evidence = "\n".join((error.evidence, f"bases of {site.name} that have it:", *render_bases(bases)))
        raise CheckFailed(error.what, evidence=evidence, hint=f"add --base {bases[0].name}") from None
