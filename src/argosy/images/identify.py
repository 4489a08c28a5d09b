"""Identify a file or folder by its first kilobytes, not by its name. Nothing here fails or waits.

Member names of tar files are read header by header: the standard library's
reader is for trusted files, and allocates as much memory as a header requests.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from enum import StrEnum
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from argosy.core.render import render_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedIOBase

BLOCK = 512
BUDGET = 64 << 20
"""Maximum number of decompressed bytes. The first members show the kind of an archive."""
MEMBERS_LIMIT = 4096
"""Maximum number of members to read."""

_OCTAL = re.compile(rb"[0-7]*")
_CHECKSUM = slice(148, 156)
_EXTENSIONS = b"xgLK"
"""Types of headers with a long name or attributes for the next header (pax and GNU)."""


class Kind(StrEnum):
    """The kind of a file or folder. The value appears in messages and in ``--json``."""

    SIF = "sif"
    SQUASHFS = "squashfs"
    EXT = "ext"
    TAR = "tar"
    DOCKER_ARCHIVE = "docker-archive"
    OCI_ARCHIVE = "oci-archive"
    OCI_LAYOUT = "oci-layout"
    ROOT_DIRECTORY = "root-directory"
    DIRECTORY = "directory"
    EMPTY_DIRECTORY = "empty-directory"
    EMPTY = "empty"
    COMPRESSED = "compressed"
    TEXT = "text"
    OTHER = "other"
    MISSING = "missing"
    UNREADABLE = "unreadable"


class FileKind(msgspec.Struct, frozen=True):
    """A file's kind and compression, and a description for people, for example *a gzip file of 12 MB*.

    ``compression`` is ``none``, ``gzip``, ``zstd``, ``xz`` or ``bzip2``.
    """

    kind: Kind
    description: str
    compression: str = "none"


HEAD = 4096
"""Number of bytes to read. The ext superblock is the farthest, at byte 1024."""
EXT_OFFSET, EXT_MAGIC = 1080, b"\x53\xef"
"""Two bytes can match by chance, so this is checked after all other formats."""

COMPRESSIONS = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\x00", "xz"), (b"BZh", "bzip2"))
FORMATS = (
    (32, b"SIF_MAGIC\0", Kind.SIF, "a SIF image"),
    (0, b"hsqs", Kind.SQUASHFS, "a squashfs image"),
    (0, b"\x7fELF", Kind.OTHER, "a program or library (ELF)"),
    (0, b"PK\x03\x04", Kind.OTHER, "a zip file"),
    (0, b"%PDF-", Kind.OTHER, "a PDF document"),
    (0, b"version https://git-lfs", Kind.TEXT, "a Git LFS pointer (git lfs pull fetches the file itself)"),
)
"""Offset, magic bytes, kind and description; the first match counts."""
TEXTS = (
    (rb"(?i)<!doctype html|<html", "an HTML page (was a download refused?)"),
    (rb"<\?xml|<Error>", "an XML text (was a download refused?)"),
    (rb"[{\[]", "a JSON text (was a download refused?)"),
    (rb"#!", "a script"),
    (rb"", "a text file"),
)
"""Start of a text file, and its description.

