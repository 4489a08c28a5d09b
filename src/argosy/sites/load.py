"""Load the site profile of a command, and add the profile's file and line to errors about its values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.sites.profile import Site
from argosy.sites.read import read_site, search_path, whose_profile


class LoadedSite(msgspec.Struct, frozen=True):
    """A site profile and the file that it was read from.

    Attributes
    ----------
    path
        The profile's file.
    note
        Why another profile than the shipped one was read; empty for a shipped profile or one given by its path.
    """

    site: Site
    path: str
    note: str


def load_profile(name: str, host: Host) -> LoadedSite:
    """Read a site's profile by its name or path: from the project, the user, the system, or the shipped ones.

    Raises
    ------
    SiteError
        When there is no such profile, it is not valid, or its map of cores contradicts its node.
    """
    folders = search_path(host.environment, Path(host.cwd))
    path, note = whose_profile(name, folders)
    site = read_site(str(path), folders)
    if site.node.gpu_cpus:
        from argosy.sites.binding import plan_masks  # noqa: PLC0415 - few profiles have a map of cores

        with locate_profile_errors(name, host):
            plan_masks(site.node)
    return LoadedSite(site, str(path), note)


def load_site(name: str, host: Host) -> Site:
    """Read a site's profile; as `load_profile`, without its file."""
    return load_profile(name, host).site


@contextmanager
def locate_profile_errors(name: str, host: Host) -> Iterator[None]:
    """Add the profile's file and line to an error about one of its values (`ArgosyError.key`)."""
    try:
        yield
    except ArgosyError as error:
        if error.key:
            from argosy.sites.show import tell_site  # noqa: PLC0415 - only for an error

            rows = tell_site(name, search_path(host.environment, Path(host.cwd)))
            origin = next((row.origin for row in rows if row.key == error.key), "")
            error.evidence = "\n".join(filter(None, (error.evidence, origin and f"{origin}: {error.key}")))
            error.key = ""
        raise
