"""Continue the layer of a base that Argosy built: the new layer contains it, because an image has only one layer.

There are two ways. If the build only adds packages, their packed wheels are joined with the squashfs of the base's
layer, which is not unpacked: only the list of its entries is needed, for the content digest.

Otherwise, for example if a script may change files, the layer is unpacked. The files that changed are packed and joined
with the squashfs of the base's layer, which contains all others. The comparison uses the content of every file, so the
same base and the same tree give the same bytes, independent of caches.

Runtimes that start containers from folders get the unpacked layer from hard links if possible (`link_layer_tree`).

The cache remembers the entries of the layer in an image: what its content digest covers, which is path, mode and
content of every file. A file of the cache holds exactly the bytes whose SHA-256 is that digest. Its name identifies the
image file in its present state: a lock only claims a content, and another file with a copy of the lock has other
entries.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.builder.bases.base import Base
from argosy.core.cache import mark_used
from argosy.core.errors import ArgosyError
from argosy.core.layout import LOCK
from argosy.core.model import Attach, ContainerRequest, Image
from argosy.core.session import Session
from argosy.core.store import atomic_file, is_owned, link_or_copy, make_folder, remove_path
from argosy.images.flat import layer_source
from argosy.images.open import OpenedImage, layer_key, open_image
from argosy.images.part_digest import describe_part
from argosy.images.rootfs_cache import LayerTree, link_layer, link_unchanged
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.join import can_join, join_squashfs
from argosy.images.squashfs.pack import run_pack
from argosy.images.squashfs.superblock import SplitFile, read_superblock
from argosy.images.squashfs.tables import FIRST, unused_share
from argosy.images.tree_digests import Entries, describe_entries, describe_remembering, digest_entries, name_of_entry
from argosy.images.unpack import unpack_source
from argosy.recipes.lock import Lock
from argosy.runtimes.open_container import layer_tree_key, open_container

MOST_CHANGED = 0.5
"""If a larger share of the tree's bytes is new, the whole tree is packed."""
MOST_DEAD = 0.25
"""If updates have replaced or removed a larger share of the layer's bytes, the whole tree is packed without them."""

ENTRIES = "entries"
"""Folder of the cache."""


class Changes(msgspec.Struct, frozen=True):
    """List paths that are new or have changed, and paths that are gone or have another type, sorted."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class BaseLayer(msgspec.Struct, frozen=True):
    """The base's layer: its squashfs, or that of a flat image, and its entries."""

    packed: FileSlice
    entries: Entries
    base_bytes: int = 0
    """Bytes of the files of the base in that squashfs; 0 if they are apart, or unknown."""


def packed_layer(image: Image, lock: Lock | None, *, flat: bool) -> FileSlice | None:
    """Return the squashfs with the layer of an image that another layer can be joined with.

    Parameters
    ----------
    flat
        Whether the new image is flat; the squashfs can be reused only if `image` is flat, too.

    Returns
    -------
    None if there is no such layer, or if it also contains system folders.
    """
    if lock is None or lock.system or flat != (image.layer_offset < 0):
        return None
    where = (image.base_offset, image.base_size) if flat else (image.layer_offset, image.layer_size)
    return FileSlice(Path(image.path), *where)


def describe_base_layer(base: Base, tree: Path, packed: FileSlice | None) -> BaseLayer | None:
    """Describe the base's layer, which was just unpacked into `tree`; return None without its squashfs."""
    if packed is None:
        return None
    base_bytes = base.packing.data_end - FIRST if isinstance(base.source, SplitFile) else 0
    return BaseLayer(packed, describe_remembering(tree), base_bytes)


def read_base_layer(base: Base, packed: FileSlice, session: Session, work: Path) -> BaseLayer | None:
    """Describe the base's layer without its tree. The layer of an unknown file is unpacked once, to read its entries.

    Returns
    -------
    None if the layer is not the one that the lock describes.
    """
    content, cache = base.lock.content if base.lock else "", session.paths.cache
    entries = recall_entries(packed, content, cache)
    if entries is None:
        entries = _unpack_entries(base, session, work / "base-layer")
        if digest_entries(entries) != content:
            return None
        remember_entries(packed, entries, cache)
    return BaseLayer(packed, entries)


def remember_layer(output: Path, lock: Lock, entries: Entries, session: Session) -> None:
    """Remember the entries of the layer in a new image, unless the next layer cannot be joined with it."""
    image = open_image(output).image
    packed = packed_layer(image, lock, flat=image.layer_offset < 0)
    if packed and not lock.has_conda:
        remember_entries(packed, entries, session.paths.cache)


