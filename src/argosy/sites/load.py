"""Load the site profile of a command, and name the site and the key in errors about its values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.sites.binding import plan_masks
from argosy.sites.profile import Site
from argosy.sites.read import DATA, describe_source, profile_folders, read_site


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
    folders = profile_folders(host)
    path, note = describe_source(name, folders)
    site = read_site(str(path), folders)
    with locate_profile_errors(name, host):
        plan_masks(site.node)
    return LoadedSite(site, str(path), note)


def load_site(name: str, host: Host) -> Site:
    """Read a site's profile; as `load_profile`, without its file."""
    return load_profile(name, host).site


@contextmanager
def locate_profile_errors(name: str, host: Host) -> Iterator[None]:
    """Name site and key in an error about a value of a profile (`ArgosyError.key`).

    For a profile of the user the evidence also gives file and line. For a shipped one they are a note of the exception,
    which the command line prints with --verbose: users do not edit files of the installation.
    """
    try:
        yield
    except ArgosyError as error:
        if error.key:
            from argosy.sites.show import explain_site  # noqa: PLC0415 - only for an error

            rows = explain_site(name, profile_folders(host))
            origin = next((row.origin for row in rows if row.key == error.key), "")
            if origin.startswith(f"{DATA}/"):
                error.add_note(f"{origin}: {error.key}")
                place = f"site {name}: {error.key}"
            else:
                place = f"{origin}: {error.key}" if origin else ""
            error.evidence = "\n".join(filter(None, (error.evidence, place)))
            error.key = ""
        raise
