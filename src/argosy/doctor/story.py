"""Examine this machine: find its site, look, judge."""

from __future__ import annotations

from argosy.doctor.judging import Finding, judge_machine
from argosy.doctor.looking import look
from argosy.launch.grounds import find_site
from argosy.session import Session
from argosy.sites import Site
from argosy.sites.here import sites_here


def examine(session: Session, site: str = "") -> tuple[Finding, ...]:
    """Examine this machine, against the site named, else against the one that it belongs to.

    Raises
    ------
    SiteError
        When there is no site of that name.
    """
    return judge_machine(look(session), _profile(session, site))


def _profile(session: Session, name: str) -> Site | None:
    if name:
        return find_site(name, session.host)
    found = sites_here(session.host)
    return found[0] if len(found) == 1 else None
