"""Unpack the base or the layer of an image into a folder, also from a flat image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from argosy.core.session import Session
from argosy.images.flat import FlatLayer
from argosy.images.sif.write import FileSlice, write_pieces
from argosy.images.squashfs.pack import restore_whiteouts, run_unsquashfs
from argosy.images.squashfs.superblock import Source, SplitFile, superblock_of
from argosy.images.squashfs.tables import READABLE, InodeKind, open_tables


def find_layer(layer: FlatLayer) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Compare the folders of a flat image with those of its base.

    Returns
    -------
    added
        The sorted paths that the layer adds to its base, folders as a whole.
    removed
        The sorted paths that it removes.

    Raises
    ------
    ImageError
        If the image is damaged.
    """
    added, removed = list[bytes](), list[bytes]()
    with open_tables(layer.whole) as whole, open_tables(layer.base) as base:
        last, left = base.numbers.inodes, base.numbers.inodes
        waiting = [(b"", whole.numbers.root, base.numbers.root)]
        while waiting:
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: a folder contains itself")
            folder, place, known = waiting.pop()
            before = {entry.name: entry for entry in base.listing(base.folder(known))}
            for entry in whole.listing(whole.folder(place)):
                old, path = before.pop(entry.name, None), folder + entry.name
                if old is None or entry.number > last:
                    added.append(path)
                elif entry.kind == InodeKind.FOLDER and entry.place != old.place:
                    waiting.append((path + b"/", entry.place, old.place))
            removed += (folder + name for name in before)
    # As UTF-8 in any locale, like the list of paths that unsquashfs reads.
    added_paths, removed_paths = (
        tuple(path.decode(errors="surrogateescape") for path in sorted(paths)) for paths in (added, removed)
    )
    return added_paths, removed_paths


def find_known(source: Source, paths: Iterable[str]) -> frozenset[str]:
    """Return the paths that a squashfs contains; none if its compressor cannot be read.

    Raises
    ------
    ImageError
        If the squashfs is damaged.
    """
    if superblock_of(source).compressor not in READABLE:
        return frozenset()
    with open_tables(source) as tables:
        return frozenset(path for path in paths if not tables.find(path).rest)


def is_link(source: Source, name: str) -> bool:
    """Return whether an entry of the root folder of a squashfs is a symbolic link.

    Raises
    ------
    ImageError
        If the squashfs is damaged.
    """
    with open_tables(source) as tables:
        entry, rest = tables.find(name)
        return not rest and entry.kind == InodeKind.LINK


def unpack_source(session: Session, source: Source | FlatLayer, tree: Path, *options: str, doing: str) -> None:
    """Unpack a squashfs, the base inside a flat image, or the layer of a flat image with its whiteouts.

    Parameters
    ----------
    options
        Options of unsquashfs.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed, ImageError
        If unsquashfs fails or is missing, the disk is full, or the image is damaged.
    """
    if isinstance(source, FileSlice):
        run_unsquashfs(session, source.path, source.offset, tree, *options, doing=doing)
    elif isinstance(source, SplitFile):
        restored = tree.with_name(f"{tree.name}.sqfs")
        write_pieces(restored, source.slices)
        run_unsquashfs(session, restored, 0, tree, *options, doing=doing)
        restored.unlink()
    else:
        _unpack_flat_layer(session, source, tree, *options, doing=doing)


def _unpack_flat_layer(session: Session, layer: FlatLayer, tree: Path, *options: str, doing: str) -> None:
    added, removed = find_layer(layer)
    run_unsquashfs(session, layer.whole.path, layer.whole.offset, tree, *options, doing=doing, parts=added)
    restore_whiteouts(tree, removed)
