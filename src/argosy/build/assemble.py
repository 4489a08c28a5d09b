"""Write the image file: the base's bytes as they are, one layer, and what is known about both."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

from argosy.build.base import Base
from argosy.build.packing import run_pack
from argosy.images.opening import LOCK_NAME, SBOM_NAME
from argosy.images.sif import DataType, Sif, SifPart
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
from argosy.process import Command, failed
from argosy.sbom import render_sbom
from argosy.session import Session
from argosy.trees import UNSQUASHFS_SOME_NOT_WRITTEN

GROUP = 1
COPIED = (DataType.LABELS, DataType.DEFINITION)
COPIED_NAMES = ("inspect-metadata.json",)
"""What a base's SIF says of itself is kept; its signatures are not, since they no longer hold."""


def write_delta(path: Path, base: Base, lock: Lock, layer: Path) -> int:
    """Write base and layer as two partitions of one SIF; give the layer's size in bytes."""
    size = layer.stat().st_size
    system = plan_system_part(
        FileSlice(Path(base.image.path), base.image.base_offset, base.image.base_size), arch=base.image.arch
    )
    overlay = plan_overlay_part(FileSlice(layer, 0, size), group=GROUP, arch=base.image.arch, name="argosy layer")
    _write(path, [system, overlay, *_papers(base, lock)], lock)
    return size


def write_flat(path: Path, base: Base, lock: Lock, tree: Path, session: Session) -> int:
    """Write base and layer as one partition: unpack the base, add the layer, pack all with zstd."""
    whole = tree.with_name("flat")
    words = ("unsquashfs", "-no-progress", "-quiet", "-o", str(base.image.base_offset), "-d", str(whole))
    command = Command((*words, base.image.path))
    reply = session.runner.run(command)
    if reply.code not in {0, UNSQUASHFS_SOME_NOT_WRITTEN}:
        raise failed(command, reply, doing="unpacking the base")
    _merge(tree, whole, root=whole)
    packed = tree.with_name("flat.sqfs")
    run_pack(session, whole, packed, time=lock.time, all_root=not session.host.can_mount)
    size = packed.stat().st_size
    system = plan_system_part(FileSlice(packed, 0, size), arch=base.image.arch)
    _write(path, [system, *_papers(base, lock)], lock)
    return size


def _merge(source: Path, target: Path, *, root: Path) -> None:
    """Move a tree's entries into another one; folders that stand there are merged, files replaced.

    A symbolic link to a folder on the way (``/opt -> /usr/opt``) is followed within `root`, as it would be inside.
    """
    for entry in source.iterdir():
        there = _followed(target / entry.name, root)
        if entry.is_dir() and not entry.is_symlink() and there.is_dir():
            _merge(entry, there, root=root)
        else:
            there.unlink(missing_ok=True)
            shutil.move(entry, there)


def _followed(path: Path, root: Path) -> Path:
    for _ in range(40):  # the kernel's own limit of links on a path, path_resolution(7)
        if not path.is_symlink():
            return path
        link = path.readlink()
        path = root / str(link).lstrip("/") if link.is_absolute() else path.parent / link
    return path


def _papers(base: Base, lock: Lock) -> list[NewPart]:
    copied = [plan_copied_part(base.opened.sif, part) for part in _kept(base.opened.sif)] if base.opened.sif else []
    return [
        plan_json_part(LOCK_NAME, render_lock(lock).encode(), group=GROUP),
        plan_sbom_part(SBOM_NAME, render_sbom(lock).encode(), group=GROUP),
        *copied,
    ]


def _kept(sif: Sif) -> list[SifPart]:
    return [part for part in sif.parts if part.datatype in COPIED or part.name in COPIED_NAMES]


def _write(path: Path, parts: list[NewPart], lock: Lock) -> None:
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{lock.base.digest} {lock.content} {len(parts)}")
    write_sif(path, parts, uuid=identity, time=lock.time, arch=lock.base.arch)
    verify_sif(path)
