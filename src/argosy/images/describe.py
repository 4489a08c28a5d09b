"""Describe images: the tables of `argosy images ls` and `argosy images info`, and the search for packages."""

from __future__ import annotations

from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.records import replace
from argosy.core.render import DAY, HOUR, MINUTE, align_rows, render_size
from argosy.core.shell import safe_path
from argosy.images.catalog import CatalogImage
from argosy.images.open import OpenedImage, open_image
from argosy.recipes.lock import PYTHON_NAMES, Lock, LockedPackage


class ImagePart(msgspec.Struct, frozen=True):
    """A part of an image file: its id, kind, name, and size in bytes."""

    id: int
    what: str
    name: str
    size: int


class Package(msgspec.Struct, frozen=True):
    """A package in the layer."""

    name: str
    version: str


class ImageDescription(msgspec.Struct, frozen=True):
    """The facts that `argosy images info` prints."""

    path: str
    kind: str
    arch: str
    made_by_argosy: bool
    digest: str
    """Content digest of the layer; empty for an image that Argosy did not make."""
    base: str
    base_digest: str
    python: str
    parts: tuple[ImagePart, ...]
    packages: tuple[Package, ...]
    """All packages in the layer."""
    how_to_run: str


def describe_image(opened: OpenedImage) -> ImageDescription:
    """Describe an opened image."""
    image, lock = opened.image, opened.lock
    parts = tuple(ImagePart(p.id, p.kind, p.name, p.size) for p in opened.sif.parts) if opened.sif else ()
    return ImageDescription(
        path=image.path,
        kind=image.kind.value + ("" if not lock else ", delta" if image.layer_part else ", flat"),
        arch=image.arch,
        made_by_argosy=image.argosy,
        digest=image.digest,
        base=lock.base.reference if lock else "",
        base_digest=lock.base.digest if lock else "",
        python=lock.python if lock else "",
        parts=parts,
        packages=tuple(Package(p.name, p.version) for p in lock.packages) if lock else (),
        how_to_run=f"argosy run {safe_path(image.shown)} -- {'python' if lock and lock.python else 'COMMAND'}",
    )


def render_description(info: ImageDescription) -> str:
    """Render a description as text, one fact per line."""
    rows = [
        ("image", f"{info.path} ({info.kind}{', ' + info.arch if info.arch else ''})"),
        ("base", f"{info.base}  {info.base_digest}" if info.base else "unknown: not made by Argosy"),
        ("content", info.digest),
        ("python", info.python),
    ]
    rows += [(f"part {part.id}", f"{part.what}, {render_size(part.size)}  {part.name}".rstrip()) for part in info.parts]
    rows.append((f"packages ({len(info.packages)})", " ".join(f"{p.name}=={p.version}" for p in info.packages)))
    rows.append(("run it", info.how_to_run))
    return "\n".join(f"{label:<14} {text}" for label, text in rows if text)


class CatalogEntry(msgspec.Struct, frozen=True):
    """The facts that `argosy images ls` prints: name and date from the file, everything else from its lock."""

    name: str
    path: str
    bytes: int
    """Size of the file."""
    changed: float
    alias_of: str
    newest: bool
    digest: str = ""
    base: str = ""
    base_digest: str = ""
    python: str = ""
    packages: int = 0
    """Number of packages, 0 without a lock."""
    sources: tuple[str, ...] = ()
    """The files that the image was built from."""
    fault: str = ""
    """Why the file cannot be read, empty if it can."""
    found: tuple[str, ...] = ()
    """The packages that matched the search."""
    works: str = ""
    reason: str = ""
    """Whether it works at the site that was asked for: ``yes``, ``no`` or ``unknown``; and why."""


def describe_catalog_image(image: CatalogImage, wanted: tuple[Requirement, ...] = ()) -> CatalogEntry:
    """Describe an image by its own lock. An unreadable image is listed with the reason.

    Parameters
    ----------
    wanted
        Packages to search for.
    """
    entry = CatalogEntry(str(image.name), str(image.path), image.size, image.changed, image.alias_of, image.newest)
    if image.alias_of and not image.path.exists():
        return replace(entry, fault=f"alias of {image.alias_of}, which is gone")
    try:
        lock = open_image(image.path).lock
    except ArgosyError as error:
        return replace(entry, fault=error.what)
    if lock is None:
        return entry
    if wanted:
        entry = replace(entry, found=find_packages(lock, wanted))
    return replace(
        entry,
        digest=lock.content,
        base=lock.base.reference,
        base_digest=lock.base.digest,
        python=lock.python,
        packages=len(lock.packages),
        sources=tuple(source.path for source in lock.sources),
    )


def render_entries(entries: list[CatalogEntry], now: float) -> str:
    """Render the catalog as a text table; with the column ``works`` if the entries were checked against a site."""
    checked = any(entry.works for entry in entries)
    rows = [("name", "size", "base", "python", "packages", "age", *(("works",) if checked else ()), "")]
    rows += [
        (
            entry.name,
            render_size(entry.bytes),
            entry.base or "-",
            entry.python or "-",
            str(entry.packages or "-"),
            render_age(now - entry.changed),
            *((entry.works,) if checked else ()),
            entry.reason or _remark(entry),
        )
        for entry in entries
    ]
    return "\n".join(align_rows(rows))


def _remark(entry: CatalogEntry) -> str:
    if entry.fault or entry.found:
        return entry.fault or ", ".join(entry.found)
    return f"-> {_short(entry)}" if entry.alias_of else "newest" if entry.newest else ""


def _short(entry: CatalogEntry) -> str:
    """Render an alias's target: its file name if both are in one folder, otherwise the whole path."""
    target, folder = Path(entry.alias_of), Path(entry.path).resolve().parent
    return target.name if target.parent == folder == Path(entry.path).parent.resolve() else entry.alias_of


def render_age(seconds: float) -> str:
    """Render a duration, for example ``3 d``."""
    if seconds >= 2 * DAY:
        return f"{seconds / DAY:.0f} d"
    return f"{seconds / HOUR:.0f} h" if seconds >= HOUR else f"{max(0.0, seconds) / MINUTE:.0f} min"


def parse_requirements(texts: tuple[str, ...]) -> tuple[Requirement, ...]:
    """Parse the packages to search for, in pip's syntax: ``torch``, ``numpy>=2``.

    Raises
    ------
    UsageError
        If one is not a valid requirement.
    """
    try:
        return tuple(Requirement(text) for text in texts)
    except InvalidRequirement as error:
        raise UsageError(
            "invalid package in --has", evidence=str(error), hint="use pip's syntax, for example --has 'numpy>=2'"
        ) from error


def find_packages(lock: Lock, wanted: tuple[Requirement, ...]) -> tuple[str, ...]:
    """Return the package that matches each requirement, as ``torch 2.9.0``; nothing if one does not match."""
    found = [next((p for p in lock.packages if _meets(p, each)), None) for each in wanted]
    return tuple(f"{p.name} {p.version}" for p in found if p) if all(found) else ()


def _meets(package: LockedPackage, wanted: Requirement) -> bool:
    names = {canonicalize_name(package.name), canonicalize_name(PYTHON_NAMES.get(package.name, package.name))}
    if canonicalize_name(wanted.name) not in names:
        return False
    try:
        return wanted.specifier.contains(Version(package.version), prereleases=True)
    except InvalidVersion:
        return not wanted.specifier
