"""Choose and describe the base images of a site."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from argosy.sites.profile import Site
from argosy.sites.profile_parts import ENTER_PHRASES, SiteBase
from argosy.sites.read import read_site, site_names
from argosy.sites.software import Images


def _describe_base(base: SiteBase) -> str:
    """Describe the contents of a base and how to enter it: ``rocm 7.0, torch 2.10, python, mpi; entered by …``."""
    versions = [f"{key} {getattr(base, key)}" for key in ("rocm", "cuda", "oneapi", "python", "torch")]
    known = [text for text in versions if not text.endswith(" ")]
    others = [name for name in base.holds if not getattr(base, name, "")]
    contents = [*known, *others, *([f"its own conda in {base.conda}"] if base.conda else [])]
    return "; ".join(filter(None, (", ".join(contents), ENTER_PHRASES[base.enter])))


def bases_with(images: Images, wanted: Requirement) -> tuple[SiteBase, ...]:
    """Return the bases whose version of a package is known and meets a requirement."""
    key = canonicalize_name(wanted.name)
    return tuple(base for base in images.bases if key in {"torch", "python"} and _meets(getattr(base, key), wanted))


def _meets(version: str, wanted: Requirement) -> bool:
    """Return whether a version meets a requirement; for a vendor's build, also its release (2.3.0a0 -> 2.3.0)."""
    if not version:
        return False
    return any(wanted.specifier.contains(v, prereleases=True) for v in (version, Version(version).base_version))


def render_bases(bases: Sequence[SiteBase]) -> tuple[str, ...]:
    """Render a line for each base: its name and its contents."""
    return tuple(f"{base.name}: {text}" if (text := _describe_base(base)) else base.name for base in bases)


def render_images(site: Site) -> Iterator[str]:
    """Render the images in the profile of a site, for people."""
    images = site.images
    for base in images.bases:
        yield f"base      {base.name}"
        yield from (f"          {text}" for text in (_describe_base(base), base.why) if text)
    yield from (f"folder    {folder}" for folder in images.folders)
    if images.catalog:
        yield f"catalog   at the site, '{images.catalog}' {images.why}"
    yield from (f"cotainr   --system {system}: {base}" for system, base in images.cotainr_systems.items())
    if not (images.bases or images.folders or images.catalog or images.cotainr_systems):
        yield f"the profile of {site.name} lists no images"


class System(msgspec.Struct, frozen=True):
    """A base under the name that a site gives it."""

    base: str
    """As `argosy build --base` takes it."""
    site: str
    """The site whose profile contains it; empty for a base that the user named."""


def read_systems(folders: Sequence[Path]) -> Mapping[str, System]:
    """Read the systems of all sites; if two sites use a name, the first one counts.

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