These patterns, and those below, are compiled on use: identifying an image needs none.
"""
TAR_KINDS = {Kind.TAR: "a tar file", Kind.DOCKER_ARCHIVE: "a docker archive", Kind.OCI_ARCHIVE: "an OCI archive"}
READY = frozenset({Kind.SIF, Kind.SQUASHFS, Kind.ROOT_DIRECTORY})
"""Kinds that runtimes can open. Other kinds are converted into the cache first."""

ARTICLES = {"gzip": "a gzip", "zstd": "a zstd", "xz": "an xz", "bzip2": "a bzip2"}

_IMAGE_MEMBER = (
    r"(manifest\.json|repositories|index\.json|oci-layout|blobs(/.*)?"
    r"|[0-9a-f]{64}(\.json|\.tar|/|/(layer\.tar|json|VERSION))?|sha256:[0-9a-f]{64}(\.tar)?)/?"
)
"""Member names in a docker or OCI archive (docker save, skopeo, umoci, buildah). A root file system has others."""
_TEXT = rb"[\t\n\f\r\x1b -~\x80-\xff]*"


def identify_file(path: str | os.PathLike[str]) -> FileKind:
    """Identify the file or folder at a path. Every path gets an answer; nothing is started, locked or changed."""
    target = Path(path)
    try:
        status = target.stat()
        if stat.S_ISDIR(status.st_mode):
            return _identify_directory(target, frozenset(entry.name for entry in target.iterdir()))
        if stat.S_ISREG(status.st_mode):
            return _identify_regular(target, status.st_size)
    except (FileNotFoundError, NotADirectoryError):
        return FileKind(Kind.MISSING, "nothing: there is no such file")
    except OSError as error:
        return FileKind(Kind.UNREADABLE, f"unreadable: {error.strerror or error}")
    except ValueError as error:  # a NUL in the name
        return FileKind(Kind.MISSING, f"not a valid file name: {error}")
    return FileKind(Kind.OTHER, "neither a file nor a directory")


def _identify_directory(target: Path, names: frozenset[str]) -> FileKind:
    if not names:
        return FileKind(Kind.EMPTY_DIRECTORY, "an empty directory")
    if {"oci-layout", "index.json"} <= names:
        return FileKind(Kind.OCI_LAYOUT, "an OCI layout directory")
    programs = any(os.path.lexists(target / directory) for directory in ("bin", "usr/bin"))
    if programs and names & {"etc", "usr", "lib"}:
        return FileKind(Kind.ROOT_DIRECTORY, "a root file system directory")
    return FileKind(Kind.DIRECTORY, "a directory, but not a root file system (no bin, no usr/bin)")


def _identify_regular(target: Path, size: int) -> FileKind:
    with target.open("rb") as file:
        head = file.read(HEAD)
    if not head:
        return FileKind(Kind.EMPTY, "an empty file")
    of_size = f" of {render_size(size)}"
    for magic, compression in COMPRESSIONS:
        if head.startswith(magic):
            return _identify_compressed(target, compression, of_size)
    for offset, magic, kind, description in FORMATS:
        if head[offset : offset + len(magic)] == magic:
            return FileKind(kind, description + of_size)
    tar = _identify_tar(target, "none")
    if tar:
        return FileKind(tar, TAR_KINDS[tar] + of_size)
    return _identify_remainder(head, of_size)


def _identify_compressed(target: Path, compression: str, of_size: str) -> FileKind:
    kind = _identify_tar(target, compression)
    if kind is None:
        return FileKind(Kind.COMPRESSED, f"{ARTICLES[compression]} file{of_size}", compression)
    return FileKind(kind, f"{TAR_KINDS[kind]} ({compression}){of_size}", compression)


def _identify_tar(target: Path, compression: str) -> Kind | None:
    """Return the kind of a tar file, an image archive or a root file system by its member names; None for other files.

    Archives of newer Docker versions are both docker and OCI archives, and count as docker archives.
    """
    seen: set[str] = set()
    for name in read_tar_names(target, compression):
        if name and not re.fullmatch(_IMAGE_MEMBER, name):
            return Kind.TAR
        seen.add(name.partition("/")[0])
        if "manifest.json" in seen:
            break
    if seen <= {""}:  # only the archive's root directory, ./
        return Kind.TAR if seen else None
    # Without a manifest among the members read, the manifest follows layers too large to read through.
    is_oci = "manifest.json" not in seen and not seen.isdisjoint({"oci-layout", "index.json", "blobs"})
    return Kind.OCI_ARCHIVE if is_oci else Kind.DOCKER_ARCHIVE


def _identify_remainder(head: bytes, of_size: str) -> FileKind:
    if head[EXT_OFFSET:].startswith(EXT_MAGIC):
        return FileKind(Kind.EXT, "an ext3 or ext4 image" + of_size)
    if not head.strip(b"\0"):
        return FileKind(Kind.OTHER, f"a file of zeros{of_size} (was a copy interrupted?)")
    if not re.fullmatch(_TEXT, head):
        return FileKind(Kind.OTHER, "a file of unknown kind" + of_size)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    description = next(description for pattern, description in TEXTS if re.match(pattern, start))
    return FileKind(Kind.TEXT, description)


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


OPENERS = {
    "gzip": ("gzip", "GzipFile"),
    "bzip2": ("bz2", "BZ2File"),
    "xz": ("lzma", "LZMAFile"),
    "zstd": ("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "ZstdFile"),
}
"""Compression -> the module and class that read it; a module is imported when it is needed."""


def _open(path: Path, compression: str) -> BufferedIOBase:
    if compression == "none":
        return path.open("rb")
    module, opener = OPENERS[compression]
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
