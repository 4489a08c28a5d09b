"""Write a SIF image: the unchanged base, one layer, and metadata."""

from __future__ import annotations

import uuid
from pathlib import Path

from argosy.builder.bases.base import Base
from argosy.builder.output.content import Content, unpack_layer, unpack_whole
from argosy.core.session import Session
from argosy.images.open import LOCK_NAME, SBOM_NAME
from argosy.images.sif.format import INSPECT_NAME, DataType, Sif, SifPart
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import (
    FileSlice,
    NewPart,
    Piece,
    plan_copied_part,
    plan_json_part,
    plan_overlay_part,
    plan_sbom_part,
    plan_system_part,
    whole_of,
    write_sif,
)
from argosy.images.squashfs.join import can_join, is_packed_alike, join_squashfs, takes_away
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.superblock import Superblock, read_superblock
from argosy.recipes.lock import Lock, render_lock
from argosy.recipes.sbom import render_sbom

GROUP = 1
COPIED = (DataType.LABELS, DataType.DEFINITION)
COPIED_NAMES = (INSPECT_NAME,)
"""Metadata of the base's SIF that is copied.  Signatures are not copied, because they are no longer valid."""


def write_delta(path: Path, base: Base, lock: Lock, layer: tuple[Piece, ...]) -> int:
    """Write base and layer as two partitions of one SIF, and return the layer's size in bytes."""
    below = FileSlice(Path(base.image.path), base.image.base_offset, base.image.base_size)
    system = plan_system_part(below, arch=base.image.arch)
    overlay = plan_overlay_part(layer, group=GROUP, arch=base.image.arch, name="argosy layer")
    _write(path, [system, overlay, *_metadata_parts(base.opened.sif, lock)], lock, arch=lock.base.arch, time=lock.time)
    return overlay.size


def write_flat(path: Path, content: Content, metadata: Sif | None, session: Session, work: Path) -> int:
    """Write base and layer as one partition, and return its size in bytes."""
    return write_whole(path, plan_whole(content, session, work), content, metadata)


def write_whole(path: Path, whole: tuple[Piece, ...], content: Content, metadata: Sif | None) -> int:
    """Write a squashfs as the only partition of a SIF, and return its size in bytes."""
    system = plan_system_part(whole, arch=content.arch)
    _write(path, [system, *_metadata_parts(metadata, content.lock)], content.lock, arch=content.arch, time=content.time)
    return system.size


def plan_whole(content: Content, session: Session, work: Path) -> tuple[Piece, ...]:
    """Plan one squashfs of base and layer: join their tables, or unpack and pack everything.

    Packing is necessary if the tables cannot be joined, or if much of the file would be unused: an older layer, or
    files that steps removed from the base to make the image small.
    """
    base = read_superblock(content.base.path, content.base.offset)
    if content.layer is None:
        return (content.base,)
    if can_join(base) and not content.older:
        layer = _layer_like(base, content, session, work)
        if not (content.lock and content.lock.system and takes_away(layer)):
            return join_squashfs(content.base, layer, time=content.time)
    return (pack_whole(content, session, work),)


def pack_whole(content: Content, session: Session, work: Path) -> FileSlice:
    """Unpack base and layer into one tree, and pack all of it."""
    packed = work / "flat.sqfs"
    whole = unpack_whole(content, work, session)
    run_pack(session, whole, packed, time=content.time, all_root=not session.host.can_mount)
    return whole_of(packed)


def _layer_like(base: Superblock, content: Content, session: Session, work: Path) -> FileSlice:
    """Return the layer's squashfs, packed with the same options as the base."""
    layer = content.layer
    if isinstance(layer, FileSlice) and is_packed_alike(base, read_superblock(layer.path, layer.offset)):
        return layer
    packed = work / "layer.sqfs"
    tree = unpack_layer(content, work, session)
    if tree is None:
        raise AssertionError("the content has a layer, but no tree")
    run_pack(session, tree, packed, time=content.time, like=base)
    return whole_of(packed)


def _metadata_parts(sif: Sif | None, lock: Lock | None) -> list[NewPart]:
    copied = [plan_copied_part(sif, part) for part in _copied_parts(sif)] if sif else []
    if lock is None:
        return copied
    return [
        plan_json_part(LOCK_NAME, render_lock(lock).encode(), group=GROUP),
        plan_sbom_part(SBOM_NAME, render_sbom(lock).encode(), group=GROUP),
        *copied,
    ]


def _copied_parts(sif: Sif) -> list[SifPart]:
    return [part for part in sif.parts if part.datatype in COPIED or part.name in COPIED_NAMES]


def _write(path: Path, parts: list[NewPart], lock: Lock | None, *, arch: str, time: int) -> None:
    known = f"{lock.base.digest} {lock.content}" if lock else f"{time} {sum(part.size for part in parts)}"
    write_sif(path, parts, uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {len(parts)}"), time=time, arch=arch)
    verify_sif(path)
