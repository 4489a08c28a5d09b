"""The short names that sites give to bases: what cotainr calls a system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.sites.reading import read_site, site_names


class System(msgspec.Struct, frozen=True):
    """A base under the name that a site gave it.

    Attributes
    ----------
    base
        As `argosy build --base` takes it.
    site
        The site whose profile has it; empty where it is a base that the user named.
    """

    base: str
    site: str


def read_systems(folders: Sequence[Path]) -> Mapping[str, System]:
    """Read the systems of all sites; the first site that has a name keeps it.

    Raises
    ------
    SiteError
        When a profile on the search path is not valid.
    """
    found: dict[str, System] = {}
    for name in site_names(folders):
        for system, base in read_site(name, folders).images.cotainr_systems.items():
            found.setdefault(system, System(base, name))
    return found
