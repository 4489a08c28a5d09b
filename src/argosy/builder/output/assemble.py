"""Choose the form of a SIF image, write it, and unpack the content of an image for other formats.

A SIF image has a base, one layer and metadata. Base and layer are one partition (flat), or two (delta).
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from argosy.builder.bases.base import Base
from argosy.core.layout import ROOT
from argosy.core.model import Image
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import remove_path
from argosy.images.flat import FlatLayer, layer_source, plan_base_part
from argosy.images.open import LOCK_NAME, SBOM_NAME
from argosy.images.rootfs import resolve_in_root
from argosy.images.sif.begin import BegunFile
from argosy.images.sif.format import INSPECT_NAME, DataType, Sif, SifPart
from argosy.images.sif.read import verify_sif
from argosy.images.sif.write import (
    FileSlice,
    NewPart,
    Piece,
    partition_offset,
    place_pieces,
    plan_copied_part,
    plan_json_part,
    plan_overlay_part,
    plan_sbom_part,
    plan_system_part,
    whole_of,
    write_sif,
)
from argosy.images.squashfs.join import can_join, has_same_packing, has_whiteouts, join_squashfs
from argosy.images.squashfs.pack import COMPRESSION, is_whiteout, run_pack
from argosy.images.squashfs.superblock import (
    SUPERBLOCK,
    Source,
    Superblock,
    contents_of,
    read_superblock,
    slices_of,
    superblock_of,
)
from argosy.images.unpack import unpack_source
from argosy.recipes.lock import Lock, render_lock

TIMES_SLOWER = "3 times"
"""CPU time of packing with gzip at level 1 to that with zstd at level 1: 3.1 for PyTorch's libraries, 128 KiB blocks.

Level 9, the default of mksquashfs, takes 23 times as long. If a flat image may cost at most twice the CPU time of a
delta image, the base must be compressed with zstd. A whole build of 19 packages (432 MB) whose wheels are in the cache
takes 1.2 s of CPU time in both forms over a base with Argosy's own packing, and over one with gzip 6.7 s instead of
1.3 s.
"""


class Partitions(msgspec.Struct, frozen=True):
    """The form of a SIF image, and why it was chosen."""

    flat: bool
    why: str

    def __str__(self) -> str:
        """Render the form for the report of a build."""
        form = "one partition (flat)" if self.flat else "base and layer as two partitions (delta)"
        return f"{form}: {self.why}"


FLAT = Partitions(flat=True, why="")


def choose_partitions(
    *, asked: bool | None, base: Image, packing: Superblock, built: bool, opt_is_link: bool = False
) -> Partitions:
    """Choose the form of an image over a base.

    Parameters
    ----------
    asked
        Whether the user asked for a flat image; None for the default.
    packing
        The superblock of the base.
    built
        Whether the base is an image that Argosy built.
    opt_is_link
        Whether ``/opt`` of the base is a link. In one partition, unsquashfs would not find the layer below it.
    """
    if asked is not None:
        return Partitions(asked, "as requested")
    if opt_is_link:
        return Partitions(flat=False, why="/opt of the base is a link")
    if built and base.layer_offset >= 0:
        return Partitions(flat=False, why="the base image has its layer in a partition of its own")
    if packing.compressor == COMPRESSION:
        return Partitions(flat=True, why=f"the base has {COMPRESSION} blocks, as the new packages")
    blocks = f"the base has {packing.compressor} blocks of {packing.block_size >> 10} KiB"
    if packing.compressor == "gzip":
        return Partitions(flat=False, why=f"{blocks}, and packing with gzip takes {TIMES_SLOWER} the CPU time")
    return Partitions(flat=False, why=f"{blocks}, so that one partition needs packing all of it again")


def keep_apart(chosen: Partitions, *, asked: bool | None, removes_files: bool) -> Partitions:
    """Return the form for a layer that is installed: one that removes files of the base stays apart.

    One partition without these files would have to be packed as a whole, so that they are not in it.
    """
    if asked is None and chosen.flat and removes_files:
        return replace(chosen, flat=False, why="steps removed files of the base")
    return chosen


class Content(msgspec.Struct, frozen=True):
    """A base and its layer."""

    name: str
    """Name of the image, for formats that have one."""
    base: Source
    """The squashfs of the root file system."""
    layer: FileSlice | FlatLayer | Path | None
    """The layer: its tree, its squashfs, or that of a flat image; None if the base holds everything."""
    lock: Lock | None
    arch: str
    """Go's name of the architecture."""
    time: int
    """Creation time of the output, in seconds since 1970."""
    inseparable: bool = False
    """Whether the base is a flat Argosy image that does not describe its own base: the new layer replaces its layer."""


