"""Read the tables of a squashfs: its inodes and the listings of its folders, but not the content of files.

Layout of version 4.0, little endian (Linux, ``fs/squashfs/squashfs_fs.h``)::

    superblock | bytes of files | inodes | listings | fragments | NFS | owners | xattrs

Each table is a sequence of *metadata blocks*. A block begins with its length in two bytes; the highest bit is set if
the block is not compressed. All blocks except the last unpack to 8,192 bytes. Inodes and listings are streams, cut
into such blocks: a reference into a stream consists of a block's position in the table, and an offset in the unpacked
block. The other tables are lists of records, followed by the positions of their blocks.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

from argosy.core.errors import ImageError
from argosy.images.squashfs.superblock import NO_TABLE, SUPERBLOCK, Source, render_compressor, superblock_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK = 8192
"""Size of an unpacked metadata block, in bytes."""
PLAIN = 0x8000
"""Bit in the length of a metadata block that is not compressed."""
NOTHING = 0xFFFF_FFFF
"""Number that means: no fragment, or no extended attributes."""
LARGEST_TABLE = 256 << 20
"""In bytes: enough for millions of files. Larger tables are not read into memory."""

LENGTH = struct.Struct("<H")
PLACE = struct.Struct("<Q")
HEAD = struct.Struct("<4H2I")
"""Head of all inodes: kind, mode, indexes of user and group, time, number."""
FOLDER = struct.Struct("<2I2HI")
"""A folder after the head: block of the listing, links, size, offset, number of the parent."""
LARGE_FOLDER = struct.Struct("<4I2HI")
"""An extended folder after the head.

Links, size, block of the listing, number of the parent, entries of an index, offset, extended attributes.
"""
GROUP = struct.Struct("<3I")
"""Header of a group of entries: their count less one, the block of their inodes, the base of their numbers."""
ENTRY = struct.Struct("<HhHH")
"""An entry: offset of the inode, difference to the base number, kind, length of the name less one. The name follows."""


class InodeKind(IntEnum):
    """The kind of an inode.

    Inodes with more fields (extended attributes, hard links, …) have a number that is higher by 7.
    """

    FOLDER = 1
    FILE = 2
    LINK = 3
    BLOCK_DEVICE = 4
    CHARACTER_DEVICE = 5
    FIFO = 6
    SOCKET = 7


EXTENDED = 7


class Numbers(NamedTuple):
    """The fields of the superblock. Those that end with ``table`` are offsets in bytes."""

    magic: bytes
    inodes: int
    time: int
    block_size: int
    fragments: int
    compressor: int
    block_log: int
    flags: int
    owners: int
    major: int
    minor: int
    root: int
    used: int
    owner_table: int
    xattr_table: int
    inode_table: int
    listing_table: int
    fragment_table: int
    export_table: int


class FolderInode(NamedTuple):
    """A folder's inode: ``head`` is mode, user, group and time; ``size`` is the size of the listing plus 3."""

    head: tuple[int, int, int, int]
    number: int
    parent: int
    xattrs: int
    block: int
    offset: int
    size: int


class DirectoryEntry(NamedTuple):
    """An entry of a folder's listing; ``place`` is a reference to the inode, as returned by `place_of`."""

    name: bytes
    kind: int
    number: int
    place: int


class FoundPath(NamedTuple):
    """The last entry on a path, and the names that remain: missing, or behind an entry that is not a folder."""

    entry: DirectoryEntry
    rest: tuple[bytes, ...]

    @property
    def is_missing(self) -> bool:
        """Whether the path certainly does not exist; a link on the way may lead to it."""
        return bool(self.rest) and self.entry.kind == InodeKind.FOLDER


def place_of(block: int, offset: int) -> int:
    """Return a reference to an inode: its block's position in the table, and the offset in the block."""
    return block << 16 | offset


