"""Reads the member names of a tar file, header by header. It never unpacks, and never holds a member's data.

The standard library's reader is for tar files that can be trusted: it allocates what a header asks for. Here a file of
unknown kind is looked at, so sizes are only skipped, within a budget.
"""

from __future__ import annotations

import re
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase
    from pathlib import Path

BLOCK = 512
BUDGET = 64 << 20
"""Bytes that are decompressed at most: what an archive is shows in its first members."""
MEMBERS_LIMIT = 4096
"""Members that are looked at, at most."""

_OCTAL = re.compile(rb"[0-7]*")
_CHECKSUM = slice(148, 156)
_EXTENSIONS = b"xgLK"
"""Headers that carry a long name or attributes for the next one (pax and GNU)."""


def read_tar_names(path: Path, compression: str) -> Iterator[str]:
    """Give the members' names one by one; none at all if this is no tar file, or cannot be read that way.

    Stops at the end, at damage, at :data:`MEMBERS_LIMIT`, and at :data:`BUDGET` decompressed bytes.
    """
    try:
        with _open(path, compression) as stream:
            yield from islice(_iterate_names(stream, seekable=compression == "none"), MEMBERS_LIMIT)
    except Exception:  # noqa: BLE001 - each decompressor has an error class of its own
        # Damage behind the first members does not change what the file is.
        return


def _open(path: Path, compression: str) -> BufferedIOBase:
    """Open a compressed tar; zstd is not in the standard library before Python 3.14 and reads as nothing."""
    if compression == "none":
        return path.open("rb")
    module, opener = {"gzip": ("gzip", "GzipFile"), "bzip2": ("bz2", "BZ2File"), "xz": ("lzma", "LZMAFile")}[
        compression
    ]
    stream: BufferedIOBase = getattr(import_module(module), opener)(path)
    return stream


def _iterate_names(stream: BufferedIOBase, *, seekable: bool) -> Iterator[str]:
    position = 0
    while len(block := stream.read(BLOCK)) == BLOCK:
        size = _parse_size(block[124:136])
        if size is None or not _is_header(block):
            return
        if block[156:157] not in _EXTENSIONS:
            yield _parse_name(block)
        length = -(-size // BLOCK) * BLOCK
        position += BLOCK + length
        if seekable:
            stream.seek(position)
        elif position > BUDGET or not _skip(stream, length):
            return


def _skip(stream: BufferedIOBase, length: int) -> bool:
    while length:
        data = stream.read(min(length, 1 << 20))
        if not data:
            return False
        length -= len(data)
    return True


def _is_header(block: bytes) -> bool:
    written = _parse_size(block[_CHECKSUM])
    return written == sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")


def _parse_size(field: bytes) -> int | None:
    """Read an octal number, or a binary one where GNU tar marks it by the highest bit."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << 62) - 1)
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if _OCTAL.fullmatch(digits) else None


def _parse_name(block: bytes) -> str:
    name = block[:100].rstrip(b"\0")
    prefix = block[345:500].rstrip(b"\0") if block[257:262] == b"ustar" else b""
    whole = prefix + b"/" + name if prefix else name
    return whole.decode("utf-8", "backslashreplace").removeprefix("./")