class Whole(msgspec.Struct, frozen=True):
    """One squashfs of base and layer."""

    pieces: tuple[Piece, ...]
    base: Source | None
    """The base whose files it contains unchanged; None if everything was packed again."""


def content_over(base: Base, layer: Path, lock: Lock, *, name: str) -> Content:
    """Return the content of a new image: a base, and a layer's tree."""
    inseparable = base.lock is not None and layer_source(base.image) is None
    return Content(name, base.source, layer, lock, base.image.arch, lock.time, inseparable)


def unpack_base(content: Content, work: Path, session: Session) -> Path:
    """Unpack the base into the work folder."""
    tree = work / "base-tree"
    unpack_source(session, content.base, tree, doing="unpacking the base")
    return tree


def unpack_layer(content: Content, work: Path, session: Session) -> Path | None:
    """Return the tree of the layer, or None without a layer."""
    if content.layer is None or isinstance(content.layer, Path):
        return content.layer
    tree = work / "layer-tree"
    unpack_source(session, content.layer, tree, doing="unpacking the layer")
    return tree


def _unpack_whole(content: Content, work: Path, session: Session) -> Path:
    """Merge base and layer into one tree; the layer's own tree is consumed."""
    whole = unpack_base(content, work, session)
    layer = unpack_layer(content, work, session)
    if content.inseparable:
        remove_path(resolve_in_root(whole, ROOT))
    if layer is not None:
        merge_trees(layer, whole, root=whole)
    return whole


def merge_trees(source: Path, target: Path, *, root: Path) -> None:
    """Move a tree's entries into another tree; existing folders are merged, existing files are replaced.

    Symbolic links to folders (``/opt -> /usr/opt``) are resolved within `root`, as in the container.
    """
    for entry in source.iterdir():
        if is_whiteout(entry):
            remove_path(target / entry.name)
            continue
        existing = follow_inside(target / entry.name, root)
        if entry.is_dir() and not entry.is_symlink() and existing.is_dir():
            merge_trees(entry, existing, root=root)
        else:
            existing.unlink(missing_ok=True)
            existing.parent.mkdir(parents=True, exist_ok=True)  # the base's link may lead to a missing folder
            shutil.move(entry, existing)


def follow_inside(path: Path, root: Path) -> Path:
    """Follow a symbolic link as a program inside `root` would; links never lead out of `root`."""
    return resolve_in_root(root, str(path.relative_to(root))) if path.is_symlink() else path


COPIED = (DataType.LABELS, DataType.DEFINITION)
COPIED_NAMES = (INSPECT_NAME,)
"""Metadata of the base's SIF that is copied.  Signatures are not copied, because they are no longer valid."""


def plan_known_copies(base: Base, joined: Iterable[Source], *, flat: bool) -> tuple[tuple[int, FileSlice], ...]:
    """Plan the copies of bytes whose positions in a new image are known before its tables are joined.

    Parameters
    ----------
    joined
        The squashfs that are joined, the lowest first. Those that are not known yet are missing.
    flat
        Whether the joined squashfs is the only partition; otherwise, it follows that of the base.
    """
    system, contents = slices_of(base.source), map(contents_of, joined)
    if flat:
        start = partition_offset((plan_base_part(base.source),))
        return tuple(place_pieces(start + SUPERBLOCK.size, contents))
    start = partition_offset((plan_system_part(system, arch=base.image.arch),))
    return (*place_pieces(partition_offset(()), system), *place_pieces(start + SUPERBLOCK.size, contents))


