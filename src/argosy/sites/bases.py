"""The bases of a site: told for people, and chosen by what they hold; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from argosy.sites.profile import Site
from argosy.sites.profile_parts import Base
from argosy.sites.read import read_site, site_names
from argosy.sites.software import Images

ENTER = {
    "exec": "",
    "run": "entered by its start script (run)",
    "with-conda": "entered by the lines in $WITH_CONDA, evaluated inside",
}


def _describe_base(base: Base) -> str:
    """Say what is in a base and how it is entered: ``rocm 7.0, torch 2.10, python, mpi; entered by …``."""
    versions = [f"{key} {getattr(base, key)}" for key in ("rocm", "cuda", "oneapi", "python", "torch")]
    known = [text for text in versions if not text.endswith(" ")]
    held = [what for what in base.holds if not getattr(base, what, "")]
    told = [*known, *held, *([f"a conda of its own in {base.conda}"] if base.conda else [])]
    return "; ".join(filter(None, (", ".join(told), ENTER[base.enter])))


def bases_with(images: Images, wanted: Requirement) -> tuple[Base, ...]:
    """Give the bases whose own version of a package meets a requirement; of a version that is not known none."""
    key = canonicalize_name(wanted.name)
    return tuple(base for base in images.bases if key in {"torch", "python"} and _meets(getattr(base, key), wanted))


def _meets(version: str, wanted: Requirement) -> bool:
    """Tell whether a version, or the release that a vendor's build of it stands for, meets a requirement."""
    if not version:
        return False
    return any(wanted.specifier.contains(v, prereleases=True) for v in (version, Version(version).base_version))


def render_bases(bases: Sequence[Base]) -> tuple[str, ...]:
    """Give a line for each base: its name, and what is in it."""
    return tuple(f"{base.name}: {told}" if (told := _describe_base(base)) else base.name for base in bases)


def render_images(site: Site) -> Iterator[str]:
    """Give what the profile of a site knows of images, for people."""
    images = site.images
    for base in images.bases:
        yield f"base      {base.name}"
        told = _describe_base(base)
        yield from (f"          {text}" for text in (told, base.why) if text)
    yield from (f"folder    {folder}" for folder in images.folders)
    if images.catalog:
        yield f"catalog   {images.catalog}: {images.why}"
    yield from (f"cotainr   --system {system}: {base}" for system, base in images.cotainr_systems.items())
    if not (images.bases or images.folders or images.catalog or images.cotainr_systems):
        yield f"the profile of {site.name} knows no images"


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
