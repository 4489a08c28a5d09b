"""The site that an image is for: its profile, and its bases where another one is needed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from argosy.build.conflicts import CannotHave
from argosy.build.gpu_backend import refuse_other_machine
from argosy.build.report import BuildRequest
from argosy.errors import CheckFailed, UsageError
from argosy.model import Host
from argosy.sites import Site, read_site, search_path
from argosy.sites.bases import bases_with, render_bases


def site_of(request: BuildRequest, host: Host) -> Site | None:
    """Read the profile of the site that the image is for; None where none is named.

    Raises
    ------
    SiteError, CheckFailed
        When there is no such site, or its machines are of another architecture.
    """
    if not request.site:
        return None
    site = site_named(request.site, host)
    refuse_other_machine(site, host)
    return site


def site_named(name: str, host: Host) -> Site:
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
    bases = site_named(name, host).images.bases
    if not bases:
        return UsageError(what, evidence=f"the profile of {name} recommends none", hint=hint)
    known = "\n".join((f"bases of {name}:", *render_bases(bases)))
    return UsageError(what, evidence=known, hint=f"add one of them, as in --base {bases[0].name}")


@contextmanager
def naming_bases(site: Site | None) -> Iterator[None]:
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
