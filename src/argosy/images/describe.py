"""Tell what is in an image: base, layers, sizes, packages, how to run it; pure over what was read."""

from __future__ import annotations

import msgspec

from argosy.core.shell import safe_path
from argosy.images.identify import render_size
from argosy.images.open import Opened


class Part(msgspec.Struct, frozen=True):
    """One part of an image file: its number in the file, what it is, and its size in bytes."""

    id: int
    what: str
    name: str
    size: int


class Package(msgspec.Struct, frozen=True):
    """A package in the layer."""

    name: str
    version: str


class ImageDescription(msgspec.Struct, frozen=True):
    """What `argosy images info` tells.

    Attributes
    ----------
    digest
        Content digest of the layer; empty for an image that Argosy did not make.
    packages
        Each package in the layer.
    """

    path: str
    kind: str
    arch: str
    made_by_argosy: bool
    digest: str
    base: str
    base_digest: str
    python: str
    parts: tuple[Part, ...]
    packages: tuple[Package, ...]
    how_to_run: str


def describe_image(opened: Opened) -> ImageDescription:
    """Describe an opened image."""
    image, lock = opened.image, opened.lock
    parts = tuple(Part(p.id, _what(p), p.name, p.size) for p in opened.sif.parts) if opened.sif else ()
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
        how_to_run=f"argosy run {safe_path(image.path)} -- {'python' if lock and lock.python else 'COMMAND'}",
    )


def _what(part: object) -> str:
    return str(part).split("(", 1)[-1].rstrip(")").split(" '", 1)[0]


def render_description(info: ImageDescription) -> str:
    """Render a description for people, one fact a line."""
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
