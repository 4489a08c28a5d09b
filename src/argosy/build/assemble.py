"""Write the image file: the base's bytes as they are, one layer, and what is known about both."""

from __future__ import annotations

import uuid
from pathlib import Path

from argosy.build.base import Base
from argosy.build.content import Content, unpack_whole
from argosy.build.packing import run_pack
from argosy.images.opening import LOCK_NAME, SBOM_NAME
from argosy.images.sif import INSPECT_NAME, DataType, Sif, SifPart
from argosy.images.sif_read import verify_sif
from argosy.images.sif_write import (
    FileSlice,
    NewPart,
    plan_copied_part,
    plan_json_part,
    plan_overlay_part,
    plan_sbom_part,
    plan_system_part,
    write_sif,
)
from argosy.lock import Lock, render_lock
from argosy.sbom import render_sbom
from argosy.session import Session

GROUP = 1
COPIED = (DataType.LABELS, DataType.DEFINITION)
COPIED_NAMES = (INSPECT_NAME,)
"""What a base's SIF says of itself is kept; its signatures are not, since they no longer hold."""


def write_delta(path: Path, base: Base, lock: Lock, layer: Path) -> int:
    """Write base and layer as two partitions of one SIF; give the layer's size in bytes."""
    size = layer.stat().st_size
    system = plan_system_part(
        FileSlice(Path(base.image.path), base.image.base_offset, base.image.base_size), arch=base.image.arch
    )
    overlay = plan_overlay_part(FileSlice(layer, 0, size), group=GROUP, arch=base.image.arch, name="argosy layer")
    _write(path, [system, overlay, *_papers(base.opened.sif, lock)], lock, arch=lock.base.arch, time=lock.time)
    return size


def write_flat(path: Path, content: Content, papers: Sif | None, session: Session, work: Path) -> int:
    """Write base and layer as one partition: unpack both, pack all with zstd; give its size in bytes."""
    whole = unpack_whole(content, work, session)
    packed = work / "flat.sqfs"
    run_pack(session, whole, packed, time=content.time, all_root=not session.host.can_mount)
    size = packed.stat().st_size
    system = plan_system_part(FileSlice(packed, 0, size), arch=content.arch)
    _write(path, [system, *_papers(papers, content.lock)], content.lock, arch=content.arch, time=content.time)
    return size


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
