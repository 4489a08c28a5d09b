"""Write the image file: the base's bytes as they are, one layer, and what is known about both."""

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
"""What a base's SIF says of itself is kept; its signatures are not, since they no longer hold."""


def write_delta(path: Path, base: Base, lock: Lock, layer: tuple[Piece, ...]) -> int:
    """Write base and layer as two partitions of one SIF; give the layer's size in bytes."""
    below = FileSlice(Path(base.image.path), base.image.base_offset, base.image.base_size)
    system = plan_system_part(below, arch=base.image.arch)
    overlay = plan_overlay_part(layer, group=GROUP, arch=base.image.arch, name="argosy layer")
    _write(path, [system, overlay, *_papers(base.opened.sif, lock)], lock, arch=lock.base.arch, time=lock.time)
    return overlay.size


def write_flat(path: Path, content: Content, papers: Sif | None, session: Session, work: Path) -> int:
    """Write base and layer as one partition; give its size in bytes."""
    return write_whole(path, plan_whole(content, session, work), content, papers)


def write_whole(path: Path, whole: tuple[Piece, ...], content: Content, papers: Sif | None) -> int:
    """Write the squashfs of a content as the one partition of a SIF; give its size in bytes."""
    system = plan_system_part(whole, arch=content.arch)
    _write(path, [system, *_papers(papers, content.lock)], content.lock, arch=content.arch, time=content.time)
    return system.size


def plan_whole(content: Content, session: Session, work: Path) -> tuple[Piece, ...]:
    """Plan one squashfs of base and layer: joined by their tables, or unpacked and packed anew.

    That is for tables which cannot be joined, and for what would be dead in the file: an older layer, and what steps
    removed of the base, as they do to make an image small.
    """
    base = read_superblock(content.base.path, content.base.offset)
    if content.layer is None:
        return (content.base,)
    if can_join(base) and not content.older:
        layer = _layer_like(base, content, session, work)
        if not (content.lock and content.lock.system and takes_away(layer)):
            return join_squashfs(content.base, layer, time=content.time)
    return (pack_anew(content, session, work),)


def pack_anew(content: Content, session: Session, work: Path) -> FileSlice:
    """Unpack base and layer into one tree, and pack all of it: for bases whose tables cannot be joined."""
    packed = work / "flat.sqfs"
    whole = unpack_whole(content, work, session)
    run_pack(session, whole, packed, time=content.time, all_root=not session.host.can_mount)
    return whole_of(packed)


def _layer_like(base: Superblock, content: Content, session: Session, work: Path) -> FileSlice:
    """Give the layer's squashfs, packed as the base is."""
    layer = content.layer
    if isinstance(layer, FileSlice) and is_packed_alike(base, read_superblock(layer.path, layer.offset)):
        return layer
    packed = work / "layer.sqfs"
    tree = unpack_layer(content, work, session)
    if tree is None:
        raise AssertionError("a layer that there is has a tree")
    run_pack(session, tree, packed, time=content.time, like=base)
    return whole_of(packed)


def _papers(sif: Sif | None, lock: Lock | None) -> list[NewPart]:
    copied = [plan_copied_part(sif, part) for part in _kept(sif)] if sif else []
    if lock is None:
        return copied
    return [
        plan_json_part(LOCK_NAME, render_lock(lock).encode(), group=GROUP),
        plan_sbom_part(SBOM_NAME, render_sbom(lock).encode(), group=GROUP),
        *copied,
    ]


def _kept(sif: Sif) -> list[SifPart]:
    return [part for part in sif.parts if part.datatype in COPIED or part.name in COPIED_NAMES]


def _write(path: Path, parts: list[NewPart], lock: Lock | None, *, arch: str, time: int) -> None:
    known = f"{lock.base.digest} {lock.content}" if lock else f"{time} {sum(part.size for part in parts)}"
    write_sif(path, parts, uuid=uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {len(parts)}"), time=time, arch=arch)
    verify_sif(path)
