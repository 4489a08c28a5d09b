"""Render the tables of a squashfs, and relocate the inodes whose file contents are copied into another one.

The structures are those of Linux, ``fs/squashfs/squashfs_fs.h``; `argosy.images.squashfs.tables` describes and reads
them. All blocks are written uncompressed: references between inodes and listings contain the positions of blocks, so
that the size of each block must be known before the first one is rendered. An inode contains a position of its file's
first block, a number of a fragment, indexes into the list of owners, and its own number; all of these move by constant
distances.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import (
    BLOCK,
    ENTRY,
    EXTENDED,
    FILE,
    FIRST,
    FRAGMENT,
    GROUP,
    HEAD,
    LARGE_FILE,
    LENGTH,
    NOTHING,
    PLACE,
    PLAIN,
    InodeKind,
    Tables,
    block_sizes,
)

INDEX = struct.Struct("<3I")
"""An entry of a folder's index: byte of the listing, block of the listings, length of the name less one; then the name.

The kernel looks up a name, or continues a listing, from the last entry before it. Without an index it reads the listing
from its first byte each time.
"""
ENTRIES = 256
"""Maximum number of entries in a group."""
REACH = 1 << 15
"""Maximum difference between the inode numbers in a group and the number in its header."""

SIZE = struct.Struct("<2I")
"""A symbolic link after the head: links, size of the target. A device: links, its number."""
OWNER = struct.Struct("<I")
FILE_INODE = struct.Struct(HEAD.format + FILE.format.lstrip("<"))
"""A file with its head."""


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


class Move(msgspec.Struct, frozen=True):
    """Describe how a squashfs moves into another one."""

    data: int
    """Bytes that the contents of files move."""
    numbers: int
    fragments: int
    """Amounts that are added to the number of each inode and of each fragment."""
    owners: tuple[int, ...]
    """New index of each owner."""
    time: int | None
    """Time of all inodes, in seconds since 1970; None to keep theirs."""

    def time_of(self, own: int) -> int:
        """Return the new time of an inode with a time of its own."""
        return own if self.time is None else self.time


def data_of(tables: Tables) -> FileSlice:
    """Return the range with the contents of all files."""
    return tables.source.slice_at(FIRST, tables.numbers.inode_table - FIRST)


def owners_of(tables: Tables) -> tuple[int, ...]:
    """Return the numeric ids of users and groups."""
    numbers = tables.numbers
    return tuple(owner for (owner,) in OWNER.iter_unpack(tables.records(numbers.owner_table, numbers.owners, 4)))


def fragments_of(tables: Tables, moved: int) -> bytes:
    """Return the list of fragments, whose positions move by some bytes."""
    numbers = tables.numbers
    listed = tables.records(numbers.fragment_table, numbers.fragments, FRAGMENT.size)
    entries: Iterator[tuple[int, int, int]] = FRAGMENT.iter_unpack(listed)
    return b"".join(FRAGMENT.pack(start + moved, *rest) for start, *rest in entries)


def link_target(tables: Tables, place: int) -> bytes:
    """Return the target of a symbolic link."""
    _, size = SIZE.unpack_from(tables.inode(place, HEAD.size + SIZE.size), HEAD.size)
    return tables.inode(place, HEAD.size + SIZE.size + size)[HEAD.size + SIZE.size :]


def is_whiteout(tables: Tables, device: int) -> bool:
    """Return whether a character device has the number 0:0."""
    raw = tables.inode(device, HEAD.size + SIZE.size)
    return SIZE.unpack_from(raw, HEAD.size)[1:] == (0,)


def relocate_inode(tables: Tables, place: int, kind: int, by: Move) -> bytes:
    """Return an inode, except a folder's, as it is after the move.

    Parameters
    ----------
    kind
        The kind that the entry in the folder has.
    """
    if kind == InodeKind.FILE:
        return _relocate_file(tables, place, by)
    own, mode, user, group, time, number = HEAD.unpack(tables.inode(place, HEAD.size))
    _refuse_other_kind(own, kind)
    body = tables.inode(place, HEAD.size + _plain_size(tables, own, place))[HEAD.size :]
    return HEAD.pack(own, mode, by.owners[user], by.owners[group], by.time_of(time), by.numbers + number) + body


def _relocate_file(tables: Tables, place: int, by: Move) -> bytes:
    raw = tables.inode(place, FILE_INODE.size)  # an extended inode is longer
    kind, mode, user, group, time, number, block, fragment, offset, size = FILE_INODE.unpack(raw)
    holes, links, xattrs = 0, 1, NOTHING
    if kind != InodeKind.FILE:
        _refuse_other_kind(kind, InodeKind.FILE)
        raw = tables.inode(place, HEAD.size + LARGE_FILE.size)
        block, size, holes, links, fragment, offset, xattrs = LARGE_FILE.unpack_from(raw, HEAD.size)
    sizes = block_sizes(tables, place, len(raw), size, fragment)
    block += by.data
    fragment = fragment if fragment == NOTHING else by.fragments + fragment
    head = mode, by.owners[user], by.owners[group], by.time_of(time), by.numbers + number
    if kind == InodeKind.FILE and block <= NOTHING:
        return FILE_INODE.pack(kind, *head, block, fragment, offset, size) + sizes
    # Only extended inodes can refer to positions above 4 GiB.
    body = LARGE_FILE.pack(block, size, holes, links, fragment, offset, xattrs)
    return HEAD.pack(InodeKind.FILE + EXTENDED, *head) + body + sizes


def _refuse_other_kind(own: int, kind: int) -> None:
    """Refuse an inode whose kind is not that of its entry: the fields would have another meaning."""
    if own not in {kind, kind + EXTENDED}:
        raise ValueError(f"an inode of kind {own} in an entry of kind {kind}")


def _plain_size(tables: Tables, kind: int, place: int) -> int:
    """Return the size after the head of a link, a device, a pipe or a socket, in bytes."""
    plain = kind if kind <= EXTENDED else kind - EXTENDED
    size = OWNER.size if plain in {InodeKind.FIFO, InodeKind.SOCKET} else SIZE.size
    if plain == InodeKind.LINK:
        size += SIZE.unpack_from(tables.inode(place, HEAD.size + SIZE.size), HEAD.size)[1]
    return size + (4 if kind != plain else 0)
