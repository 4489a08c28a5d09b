"""Examine this machine: find its site, look, judge."""

from __future__ import annotations

from pathlib import Path

from argosy.doctor.judging import Finding, judge_machine
from argosy.doctor.looking import look
from argosy.launch.story import find_site
from argosy.session import Session
from argosy.sites import Site, search_path
from argosy.sites.here import find_sites_here


def examine(session: Session, site: str = "") -> tuple[Finding, ...]:
    """Examine this machine, against the site named, else against the one that it belongs to.

    Raises
    ------
    SiteError
        When there is no site of that name.
    """
    return judge_machine(look(session), _profile(session, site))


def _profile(session: Session, name: str) -> Site | None:
    host = session.host
    if name:
        return find_site(name, host)
    found = find_sites_here(host, search_path(host.environment, Path(host.cwd)))
    return find_site(found[0].site, host) if len(found) == 1 else None
