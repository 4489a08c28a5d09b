"""The SHA-256 of the bytes of a part of an image, remembered in the cache so that each file is read once.

Unpacked images are kept under this digest.  What an image says of itself, as the digests in its lock, is not used for
that: an image with another's lock would be given the other's files, or leave its own in their place.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.store import make_folder, write_text

READ_BYTES = 1 << 20
MEMOS = "digests"
"""Folder of the cache."""


class FilePart(msgspec.Struct, frozen=True):
    """A part of a file as the file is now: a file whose bytes change gets another time of change (ctime).

    Attributes
    ----------
    offset, size
        In bytes.
    changed, modified
        In nanoseconds since 1970.  No program can set the first.
    """

    path: str
    offset: int
    size: int
    inode: int
    length: int
    changed: int
    modified: int

    @property
    def name(self) -> str:
        """A name for the part in a cache; two parts may share one."""
        return f"{self.inode:x}-{self.changed:x}-{self.offset:x}"

    def identity(self) -> str:
        """Give what tells the part from all others without reading it, as 64 digits."""
        return hashlib.sha256(msgspec.json.encode(self)).hexdigest()


class Memo(msgspec.Struct, frozen=True):
    """A remembered digest, and whose it is: a memo that was renamed is not believed."""

    part: FilePart
    digest: str


def describe_part(path: str | Path, offset: int, size: int) -> FilePart:
    """Describe a part of a file as the file is now."""
    real = os.path.realpath(path)
    status = os.stat(real)  # noqa: PTH116 - pathlib takes longer, and this is part of each start
    facts = (status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns)
    return FilePart(real, offset, size, *facts)


def tree_name(key: str) -> str:
    """Give the name of an unpacked tree in the cache; before, trees were named by claims, in digits alone."""
    return key.replace(":", "-")


def cached_digest(part: FilePart, cache: Path) -> str:
    """Give the remembered digest of a part, ``sha256:`` and 64 digits; empty if there is none to rely on."""
    with suppress(OSError, msgspec.DecodeError):
        with _memo(part, cache).open("rb") as file:
            # In a cache of several users anybody may put a file here.
            owner, text = os.fstat(file.fileno()).st_uid, file.read()
        memo = msgspec.json.decode(text, type=Memo)
        if owner in {0, os.geteuid()} and memo.part == part:
            return memo.digest
    return ""


def part_digest(part: FilePart, cache: Path, *, remember: bool = True) -> str:
    """Give the digest of a part's bytes, ``sha256:`` and 64 digits; the file is read if the digest is not remembered.

    Raises
    ------
    OSError
        When the file cannot be read.
    """
    known = cached_digest(part, cache)
    if known:
        return known
    digest = f"sha256:{_hash_part(part)}"
    if remember and describe_part(part.path, part.offset, part.size) == part:
        memo = _memo(part, cache)
        with suppress(OSError, ArgosyError):  # the digest is right, also if the cache cannot be written
            make_folder(memo.parent)
            write_text(memo, msgspec.json.encode(Memo(part, digest)).decode())
    return digest


def _memo(part: FilePart, cache: Path) -> Path:
    """Give the file of a memo: each user writes their own, and believes nobody else's but root's."""
    return cache / MEMOS / f"{part.name}-{os.geteuid()}"


@lru_cache
def _hash_part(part: FilePart) -> str:
    total, size = hashlib.sha256(), part.size
    with open(part.path, "rb") as file:  # noqa: PTH123 - likewise
        file.seek(part.offset)
        while size > 0 and (block := file.read(min(size, READ_BYTES))):
            total.update(block)
            size -= len(block)
    return total.hexdigest()
