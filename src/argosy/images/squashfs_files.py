"""Reads where a squashfs has the bytes of files: blocks of their own, and fragments that several share."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

from argosy.images.sif_write import FileSlice
from argosy.images.squashfs import SUPERBLOCK
from argosy.images.squashfs_tables import HEAD, NOTHING, Kind, Tables, open_tables

FILE = struct.Struct("<4I")
"""Of a file after the head: byte of its first block, fragment, offset there, size; then the size of each block."""
LARGE_FILE = struct.Struct("<3Q4I")
"""Byte of its first block, size, bytes in holes, links, fragment, offset there, extended attributes; then sizes."""
SIZE = struct.Struct("<I")
BLOCK_BYTES = 0xFF_FFFF
"""Mask for the bytes of a block in its size word; the bit above says that it is not compressed."""
FRAGMENT = struct.Struct("<Q2I")
FIRST = SUPERBLOCK.size


def dead_share(source: FileSlice) -> float:
    """Give the share of the bytes of files in a squashfs that no file holds: what joining replaced or removed.

    Raises
    ------
    ImageError
        It is damaged.
    """
    with open_tables(source) as tables:
        data = tables.numbers.inode_table - FIRST
        return 1 - _live_bytes(tables) / data if data else 0.0


def _live_bytes(tables: Tables) -> int:
    """Add up the blocks and fragments of all files that a folder holds; equal files have the same."""
    fragments, blocks = set[int](), dict[int, int]()
    for entry in tables.walk():
        if entry.kind == Kind.FILE:
            start, fragment, sizes = parts_of(tables, entry.place)
            fragments.add(fragment)
            blocks[start] = sum(size & BLOCK_BYTES for (size,) in SIZE.iter_unpack(sizes))
    listed = tables.records(tables.numbers.fragment_table, tables.numbers.fragments, FRAGMENT.size)
    parts: Iterator[tuple[int, int, int]] = FRAGMENT.iter_unpack(listed)
    held = sum(size & BLOCK_BYTES for number, (_, size, _) in enumerate(parts) if number in fragments)
    return held + sum(blocks.values())


def parts_of(tables: Tables, place: int) -> tuple[int, int, bytes]:
    """Give the byte of a file's first block, its fragment, and the list of its blocks' sizes."""
    kind, *_ = HEAD.unpack(tables.inode(place, HEAD.size))
    if kind == Kind.FILE:
        raw = tables.inode(place, HEAD.size + FILE.size)
        start, fragment, _, size = FILE.unpack_from(raw, HEAD.size)
    else:
        raw = tables.inode(place, HEAD.size + LARGE_FILE.size)
        start, size, _, _, fragment, _, _ = LARGE_FILE.unpack_from(raw, HEAD.size)
    return start, fragment, block_sizes(tables, place, len(raw), size, fragment)


def block_sizes(tables: Tables, place: int, at: int, size: int, fragment: int) -> bytes:
    """Give the list of a file's blocks, whose last part may be in a fragment; it begins `at` bytes after the inode."""
    whole, rest = divmod(size, tables.numbers.block_size)
    count = whole + (1 if rest and fragment == NOTHING else 0)
    return tables.inode(place, at + 4 * count)[at:]


def device_nodes(source: FileSlice) -> tuple[str, ...]:
    """Give the paths of all device nodes, marks of removed files included: only root can unpack them.

    Raises
    ------
    ImageError
        The squashfs is damaged.
    """
    found = list[bytes]()
    with open_tables(source) as tables:
        waiting, left = [(b"", tables.numbers.root)], tables.numbers.inodes
        while waiting:
            folder, place = waiting.pop()
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: one holds itself")
            for entry in tables.listing(tables.folder(place)):
                if entry.kind in {Kind.BLOCK_DEVICE, Kind.CHARACTER_DEVICE}:
                    found.append(folder + entry.name)
                elif entry.kind == Kind.FOLDER:
                    waiting.append((folder + entry.name + b"/", entry.place))
    return tuple(map(os.fsdecode, sorted(found)))
