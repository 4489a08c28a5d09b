"""Read the superblock of a squashfs: its size and its packing options. Its bytes may be several ranges of a file.

Layout and limits are those of Linux, ``fs/squashfs/squashfs_fs.h``, for version 4.0, the only version in use since
2009.
"""

from __future__ import annotations

import os
import stat
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from argosy.core.errors import ImageError
from argosy.images.sif.write import FileSlice

if TYPE_CHECKING:
    from collections.abc import Mapping

MAGIC = b"hsqs"
SUPERBLOCK = struct.Struct("<4s4I6H8Q")
"""Magic; inodes, mkfs time, block size, fragments: four 32-bit numbers.

Compressor, log2 of the block size, flags, ids, two numbers of the version: six 16-bit numbers.
Root inode, bytes used, and the offsets of the id, xattr, inode, directory, fragment and export tables: eight 64-bit
numbers.
"""

BLOCK_SIZES = range(1 << 12, (1 << 20) + 1)
"""In bytes: a power of two from a page to 1 MiB."""
LATEST_TIME = (1 << 32) - 1
"""Times are unsigned 32-bit numbers, in seconds since 1970."""
NO_TABLE = 0xFFFF_FFFF_FFFF_FFFF

COMPRESSORS: Mapping[int, str] = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}


class Superblock(msgspec.Struct, frozen=True):
    """The facts in a superblock. Sizes are in bytes, the time in seconds since 1970.

    ``bytes_used`` is the file system's own size; mksquashfs pads the file to a multiple of 4096. The contents of files
    end at byte ``data_end``, and the tables follow.
    """

    compressor: str
    block_size: int
    mkfs_time: int
    bytes_used: int
    inodes: int
    has_xattrs: bool = False
    data_end: int = 0


def read_superblock(path: str | os.PathLike[str], offset: int = 0) -> Superblock:
    """Read and check the superblock of the squashfs that begins at byte `offset` of a file.

    Raises
    ------
    ImageError
        If the file cannot be read, no squashfs 4.0 begins there, or its numbers are impossible for this file.
    """
    where = f"{path}, byte {offset}" if offset else str(path)
    try:
        block, size = _read_block(Path(path), offset)
    except (OSError, ValueError, OverflowError) as error:
        raise _fault(where, str(error), "a readable file") from error
    if len(block) < SUPERBLOCK.size or not block.startswith(MAGIC):
        raise _fault(where, f"{block[:4]!r}" if block else "nothing", f"{MAGIC!r} and {SUPERBLOCK.size - 4} bytes more")
    return _parse_superblock(block, where=where, rest=size - offset)


def render_compressor(number: int) -> str:
    """Return the name of a compressor; for an unknown one, its number."""
    return COMPRESSORS.get(number, f"compressor {number}")


def _read_block(path: Path, offset: int) -> tuple[bytes, int]:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is not a regular file")
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(SUPERBLOCK.size), status.st_size


def _parse_superblock(block: bytes, *, where: str, rest: int) -> Superblock:
    _, inodes, mkfs_time, block_size, _, compressor, block_log, _, _, major, minor, *spans = SUPERBLOCK.unpack(block)
    _, used, *tables = spans
    if (major, minor) != (4, 0):
        raise _fault(where, f"version {major}.{minor}", "version 4.0")
    if block_size not in BLOCK_SIZES or block_size != 1 << min(block_log, 64):
        raise _fault(where, f"blocks of {block_size} bytes, 2^{block_log}", "the same power of two, 2^12 to 2^20")
    if not SUPERBLOCK.size < used <= rest:
        raise _fault(where, f"{used} bytes used", f"more than {SUPERBLOCK.size}, at most the {rest} that are there")
    for table in tables:
        if table != NO_TABLE and not SUPERBLOCK.size <= table < used:
            raise _fault(where, f"a table at byte {table}", f"within the {used} bytes used")
    if inodes == 0:
        raise _fault(where, "0 inodes", "at least the root directory's")
    return Superblock(
        compressor=render_compressor(compressor),
        block_size=block_size,
        mkfs_time=mkfs_time,
        bytes_used=used,
        inodes=inodes,
        has_xattrs=tables[1] != NO_TABLE,
        data_end=tables[2],
    )


def _fault(where: str, read: str, expected: str) -> ImageError:
    return ImageError(
        f"no complete squashfs in {where}",
        evidence=f"read: {read}\nexpected: {expected}",
        hint="the file is damaged, incomplete, or not a squashfs: copy, download or build it again",
    )


class SplitFile(msgspec.Struct, frozen=True):
    """Ranges of one file that together are a squashfs: the base inside a flat image."""

    slices: tuple[FileSlice, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.slices[0].path

    @property
    def length(self) -> int:
        """The size of the squashfs, in bytes."""
        return sum(part.length for part in self.slices)

    def slice_at(self, at: int, length: int) -> FileSlice:
        """Return the range of the file with `length` bytes from byte `at` of the squashfs.

        Raises
        ------
        ValueError
            If these bytes are in several ranges.
        """
        start = 0
        for part in self.slices:
            if start <= at and at + length <= start + part.length:
                return part.slice_at(at - start, length)
            start += part.length
        raise ValueError(f"{length} bytes at byte {at} are not in one range")


Source = FileSlice | SplitFile
"""The place of the bytes of a squashfs."""


def superblock_of(source: Source) -> Superblock:
    """Read the superblock of a squashfs; errors as `read_superblock`."""
    return read_superblock(source.path, source.slice_at(0, SUPERBLOCK.size).offset)


def contents_of(source: Source) -> FileSlice:
    """Return the range of a squashfs with the contents of all files.

    A joined squashfs has these ranges of its parts unchanged, one after another, behind its superblock.

    Raises
    ------
    ImageError
        If it is damaged.
    """
    return source.slice_at(SUPERBLOCK.size, superblock_of(source).data_end - SUPERBLOCK.size)


def slices_of(source: Source) -> tuple[FileSlice, ...]:
    """Return the ranges of the file, in order."""
    return source.slices if isinstance(source, SplitFile) else (source,)
