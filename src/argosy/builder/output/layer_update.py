"""Pack only the files that changed since the base's layer, and join them with its squashfs.

This saves time if an Argosy image is the base, for example in `argosy wrap update`: a few packages are new, and the
base's layer already contains all others, compressed.  The comparison uses the content of every file, so the same base
and the same tree give the same bytes, independent of caches.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import msgspec

from argosy.builder.bases.base import Base
from argosy.core.layout import LOCK
from argosy.core.session import Session
from argosy.core.store import link_or_copy
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.join import can_join, join_squashfs
from argosy.images.squashfs.pack import Entries, describe_noted, run_pack
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.squashfs.tables import dead_share

MOST_CHANGED = 0.5
"""If a larger share of the tree's bytes is new, the whole tree is packed."""
MOST_DEAD = 0.25
"""If updates have replaced or removed a larger share of the layer's bytes, the whole tree is packed without them."""


class Changes(msgspec.Struct, frozen=True):
    """List paths that are new or have changed, and paths that are gone or have another type, sorted."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class BaseLayer(msgspec.Struct, frozen=True):
    """Describe the base's layer: its squashfs, or that of a flat image, and its entries."""

    packed: FileSlice
    entries: Entries


def describe_base_layer(base: Base, tree: Path, *, flat: bool) -> BaseLayer | None:
    """Describe the base's layer, which was just unpacked into `tree`.

    Parameters
    ----------
    flat
        Whether the new image is flat; the squashfs can be reused only if the base is flat, too.

    Returns
    -------
    None if there is no such layer, or if it also contains system folders.
    """
    image, lock = base.image, base.lock
    if lock is None or lock.system or flat != (image.layer_offset < 0):
        return None
    where = (image.base_offset, image.base_size) if flat else (image.layer_offset, image.layer_size)
    return BaseLayer(FileSlice(Path(image.path), *where), describe_noted(tree))


def plan_changes(before: Entries, now: Entries) -> Changes:
    """Compare two trees; the lock, which is written last, always counts as changed."""
    new = tuple(name for name, entry in now.items() if before.get(name) != entry)
    gone = (name for name, entry in before.items() if name not in now or _kind(now[name]) != _kind(entry))
    return Changes((*new, LOCK.lstrip("/")), tuple(gone))


def _kind(entry: bytes) -> int:
    return stat.S_IFMT(int(entry.split(b" ", 1)[0], 8))


def join_changes(session: Session, tree: Path, before: BaseLayer, now: Entries, *, time: int) -> tuple[Piece, ...]:
    """Pack the changed files of a tree, and join them with the squashfs of the base's layer.

    Returns
    -------
    The pieces of the new squashfs, in order; empty if packing the whole tree is better.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If mksquashfs is missing or fails, or the disk is full.
    """
    changes = plan_changes(before.entries, now)
    if not _is_worth_it(before, changes, tree, now):
        return ()
    part = tree.with_name("changes")
    packed = part.with_suffix(".sqfs")
    _copy_entries(tree, changes.new, part)
    run_pack(session, part, packed, time=time, like=read_superblock(before.packed.path, before.packed.offset))
    return join_squashfs(before.packed, whole_of(packed), time=time, without=changes.gone)


def _is_worth_it(before: BaseLayer, changes: Changes, tree: Path, now: Entries) -> bool:
    block = read_superblock(before.packed.path, before.packed.offset)
    if not can_join(block):
        return False
    sizes = {name: os.lstat(tree / name).st_size for name in now}
    changed = sum(sizes.get(name, 0) for name in changes.new)
    joined_before = block.inodes > len(before.entries)
    return changed <= MOST_CHANGED * sum(sizes.values()) and not (
        joined_before and dead_share(before.packed) > MOST_DEAD
    )


def _copy_entries(tree: Path, names: tuple[str, ...], target: Path) -> None:
    """Copy some entries of a tree with their parent folders into a new tree, with hard links if possible."""
    made = {"."}
    target.mkdir()
    shutil.copymode(tree, target)
    for name in names:
        folder = stat.S_ISDIR(os.lstat(tree / name).st_mode)
        above = name if folder else name.rpartition("/")[0]
        _copy_folders(tree, above, target, made)
        if not folder:
            link_or_copy(tree / name, target / name)


def _copy_folders(tree: Path, name: str, target: Path, made: set[str]) -> None:
    parts = Path(name).parts
    for count in range(1, len(parts) + 1):
        folder = "/".join(parts[:count])
        if folder not in made:
            made.add(folder)
            (target / folder).mkdir()
            shutil.copymode(tree / folder, target / folder)
