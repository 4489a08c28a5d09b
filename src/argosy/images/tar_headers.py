"""Read the member names of an untrusted tar file, header by header.

The standard library's reader is for trusted tar files: it allocates as much memory as a header requests. This one
skips the data of members, within a budget.
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
"""Maximum number of decompressed bytes. The first members show the kind of an archive."""
MEMBERS_LIMIT = 4096
"""Maximum number of members to read."""

_OCTAL = re.compile(rb"[0-7]*")
_CHECKSUM = slice(148, 156)
_EXTENSIONS = b"xgLK"
"""Types of headers with a long name or attributes for the next header (pax and GNU)."""


def read_tar_names(path: Path, compression: str) -> Iterator[str]:
    """Yield the names of the members; none if the file is not a tar file or cannot be decompressed.

    Reading stops at the end, at damaged data, at :data:`MEMBERS_LIMIT`, and at :data:`BUDGET` decompressed bytes.
    """
    try:
        with _open(path, compression) as stream:
            yield from islice(_iterate_names(stream, seekable=compression == "none"), MEMBERS_LIMIT)
    except Exception:  # noqa: BLE001 - each decompressor has an error class of its own
        # Damage after the first members does not change the kind of the file.
        return


def _open(path: Path, compression: str) -> BufferedIOBase:
    """Open a tar file. The standard library has no zstd before Python 3.14, so zstd archives yield no names."""
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
    """Parse an octal number, or a binary number that GNU tar marks with the highest bit."""
    if field[0] & 0x80:
        return int.from_bytes(field, "big") & ((1 << 62) - 1)
    digits = field.strip(b" \0")
    return int(digits or b"0", 8) if _OCTAL.fullmatch(digits) else None


def _parse_name(block: bytes) -> str:
    name = block[:100].rstrip(b"\0")
    prefix = block[345:500].rstrip(b"\0") if block[257:262] == b"ustar" else b""
    whole = prefix + b"/" + name if prefix else name
    return whole.decode("utf-8", "backslashreplace").removeprefix("./")