@contextmanager
def open_tables(source: Source) -> Iterator[Tables]:
    """Open a squashfs.

    Raises
    ------
    ImageError
        If it is not a squashfs, or contains impossible values. Also raised while its tables are read.
    """
    superblock_of(source)  # checks it
    descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Tables(source, descriptor)
    except (struct.error, ValueError, IndexError, OverflowError, zlib.error) as error:
        raise _fault(source, str(error), "tables that can be read") from error
    finally:
        os.close(descriptor)


class Tables:
    """The tables of an open squashfs. Each block is unpacked once."""

    def __init__(self, source: Source, descriptor: int) -> None:
        """Read the superblock, which `open_tables` has checked."""
        self.source = source
        self._descriptor = descriptor
        self.numbers = Numbers(*SUPERBLOCK.unpack(self.read(0, SUPERBLOCK.size)))
        self.unpack = _unpacker(render_compressor(self.numbers.compressor))
        self._blocks: dict[int, tuple[bytes, int]] = {}
        self._entries: dict[int, dict[bytes, DirectoryEntry]] = {}

    def read(self, at: int, size: int) -> bytes:
        """Read bytes of the file system.

        Raises
        ------
        ImageError
            If it is shorter.
        """
        if not 0 <= size <= LARGEST_TABLE or at + size > self.source.length:
            raise _fault(self.source, f"a table of {size} bytes at byte {at}", f"within {self.source.length} bytes")
        data = os.pread(self._descriptor, size, self.source.slice_at(at, size).offset)
        if len(data) < size:
            raise _fault(self.source, f"{len(data)} bytes at byte {at}", f"{size}")
        return data

    def block(self, at: int) -> tuple[bytes, int]:
        """Return the unpacked metadata block at byte `at`, and the position of the next block."""
        block = self._blocks.get(at)
        if block is None:
            (length,) = LENGTH.unpack(self.read(at, LENGTH.size))
            data = self.read(at + LENGTH.size, length & ~PLAIN)
            unpacked = data if length & PLAIN else self.unpack(data, BLOCK + 1)
            if len(unpacked) > BLOCK:
                raise _fault(self.source, f"more than {BLOCK} bytes in the block at byte {at}", f"at most {BLOCK}")
            block = self._blocks[at] = unpacked, at + LENGTH.size + len(data)
        return block

    def stream(self, table: int, block: int, offset: int, size: int) -> bytes:
        """Return `size` bytes from a position in a stream."""
        data, after = self.block(table + block)
        data = data[offset : offset + size]
        while len(data) < size:
            more, after = self.block(after)
            if not more:
                raise _fault(self.source, f"an empty block before byte {after}", f"{size - len(data)} bytes more")
            data += more[: size - len(data)]
        return data

    def inode(self, place: int, size: int) -> bytes:
        """Return the first `size` bytes of an inode."""
        return self.stream(self.numbers.inode_table, place >> 16, place & 0xFFFF, size)

    def folder(self, place: int) -> FolderInode:
        """Return the folder with the inode at `place`."""
        kind, *head, number = HEAD.unpack(self.inode(place, HEAD.size))
        mode, user, group, time = head
        about = (mode, user, group, time), number
        if kind == InodeKind.FOLDER:
            body = self.inode(place, HEAD.size + FOLDER.size)[HEAD.size :]
            block, _, size, offset, parent = FOLDER.unpack(body)
            return FolderInode(*about, parent, NOTHING, block, offset, size)
        if kind != InodeKind.FOLDER + EXTENDED:
            raise _fault(self.source, f"an inode of kind {kind}", "a folder's")
        body = self.inode(place, HEAD.size + LARGE_FOLDER.size)[HEAD.size :]
        _, size, block, parent, _, offset, xattrs = LARGE_FOLDER.unpack(body)
        return FolderInode(*about, parent, xattrs, block, offset, size)

    def listing(self, folder: FolderInode) -> Iterator[DirectoryEntry]:
        """Yield the entries of a folder, sorted by the bytes of their names."""
        size = max(0, folder.size - 3)  # "." and ".." are not stored, but count as three bytes
        data = self.stream(self.numbers.listing_table, folder.block, folder.offset, size) if size else b""
        at = 0
        while at < size:
            count, block, number = GROUP.unpack_from(data, at)
            at += GROUP.size
            for _ in range(count + 1):
                offset, step, kind, length = ENTRY.unpack_from(data, at)
                at += ENTRY.size + length + 1
                yield DirectoryEntry(data[at - length - 1 : at], kind, number + step, place_of(block, offset))

    @cached_property
    def root(self) -> DirectoryEntry:
        """The root folder, which has no name."""
        place = self.numbers.root
        return DirectoryEntry(b"", InodeKind.FOLDER, self.folder(place).number, place)

    def find(self, path: str) -> FoundPath:
        """Find a path, from the root folder on. Links are not followed."""
        entry = self.root
        names = tuple(name for name in os.fsencode(path).split(b"/") if name)
        for index, name in enumerate(names):
            found = self._entries_of(entry).get(name) if entry.kind == InodeKind.FOLDER else None
            if found is None:
                return FoundPath(entry, names[index:])
            entry = found
        return FoundPath(entry, ())

    def _entries_of(self, folder: DirectoryEntry) -> dict[bytes, DirectoryEntry]:
        """Return the entries of a folder by their names; each folder is read once."""
        entries = self._entries.get(folder.place)
        if entries is None:
            entries = {entry.name: entry for entry in self.listing(self.folder(folder.place))}
            self._entries[folder.place] = entries
        return entries

    def walk(self) -> Iterator[tuple[bytes, DirectoryEntry]]:
        """Yield all entries of all folders, each with the path of its folder, which is empty or ends with a slash."""
        waiting, left = [(b"", self.numbers.root)], self.numbers.inodes
        while waiting:
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: a folder contains itself")
            folder, place = waiting.pop()
            for entry in self.listing(self.folder(place)):
                if entry.kind == InodeKind.FOLDER:
                    waiting.append((folder + entry.name + b"/", entry.place))
                yield folder, entry

    def paths(self, table: int, count: int, size: int) -> tuple[int, ...]:
        """Return the positions of the blocks of a list: `count` records of `size` bytes, stored at byte `table`."""
        if not count:
            return ()  # squashfs-tools-ng writes no position for an empty list
        blocks = -(-count * size // BLOCK)
        return tuple(place for (place,) in PLACE.iter_unpack(self.read(table, blocks * PLACE.size)))

    def records(self, table: int, count: int, size: int) -> bytes:
        """Return a list of `count` records of `size` bytes."""
        data = b"".join(self.block(place)[0] for place in self.paths(table, count, size))
        if len(data) != count * size:
            raise _fault(self.source, f"a list of {len(data)} bytes", f"{count} records of {size} bytes")
        return data

    def listings_end(self) -> int:
        """Return the byte after the listings: the position of the next table's first block."""
        found = self.numbers
        lists = [(found.owner_table, found.owners, 4)]
        if found.fragments:
            lists.append((found.fragment_table, found.fragments, 16))
        if found.export_table != NO_TABLE:
            lists.append((found.export_table, found.inodes, 8))
        return min(self.paths(table, count, size)[0] for table, count, size in lists)

    def last_block(self, start: int, end: int) -> int:
        """Return the position of the last metadata block of a stream; `start` for an empty stream."""
        raw = self.read(start, end - start)
        at = last = 0
        while at < len(raw):
            last = at
            at += LENGTH.size + (LENGTH.unpack_from(raw, at)[0] & ~PLAIN)
        return start + last


def _unpacker(compressor: str) -> Callable[[bytes, int], bytes]:
    """Return a function that unpacks a block, up to a number of bytes.

    Raises
    ------
    ValueError
        For a compressor that is not in `READABLE`. The returned function raises it for a damaged block.
    """
    if compressor == "gzip":
        return lambda data, most: zlib.decompressobj().decompress(data, most)
    if compressor != "zstd":
        raise ValueError(f"blocks compressed by {compressor}")

    def unpack(data: bytes, most: int) -> bytes:
        try:
            return zstd.ZstdDecompressor().decompress(data, most)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error

    return unpack


READABLE = frozenset({"gzip", "zstd"})
"""The compressors that can be unpacked: those in use for container images."""


def _fault(source: Source, read: str, expected: str) -> ImageError:
    return ImageError(
        f"no complete squashfs in {source.path}",
        evidence=f"read: {read}\nexpected: {expected}",
        hint="the file is damaged: copy, download or build it again",
    )


FILE = struct.Struct("<4I")
"""A file after the head: byte of its first block, fragment, offset in it, size. The size of each block follows."""
LARGE_FILE = struct.Struct("<3Q4I")
"""An extended file after the head; the size of each block follows.

Byte of the first block, size, bytes in holes, links, fragment, offset in it, extended attributes.
"""
SIZE = struct.Struct("<I")
BLOCK_BYTES = 0xFF_FFFF
"""Mask for the number of bytes in a block's size; the next bit is set if the block is not compressed."""
FRAGMENT = struct.Struct("<Q2I")
FIRST = SUPERBLOCK.size


def unused_share(source: Source, *, base: int = 0) -> float:
    """Return the share of file content in a squashfs that belongs to no file: joining replaced or removed it.

    Parameters
    ----------
    base
        Bytes of the base's files at its start, all in use, which do not count.

    Raises
    ------
    ImageError
        If the squashfs is damaged.
    """
    with open_tables(source) as tables:
        data = tables.numbers.inode_table - FIRST - base
        return 1 - (_live_bytes(tables) - base) / data if data else 0.0


def _live_bytes(tables: Tables) -> int:
    """Add up the blocks and fragments of all files in folders. Equal files share them."""
    fragments, blocks = set[int](), dict[int, int]()
    for _, entry in tables.walk():
        if entry.kind == InodeKind.FILE:
            start, fragment, sizes = parts_of(tables, entry.place)
            fragments.add(fragment)
            blocks[start] = sum(size & BLOCK_BYTES for (size,) in SIZE.iter_unpack(sizes))
    listed = tables.records(tables.numbers.fragment_table, tables.numbers.fragments, FRAGMENT.size)
    parts: Iterator[tuple[int, int, int]] = FRAGMENT.iter_unpack(listed)
    held = sum(size & BLOCK_BYTES for number, (_, size, _) in enumerate(parts) if number in fragments)
    return held + sum(blocks.values())


def parts_of(tables: Tables, place: int) -> tuple[int, int, bytes]:
    """Return the position of a file's first block, its fragment, and the list of its blocks' sizes."""
    kind, *_ = HEAD.unpack(tables.inode(place, HEAD.size))
    if kind == InodeKind.FILE:
        raw = tables.inode(place, HEAD.size + FILE.size)
        start, fragment, _, size = FILE.unpack_from(raw, HEAD.size)
    else:
        raw = tables.inode(place, HEAD.size + LARGE_FILE.size)
        start, size, _, _, fragment, _, _ = LARGE_FILE.unpack_from(raw, HEAD.size)
    return start, fragment, block_sizes(tables, place, len(raw), size, fragment)


def block_sizes(tables: Tables, place: int, at: int, size: int, fragment: int) -> bytes:
    """Return the list of a file's block sizes, which begins at byte `at` of the inode.

    The last block may be a fragment.
    """
    whole, rest = divmod(size, tables.numbers.block_size)
    count = whole + (1 if rest and fragment == NOTHING else 0)
    return tables.inode(place, at + 4 * count)[at:] if count else b""


def device_nodes(source: Source) -> tuple[str, ...]:
    """Return the paths of all device nodes, including whiteouts. Only root can unpack them.

    Raises
    ------
    ImageError
        If the squashfs is damaged.
    """
    devices = {InodeKind.BLOCK_DEVICE, InodeKind.CHARACTER_DEVICE}
    with open_tables(source) as tables:
        found = sorted(folder + entry.name for folder, entry in tables.walk() if entry.kind in devices)
    return tuple(map(os.fsdecode, found))
