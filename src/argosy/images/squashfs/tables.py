"""Reads the tables of a squashfs: its inodes and the listings of its folders; never the files' bytes.

Layout of version 4.0, little endian (Linux, ``fs/squashfs/squashfs_fs.h``)::

    superblock | bytes of files | inodes | listings | fragments | NFS | owners | xattrs

Each table is a row of *metadata blocks*: two bytes that give the length, with the highest bit set where the block is
not compressed; then the block, which has 8,192 bytes unpacked, but for the last of its table.  Inodes and listings are
one stream each, cut into such blocks: what points into it gives the place of a block, counted from the begin of the
table, and an offset in what that unpacks to.  The others are lists of records, with the blocks' places behind them.
"""

from __future__ import annotations

import os
import struct
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NamedTuple

from argosy.core.errors import ImageError
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.superblock import NO_TABLE, SUPERBLOCK, read_superblock, render_compressor

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

BLOCK = 8192
"""Bytes that a metadata block unpacks to."""
PLAIN = 0x8000
"""Set in the length of a metadata block that is not compressed."""
NOTHING = 0xFFFF_FFFF
"""In place of a fragment's or an extended attribute's number: there is none."""
LARGEST_TABLE = 256 << 20
"""Bytes, of millions of files: what claims more is not read into memory."""

LENGTH = struct.Struct("<H")
PLACE = struct.Struct("<Q")
HEAD = struct.Struct("<4H2I")
"""Of every inode: kind, mode, indexes of its user and group, time, number."""
FOLDER = struct.Struct("<2I2HI")
"""Of a folder after the head: block of the listing, links, size, offset, number of the parent."""
LARGE_FOLDER = struct.Struct("<4I2HI")
"""Links, size, block of the listing, number of the parent, entries of an index, offset, extended attributes."""
GROUP = struct.Struct("<3I")
"""Header of a group of entries: their count less one, the block of their inodes, the number theirs are added to."""
ENTRY = struct.Struct("<HhHH")
"""An entry: offset of the inode, what to add to the number, kind, size of the name less one; then the name."""


class Kind(IntEnum):
    """What an inode is. Those with more fields (extended attributes, hard links, …) have a number 7 higher."""

    FOLDER = 1
    FILE = 2
    LINK = 3
    BLOCK_DEVICE = 4
    CHARACTER_DEVICE = 5
    FIFO = 6
    SOCKET = 7


EXTENDED = 7


class Numbers(NamedTuple):
    """The superblock, field by field; what ends with ``table`` is an offset in bytes."""

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
    """A folder's inode: ``head`` is mode, user, group and time; ``size`` the listing's bytes and three more."""

    head: tuple[int, int, int, int]
    number: int
    parent: int
    xattrs: int
    block: int
    offset: int
    size: int


class Entry(NamedTuple):
    """A line of a folder's listing; ``place`` is the inode's, as `place_of` makes it."""

    name: bytes
    kind: int
    number: int
    place: int


def place_of(block: int, offset: int) -> int:
    """Give the number by which an inode is found: its block's place in the table, and the offset in that."""
    return block << 16 | offset


@contextmanager
def open_tables(source: FileSlice) -> Iterator[Tables]:
    """Open the squashfs in a part of a file.

    Raises
    ------
    ImageError
        It is none, or what it says of itself cannot be true; also while its tables are read.
    """
    read_superblock(source.path, source.offset)
    descriptor = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield Tables(source, descriptor)
    except (struct.error, ValueError, IndexError, OverflowError, zlib.error) as error:
        raise _fault(source, str(error), "tables that can be read") from error
    finally:
        os.close(descriptor)


