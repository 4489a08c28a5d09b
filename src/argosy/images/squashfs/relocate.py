"""Relocate the inodes of a squashfs whose file contents are copied into another one.

An inode contains a position of its file's first block, a number of a fragment, indexes into the list of owners, and its
own number. All of these move by constant distances (Linux, ``fs/squashfs/squashfs_fs.h``, ``squashfs_reg_inode``).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import (
    EXTENDED,
    FILE,
    FIRST,
    FRAGMENT,
    HEAD,
    LARGE_FILE,
    NOTHING,
    Kind,
    Tables,
    block_sizes,
)

SIZE = struct.Struct("<2I")
"""A symbolic link after the head: links, size of the target. A device: links, its number."""
OWNER = struct.Struct("<I")
FILE_INODE = struct.Struct(HEAD.format + FILE.format.lstrip("<"))
"""A file with its head."""


class Move(msgspec.Struct, frozen=True):
    """Describe how a squashfs moves into another one.

    Attributes
    ----------
    data
        Bytes that the contents of files move.
    numbers, fragments
        Amounts that are added to the number of each inode and of each fragment.
    owners
        New index of each owner.
    time
        Time of all inodes, in seconds since 1970; None to keep theirs.
    """

    data: int
    numbers: int
    fragments: int
    owners: tuple[int, ...]
    time: int | None

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
    if kind == Kind.FILE:
        return _relocate_file(tables, place, by)
    own, mode, user, group, time, number = HEAD.unpack(tables.inode(place, HEAD.size))
    _check_kind(own, kind)
    body = tables.inode(place, HEAD.size + _plain_size(tables, own, place))[HEAD.size :]
    return HEAD.pack(own, mode, by.owners[user], by.owners[group], by.time_of(time), by.numbers + number) + body


def _relocate_file(tables: Tables, place: int, by: Move) -> bytes:
    raw = tables.inode(place, FILE_INODE.size)  # an extended inode is longer
    kind, mode, user, group, time, number, block, fragment, offset, size = FILE_INODE.unpack(raw)
    holes, links, xattrs = 0, 1, NOTHING
    if kind != Kind.FILE:
        _check_kind(kind, Kind.FILE)
        raw = tables.inode(place, HEAD.size + LARGE_FILE.size)
        block, size, holes, links, fragment, offset, xattrs = LARGE_FILE.unpack_from(raw, HEAD.size)
    sizes = block_sizes(tables, place, len(raw), size, fragment)
    block, fragment = block + by.data, _move_fragment(fragment, by)
    head = mode, by.owners[user], by.owners[group], by.time_of(time), by.numbers + number
    if kind == Kind.FILE and block <= NOTHING:
        return FILE_INODE.pack(kind, *head, block, fragment, offset, size) + sizes
    # Only extended inodes can refer to positions above 4 GiB.
    body = LARGE_FILE.pack(block, size, holes, links, fragment, offset, xattrs)
    return HEAD.pack(Kind.FILE + EXTENDED, *head) + body + sizes


def _check_kind(own: int, kind: int) -> None:
    """Refuse an inode whose kind is not that of its entry: the fields would have another meaning."""
    if own not in {kind, kind + EXTENDED}:
        raise ValueError(f"an inode of kind {own} in an entry of kind {kind}")


def _move_fragment(fragment: int, by: Move) -> int:
    return fragment if fragment == NOTHING else by.fragments + fragment


def _plain_size(tables: Tables, kind: int, place: int) -> int:
    """Return the size after the head of a link, a device, a pipe or a socket, in bytes."""
    plain = kind if kind <= EXTENDED else kind - EXTENDED
    size = OWNER.size if plain in {Kind.FIFO, Kind.SOCKET} else SIZE.size
    if plain == Kind.LINK:
        size += SIZE.unpack_from(tables.inode(place, HEAD.size + SIZE.size), HEAD.size)[1]
    return size + (4 if kind != plain else 0)
