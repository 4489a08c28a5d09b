"""Render the tables of a squashfs: streams of metadata blocks, listings of folders with their index, and lists.

The structures are those of Linux, ``fs/squashfs/squashfs_fs.h``; `argosy.images.squashfs.tables` describes and reads
them. All blocks are written uncompressed: references between inodes and listings contain the positions of blocks, so
that the size of each block must be known before the first one is rendered.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from argosy.images.squashfs.tables import BLOCK, ENTRY, GROUP, LENGTH, PLACE, PLAIN, Tables

INDEX = struct.Struct("<3I")
"""An entry of a folder's index: byte of the listing, block of the listings, length of the name less one; then the name.

The kernel looks up a name, or continues a listing, from the last entry before it. Without an index it reads the listing
from its first byte each time.
"""
ENTRIES = 256
"""Maximum number of entries in a group."""
REACH = 1 << 15
"""Maximum difference between the inode numbers in a group and the number in its header."""


class NewEntry(NamedTuple):
    """An entry of a listing; ``place`` is the reference to its inode."""

    name: bytes
    kind: int
    number: int
    place: int


class MetadataStream:
    """A sequence of metadata blocks that continues that of a base.

    New data first fills the base's last block, because programs expect all blocks but the last to be full.
    """

    def __init__(self, tables: Tables, start: int, end: int) -> None:
        """Continue the stream between two bytes of the base."""
        last = tables.last_block(start, end)
        self.kept = tables.source.slice_at(start, last - start)
        self._data = bytearray(tables.block(last)[0] if last < end else b"")

    def add(self, data: bytes) -> tuple[int, int]:
        """Add bytes; return the block's position in the table, and the offset in the block."""
        blocks, offset = divmod(len(self._data), BLOCK)
        self._data += data
        return self.kept.length + blocks * (LENGTH.size + BLOCK), offset

    def rendered(self) -> bytes:
        """Return the blocks after the kept ones."""
        return b"".join(_render_blocks(bytes(self._data)))


def render_listing(entries: list[NewEntry]) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Render a folder's listing: groups of entries whose inodes are in one block and have similar numbers.

    Parameters
    ----------
    entries
        The entries, sorted by name.

    Returns
    -------
    listing
        The groups, in order.
    index
        About one group per 8 KiB: its position in the listing, and its first name.
    """
    groups, index = list[list[NewEntry]](), list[tuple[int, bytes]]()
    size = indexed = 0
    for entry in entries:
        is_far = size + ENTRY.size + len(entry.name) - indexed > BLOCK
        if is_far or not (groups and _fits(groups[-1], entry)):
            if is_far:
                indexed = size
                index.append((size, entry.name))
            groups.append([])
            size += GROUP.size
        groups[-1].append(entry)
        size += ENTRY.size + len(entry.name)
    return b"".join(part for group in groups for part in _render_group(group)), index


def _fits(group: list[NewEntry], entry: NewEntry) -> bool:
    """Return whether an entry fits into a group: the same block of inodes, and a similar number."""
    first = group[0]
    same_block = first.place >> 16 == entry.place >> 16
    return same_block and len(group) < ENTRIES and -REACH <= entry.number - first.number < REACH


def _render_group(group: list[NewEntry]) -> Iterator[bytes]:
    first = group[0]
    yield GROUP.pack(len(group) - 1, first.place >> 16, first.number)
    for entry in group:
        yield ENTRY.pack(entry.place & 0xFFFF, entry.number - first.number, entry.kind, len(entry.name) - 1)
        yield entry.name


def render_index(index: list[tuple[int, bytes]], block: int, offset: int) -> bytes:
    """Render the index of a folder. Its listing begins at a position in a sequence of uncompressed blocks."""
    entries = bytearray()
    for at, name in index:
        blocks = (offset + at) // BLOCK
        entries += INDEX.pack(at, block + blocks * (LENGTH.size + BLOCK), len(name) - 1) + name
    return bytes(entries)


def add_list(lists: bytearray, records: bytes, at: int) -> int:
    """Add a list of records and the positions of its blocks; return the byte where the positions begin.

    Parameters
    ----------
    lists
        The lists before this one.
    at
        Byte of the file system where `lists` begins.
    """
    paths = list[int]()
    for block in _render_blocks(records):
        paths.append(at + len(lists))
        lists += block
    here = at + len(lists)
    lists += b"".join(map(PLACE.pack, paths))
    return here


def _render_blocks(data: bytes) -> Iterator[bytes]:
    """Cut bytes into uncompressed metadata blocks."""
    for at in range(0, len(data), BLOCK):
        block = data[at : at + BLOCK]
        yield LENGTH.pack(len(block) | PLAIN) + block
