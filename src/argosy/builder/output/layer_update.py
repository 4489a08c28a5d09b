"""Pack only what changed in a layer since the one that it was made from; join it with what was packed before.

An image of ours as base, as in `argosy wrap update`: some packages are new, and the gigabyte of the others is in the
base's layer already, compressed.  What is compared is the content of every file, so the same base and the same tree
give the same bytes, whatever was cached.
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
"""Share of a tree's bytes; with more of them new, all is packed anew."""
MOST_DEAD = 0.25
"""Share of a layer's bytes that updates have replaced or removed; with more, all is packed anew, without them."""


class Changes(msgspec.Struct, frozen=True):
    """Paths that are new or have another content, and those that are gone or became something else, sorted."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class BaseLayer(msgspec.Struct, frozen=True):
    """The layer that was taken over: its squashfs, or that of its image's one partition, and what it holds."""

    packed: FileSlice
    entries: Entries


def describe_base_layer(base: Base, tree: Path, *, flat: bool) -> BaseLayer | None:
    """Describe the layer that was just taken over into `tree` from an image of ours.

    Parameters
    ----------
    flat
        Whether the new image will have one partition; what is packed is of use where the base is like that.

    Returns
    -------
    None where there is no such layer, or where it is more than the folders of ours.
    """
    image, lock = base.image, base.lock
    if lock is None or lock.system or flat != (image.layer_offset < 0):
        return None
    where = (image.base_offset, image.base_size) if flat else (image.layer_offset, image.layer_size)
    return BaseLayer(FileSlice(Path(image.path), *where), describe_noted(tree))


def plan_changes(before: Entries, now: Entries) -> Changes:
    """Tell what changed between two trees; the lock, which is written last, always did."""
    new = tuple(name for name, entry in now.items() if before.get(name) != entry)
    gone = (name for name, entry in before.items() if name not in now or _kind(now[name]) != _kind(entry))
    return Changes((*new, LOCK.lstrip("/")), tuple(gone))


def _kind(entry: bytes) -> int:
    return stat.S_IFMT(int(entry.split(b" ", 1)[0], 8))


def join_changes(session: Session, tree: Path, before: BaseLayer, now: Entries, *, time: int) -> tuple[Piece, ...]:
    """Pack what changed in a tree, beside it, and plan the squashfs of that and of what was packed before.

    Returns
    -------
    The parts to write, one behind the other; none where it is better to pack all anew.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        When mksquashfs is not there, fails, or the disk is full.
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
    """Give some entries of a tree, with the folders above them, to a tree of their own, by links where that can be."""
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