def write_delta(
    path: Path,
    base: Base,
    lock: Lock,
    layer: tuple[Piece, ...],
    metadata: Sequence[NewPart],
    begun: BegunFile | None = None,
) -> int:
    """Write base and layer as two partitions of one SIF, and return the layer's size in bytes."""
    system = plan_system_part(slices_of(base.source), arch=base.image.arch)
    overlay = plan_overlay_part(layer, arch=base.image.arch, name="argosy layer")
    parts = [system, overlay, *metadata]
    _write(path, parts, lock, arch=lock.base.arch, time=lock.time, begun=begun)
    return overlay.size


def write_whole(
    path: Path, whole: Whole, content: Content, metadata: Sequence[NewPart], begun: BegunFile | None = None
) -> int:
    """Write a squashfs as the only partition of a SIF, and return its size in bytes."""
    system = plan_system_part(whole.pieces, arch=content.arch)
    # First, so that it is in the bytes that `images send` reads of each image on the other machine.
    described = [plan_base_part(whole.base)] if whole.base and content.lock else []
    parts = [*described, system, *metadata]
    _write(path, parts, content.lock, arch=content.arch, time=content.time, begun=begun)
    return system.size


def make_whole(content: Content, session: Session, work: Path) -> Whole:
    """Make one squashfs of base and layer: join their tables, or unpack and pack everything.

    Packing is necessary if the tables cannot be joined, or if much of the file would be unused: an older layer, or
    files that steps removed from the base to make the image small.
    """
    if isinstance(content.layer, FlatLayer):
        return Whole((content.layer.whole,), content.base)
    if content.layer is None:
        return Whole(slices_of(content.base), None)
    base = superblock_of(content.base)
    if can_join(base) and not content.inseparable:
        layer = _layer_like(base, content, session, work)
        if not (content.lock and content.lock.system and has_whiteouts(layer)):
            return Whole(join_squashfs(content.base, (layer,), time=content.time), content.base)
    return Whole((pack_whole(content, session, work),), None)


def pack_whole(content: Content, session: Session, work: Path) -> FileSlice:
    """Unpack base and layer into one tree, and pack all of it."""
    packed = work / "flat.sqfs"
    whole = _unpack_whole(content, work, session)
    run_pack(session, whole, packed, time=content.time, all_root=not session.host.can_mount)
    return whole_of(packed)


def _layer_like(base: Superblock, content: Content, session: Session, work: Path) -> FileSlice:
    """Return the layer's squashfs, packed with the same options as the base."""
    layer = content.layer
    if isinstance(layer, FileSlice) and has_same_packing(base, read_superblock(layer.path, layer.offset)):
        return layer
    packed = work / "layer.sqfs"
    tree = unpack_layer(content, work, session)
    if tree is None:
        raise AssertionError("the content has a layer, but no tree")
    run_pack(session, tree, packed, time=content.time, like=base)
    return whole_of(packed)


def plan_metadata(sif: Sif | None, lock: Lock | None) -> list[NewPart]:
    """Plan the parts that describe an image: its lock, its bill of materials, and what is copied from another image.

    Parameters
    ----------
    sif
        The image whose labels and definition file are copied, or None.
    """
    copied = [plan_copied_part(sif, part) for part in _copied_parts(sif)] if sif else []
    if lock is None:
        return copied
    from argosy.recipes.sbom import render_sbom  # noqa: PLC0415 - loads cyclonedx-python-lib

    return [
        plan_json_part(LOCK_NAME, render_lock(lock).encode()),
        plan_sbom_part(SBOM_NAME, render_sbom(lock).encode()),
        *copied,
    ]


def _copied_parts(sif: Sif) -> list[SifPart]:
    return [part for part in sif.parts if part.datatype in COPIED or part.name in COPIED_NAMES]


def _write(
    path: Path, parts: list[NewPart], lock: Lock | None, *, arch: str, time: int, begun: BegunFile | None
) -> None:
    known = f"{lock.base.digest} {lock.content}" if lock else f"{time} {sum(part.size for part in parts)}"
    identity = uuid.uuid5(uuid.NAMESPACE_URL, f"{known} {len(parts)}")
    write_sif(path, parts, uuid=identity, time=time, arch=arch, begun=begun)
    verify_sif(path)
