"""Remember facts about a part of an image file in the cache: its SHA-256, and what a command printed about it.

The cache stores unpacked images under this digest, never under a digest that the image itself contains: an image with
a copied lock would get, or replace, the files of another image. A container takes 40 ms to start, and the Python of a
base with many packages takes 0.2 s to list them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from argosy.core.cache import read_memo, write_memo
from argosy.core.process import Argv, Reply

READ_BYTES = 1 << 20
MEMOS = "digests"
"""Folder in the cache."""


Spans = tuple[tuple[int, int], ...]

ANSWERS = "answers"
"""Folder in the cache."""


class FilePart(msgspec.Struct, frozen=True):
    """A part of a file, and the file's present state: the kernel changes a file's ctime whenever its bytes change."""

    path: str
    spans: Spans
    """Offset and size of each range of the file that belongs to the part, in bytes."""
    inode: int
    length: int
    changed: int
    modified: int
    """The ctime and mtime, in nanoseconds since 1970. No program can set the ctime."""

    @property
    def name(self) -> str:
        """A name for the part in the cache. Two parts may share a name."""
        return f"{self.inode:x}-{self.changed:x}-{self.spans[0][0]:x}"

    @property
    def identity(self) -> str:
        """An identity of the part without reading it."""
        return f"{self.name}-{self.length:x}-{self.modified:x}"


class Memo(msgspec.Struct, frozen=True):
    """A remembered digest and its part, so that a renamed memo is not used."""

    part: FilePart
    digest: str


def describe_part(path: str | Path, offset: int, size: int) -> FilePart:
    """Describe one range of a file in the file's present state."""
    return describe_spans(path, ((offset, size),))


def describe_spans(path: str | Path, spans: Spans) -> FilePart:
    """Describe a part of a file that consists of some ranges, in the file's present state."""
    real = os.path.realpath(path)
    status = os.stat(real)  # noqa: PTH116 - pathlib takes longer, and this is part of each start
    facts = (status.st_ino, status.st_size, status.st_ctime_ns, status.st_mtime_ns)
    return FilePart(real, spans, *facts)


def tree_name(key: str) -> str:
    """Return the name of an unpacked tree in the cache."""
    return key.replace(":", "-")


def cached_digest(part: FilePart, cache: Path) -> str:
    """Return the remembered digest of a part, ``sha256:`` and 64 digits; empty if no valid memo exists."""
    memo = read_memo(_memo(part, cache), Memo)
    return memo.digest if memo and memo.part == part else ""


def part_digest(part: FilePart, cache: Path, *, remember: bool = True) -> str:
    """Return the digest of a part, ``sha256:`` and 64 digits; read the file if the digest is not remembered.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    known = cached_digest(part, cache)
    if known:
        return known
    digest = f"sha256:{_hash_part(part)}"
    if remember and describe_spans(part.path, part.spans) == part:
        remember_digest(part, digest, cache)
    return digest


def remember_digest(part: FilePart, digest: str, cache: Path) -> None:
    """Remember the digest of a part."""
    write_memo(_memo(part, cache), Memo(part, digest))


def _memo(part: FilePart, cache: Path) -> Path:
    """Return the file of a memo. Each user has their own, and uses no other user's except root's."""
    return cache / MEMOS / f"{part.name}-{os.geteuid()}"


@lru_cache
def _hash_part(part: FilePart) -> str:
    total = hashlib.sha256()
    with open(part.path, "rb") as file:  # noqa: PTH123 - likewise
        for offset, size in part.spans:
            file.seek(offset)
            left = size
            while left > 0 and (block := file.read(min(left, READ_BYTES))):
                total.update(block)
                left -= len(block)
    return total.hexdigest()


class Answer(msgspec.Struct, frozen=True):
    """The output of a command, identified by its SHA-256, for a file in this state."""

    file: FilePart
    question: str
    text: str


def remembered(cache: Path, file: str | Path, argv: Argv, run: Callable[[], Reply], *, offset: int = 0) -> Reply:
    """Return the remembered reply of a command, or run it and remember its reply if it succeeds.

    Parameters
    ----------
    file
        The file that the output of the command depends on, and nothing else.
    offset
        Position of the part that the command sees, in bytes.
    """
    state = describe_part(file, offset, 0)  # the size of the file is part of its state
    question = hashlib.sha256(os.fsencode("\0".join(argv))).hexdigest()
    memo = cache / ANSWERS / f"{state.name}-{question[:16]}-{os.geteuid()}"
    answer = read_memo(memo, Answer)
    if answer and (answer.file, answer.question) == (state, question):
        return Reply(0, answer.text, "")
    reply = run()
    if reply.code == 0 and describe_part(file, offset, 0) == state:
        write_memo(memo, Answer(state, question, reply.stdout))
    return reply