def _unpack_entries(base: Base, session: Session, tree: Path) -> Entries:
    """Return the entries of the base's layer that its content digest covers: all but the lock."""
    layer = layer_source(base.image)
    if layer is None:
        return {}
    unpack_source(session, layer, tree, "-no-xattrs", doing="reading the base's layer")
    entries = {name: entry for name, entry in describe_entries(tree).items() if name != LOCK.lstrip("/")}
    remove_path(tree)
    return entries


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
    """
    changes = plan_changes(before.entries, now)
    if not _is_worth_it(before, changes, tree, now):
        return ()
    part = tree.with_name("changes")
    packed = part.with_suffix(".sqfs")
    _copy_entries(tree, changes.new, part)
    run_pack(session, part, packed, time=time, like=read_superblock(before.packed.path, before.packed.offset))
    return join_squashfs(before.packed, (whole_of(packed),), time=time, without=changes.gone)


def _is_worth_it(before: BaseLayer, changes: Changes, tree: Path, now: Entries) -> bool:
    block = read_superblock(before.packed.path, before.packed.offset)
    if not can_join(block):
        return False
    sizes = {name: os.lstat(tree / name).st_size for name in now}
    changed = sum(sizes.get(name, 0) for name in changes.new)
    joined_before = block.inodes > len(before.entries)
    return changed <= MOST_CHANGED * sum(sizes.values()) and not (
        joined_before and unused_share(before.packed, base=before.base_bytes) > MOST_DEAD
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


def link_layer_tree(
    opened: OpenedImage, before: Path | None, request: ContainerRequest, tree_session: Session, session: Session
) -> None:
    """Make the tree of an image's layer from hard links if possible; otherwise the runtime unpacks the layer.

    The files are those of the tree that a build kept, or of the image before.
    """
    draft = open_container(request, opened.image.path, tree_session, dry=True)
    if opened.lock is None or not draft.runtime.traits.unpacks:
        return
    attach = draft.entry.attach
    key = layer_tree_key(opened, attach, tree_session)
    if not key:
        return
    link_layer(session, layer_key(opened.lock), tree_session.paths.cache, key)
    if before is None:
        return
    with suppress(ArgosyError):  # a missing or damaged image
        old, new = (_describe_tree(image, attach, tree_session, session) for image in (open_image(before), opened))
        if old and new:
            link_unchanged(tree_session, old, new)


def _describe_tree(opened: OpenedImage, attach: Attach, tree_session: Session, session: Session) -> LayerTree | None:
    """Describe the tree of an image's layer; return None if its entries are not known."""
    if opened.lock is None:
        return None
    packed = packed_layer(opened.image, opened.lock, flat=opened.image.layer_offset < 0)
    entries = recall_entries(packed, opened.lock.content, session.paths.cache) if packed else None
    return LayerTree(layer_tree_key(opened, attach, tree_session), packed, entries) if packed and entries else None


def remember_entries(packed: FileSlice, entries: Entries, cache: Path) -> None:
    """Remember the entries of a layer."""
    # The next build unpacks the layer if the cache cannot be written.
    with suppress(OSError, ArgosyError):
        file = _file_for(packed, cache)
        make_folder(file.parent)
        with atomic_file(file, force=True, flush=False) as beside:
            beside.write_bytes(b"".join(entries.values()))


def recall_entries(packed: FileSlice, content: str, cache: Path) -> Entries | None:
    """Return the remembered entries of a layer; None if they are missing, damaged or of another user."""
    with suppress(OSError):
        file = _file_for(packed, cache)
        data = file.read_bytes() if is_owned(file) else b""
        if f"sha256:{hashlib.sha256(data).hexdigest()}" == content:
            mark_used(file)
            return _parse_entries(data)
    return None


def _parse_entries(data: bytes) -> Entries:
    """Split the joined entries, each of which ends with the second zero byte."""
    rows = data.split(b"\0")
    pairs = zip(rows[:-1:2], rows[1::2], strict=True)
    return {name_of_entry(head): b"%b\0%b\0" % (head, content) for head, content in pairs}


def _file_for(packed: FileSlice, cache: Path) -> Path:
    """Return the file for a layer. Each user has their own, because the files of others are not trusted."""
    part = describe_part(packed.path, packed.offset, packed.length)
    return cache / ENTRIES / f"{part.identity}-{os.geteuid()}"