class Tables:
    """The tables of an open squashfs; each block is unpacked once."""

    def __init__(self, source: FileSlice, descriptor: int) -> None:
        """Read the superblock, which `open_tables` has judged."""
        self.source = source
        self._descriptor = descriptor
        self.numbers = Numbers(*SUPERBLOCK.unpack(self.read(0, SUPERBLOCK.size)))
        self._unpack = _unpacker(render_compressor(self.numbers.compressor))
        self._blocks: dict[int, tuple[bytes, int]] = {}

    def read(self, at: int, size: int) -> bytes:
        """Give bytes of the file system.

        Raises
        ------
        ImageError
            It ends before.
        """
        if not 0 <= size <= LARGEST_TABLE or at + size > self.source.length:
            raise _fault(self.source, f"a table of {size} bytes at byte {at}", f"within {self.source.length} bytes")
        data = os.pread(self._descriptor, size, self.source.offset + at)
        if len(data) < size:
            raise _fault(self.source, f"{len(data)} bytes at byte {at}", f"{size}")
        return data

    def block(self, at: int) -> tuple[bytes, int]:
        """Give what the metadata block at a byte unpacks to, and where the next one begins."""
        if at not in self._blocks:
            (length,) = LENGTH.unpack(self.read(at, LENGTH.size))
            data = self.read(at + LENGTH.size, length & ~PLAIN)
            unpacked = data if length & PLAIN else self._unpack(data)
            if len(unpacked) > BLOCK:
                raise _fault(self.source, f"more than {BLOCK} bytes in the block at byte {at}", f"at most {BLOCK}")
            self._blocks[at] = unpacked, at + LENGTH.size + len(data)
        return self._blocks[at]

    def stream(self, table: int, block: int, offset: int, size: int) -> bytes:
        """Give `size` bytes of a stream from a place in it."""
        data, after = self.block(table + block)
        data = data[offset:]
        while len(data) < size:
            more, after = self.block(after)
            if not more:
                raise _fault(self.source, f"an empty block before byte {after}", f"{size - len(data)} bytes more")
            data += more
        return data[:size]

    def inode(self, place: int, size: int) -> bytes:
        """Give the first `size` bytes of an inode."""
        return self.stream(self.numbers.inode_table, place >> 16, place & 0xFFFF, size)

    def folder(self, place: int) -> FolderInode:
        """Give the folder whose inode is at a place."""
        kind, *head, number = HEAD.unpack(self.inode(place, HEAD.size))
        mode, user, group, time = head
        about = (mode, user, group, time), number
        if kind == Kind.FOLDER:
            body = self.inode(place, HEAD.size + FOLDER.size)[HEAD.size :]
            block, _, size, offset, parent = FOLDER.unpack(body)
            return FolderInode(*about, parent, NOTHING, block, offset, size)
        if kind != Kind.FOLDER + EXTENDED:
            raise _fault(self.source, f"an inode of kind {kind}", "a folder's")
        body = self.inode(place, HEAD.size + LARGE_FOLDER.size)[HEAD.size :]
        _, size, block, parent, _, offset, xattrs = LARGE_FOLDER.unpack(body)
        return FolderInode(*about, parent, xattrs, block, offset, size)

    def listing(self, folder: FolderInode) -> Iterator[Entry]:
        """Give the entries of a folder, in the order of their names' bytes."""
        size = max(0, folder.size - 3)  # "." and "..", which are not written down, count as three bytes
        data = self.stream(self.numbers.listing_table, folder.block, folder.offset, size) if size else b""
        at = 0
        while at < size:
            count, block, number = GROUP.unpack_from(data, at)
            at += GROUP.size
            for _ in range(count + 1):
                offset, step, kind, length = ENTRY.unpack_from(data, at)
                at += ENTRY.size + length + 1
                yield Entry(data[at - length - 1 : at], kind, number + step, place_of(block, offset))

    def walk(self) -> Iterator[Entry]:
        """Give all entries of all folders."""
        waiting, left = [self.numbers.root], self.numbers.inodes
        while waiting:
            left -= 1
            if left < 0:
                raise ValueError("more folders than inodes: one holds itself")
            for entry in self.listing(self.folder(waiting.pop())):
                if entry.kind == Kind.FOLDER:
                    waiting.append(entry.place)
                yield entry

    def paths(self, table: int, count: int, size: int) -> tuple[int, ...]:
        """Give where the blocks of a list of `count` records of `size` bytes begin; `table` is where that stands."""
        if not count:
            return ()  # squashfs-tools-ng gives no place for a list without records
        blocks = -(-count * size // BLOCK)
        return tuple(place for (place,) in PLACE.iter_unpack(self.read(table, blocks * PLACE.size)))

    def records(self, table: int, count: int, size: int) -> bytes:
        """Give a list of `count` records of `size` bytes."""
        data = b"".join(self.block(place)[0] for place in self.paths(table, count, size))
        if len(data) != count * size:
            raise _fault(self.source, f"a list of {len(data)} bytes", f"{count} records of {size} bytes")
        return data

    def listings_end(self) -> int:
        """Give the byte where the listings end: where the next table's first block is."""
        found = self.numbers
        lists = [(found.owner_table, found.owners, 4)]
        if found.fragments:
            lists.append((found.fragment_table, found.fragments, 16))
        if found.export_table != NO_TABLE:
            lists.append((found.export_table, found.inodes, 8))
        return min(self.paths(table, count, size)[0] for table, count, size in lists)

    def last_block(self, start: int, end: int) -> int:
        """Give where the last metadata block of a stream begins; `start` where it has none."""
        raw = self.read(start, end - start)
        at = last = 0
        while at < len(raw):
            last = at
            at += LENGTH.size + (LENGTH.unpack_from(raw, at)[0] & ~PLAIN)
        return start + last


def _unpacker(compressor: str) -> Callable[[bytes], bytes]:
    """Give what unpacks a metadata block: to one byte too many where it holds more, and never to gigabytes.

    Raises
    ------
    ValueError
        For a compressor that `READABLE` does not name; in what is given, for a block that is damaged.
    """
    if compressor == "gzip":
        return lambda data: zlib.decompressobj().decompress(data, BLOCK + 1)
    if compressor != "zstd":
        raise ValueError(f"blocks compressed by {compressor}")

    def unpack(data: bytes) -> bytes:
        try:
            return zstd.ZstdDecompressor().decompress(data, BLOCK + 1)
        except zstd.ZstdError as error:
            raise ValueError(str(error)) from error

    return unpack


READABLE = frozenset({"gzip", "zstd"})
"""The compressors whose blocks are read here: those of the images that people have."""


def _fault(source: FileSlice, read: str, expected: str) -> ImageError:
    return ImageError(
        f"no whole squashfs in {source.path}",
        evidence=f"read: {read}\nexpected: {expected}",
        hint="the file is damaged: copy, download or build it again",
    )


FILE = struct.Struct("<4I")
"""Of a file after the head: byte of its first block, fragment, offset there, size; then the size of each block."""
LARGE_FILE = struct.Struct("<3Q4I")
"""Byte of its first block, size, bytes in holes, links, fragment, offset there, extended attributes; then sizes."""
SIZE = struct.Struct("<I")
BLOCK_BYTES = 0xFF_FFFF
"""Mask for the bytes of a block in its size word; the bit above says that it is not compressed."""
FRAGMENT = struct.Struct("<Q2I")
FIRST = SUPERBLOCK.size


def unused_share(source: FileSlice) -> float:
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
