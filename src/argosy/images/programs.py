"""Look for a program in an image file, without a container: in the listings of its squashfs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from argosy.core.errors import ImageError
from argosy.core.layout import DEFAULT_PATH, ENV_PREFIX
from argosy.core.model import Image, ImageKind
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import HEAD, DirectoryEntry, InodeKind, Tables, open_tables

FOLDERS = (*DEFAULT_PATH.split(":"), f"{ENV_PREFIX}/bin", "/opt/conda/bin", "/opt/venv/bin")
"""Folders that usually are on PATH in an image. They are read first, and give the names for suggestions."""

EXECUTABLE = 0o111
"""Mode bits of a file that user, group or others may execute."""

PROGRAMS = frozenset({InodeKind.FILE, InodeKind.LINK})


class ProgramSearch(msgspec.Struct, frozen=True):
    """The result of a search for a program in an image."""

    is_missing: bool
    """Whether the image certainly has no such program."""
    others: frozenset[str] = frozenset()
    """Names of the programs in the usual folders, if it is missing."""


FOUND = ProgramSearch(is_missing=False)


def search_program(name: str, image: Image) -> ProgramSearch:
    """Search all folders of an image for an executable file with a name.

    PATH of the image is not evaluated: its scripts may extend it with any folder. A program outside of PATH therefore
    counts as present. So does any program of an image that cannot be read here: it is not a file, is damaged, or is
    compressed by something other than gzip and zstd.
    """
    others = set[str]()
    try:
        for part in _parts(image):
            with open_tables(part) as tables:
                usual = _usual_programs(tables)
                if name in usual or (_mentions(tables, name) and _has_executable(tables, name)):
                    return FOUND
                others |= usual
    except (ImageError, OSError):
        return FOUND
    return ProgramSearch(bool(others), frozenset(others))


def lacks_path(path: str, image: Image) -> bool:
    """Return whether an image certainly does not contain a path, or a program if `path` is a name without a folder.

    The listings cannot tell this if a link is on the way, or if the image cannot be read here.
    """
    if "/" not in path:
        return search_program(path, image).is_missing
    try:
        parts = tuple(_parts(image))
        return bool(parts) and ".." not in path.split("/") and all(_lacks(part, path) for part in parts)
    except (ImageError, OSError):
        return False


def _lacks(part: FileSlice, path: str) -> bool:
    with open_tables(part) as tables:
        return tables.find(path).is_missing


def _parts(image: Image) -> Iterable[FileSlice]:
    """Return each squashfs of an image file: the layer, if it has one, and the base."""
    if image.kind not in {ImageKind.SIF, ImageKind.SQUASHFS}:
        return ()
    base = FileSlice(Path(image.path), image.base_offset, image.base_size)
    if image.layer_offset < 0:
        return (base,)
    return (FileSlice(Path(image.path), image.layer_offset, image.layer_size), base)


def _usual_programs(tables: Tables) -> set[str]:
    """Return the names of the files and links in the usual folders for programs."""
    return {
        entry.name.decode(errors="replace")
        for folder in FOLDERS
        for entry in _listing(tables, folder)
        if entry.kind in PROGRAMS
    }


def _listing(tables: Tables, path: str) -> Iterable[DirectoryEntry]:
    """Return the entries of a folder; nothing if it does not exist or is a link."""
    entry, rest = tables.find(path)
    return () if rest or entry.kind != InodeKind.FOLDER else tables.listing(tables.folder(entry.place))


def _mentions(tables: Tables, program: str) -> bool:
    """Return whether a listing contains the name. One search in all listings takes milliseconds, a walk seconds."""
    at, end, blocks = tables.numbers.listing_table, tables.listings_end(), []
    while at < end:
        block, at = tables.block(at)
        blocks.append(block)
    return program.encode() in b"".join(blocks)


def _has_executable(tables: Tables, program: str) -> bool:
    """Return whether any folder contains an executable file, or a link, of that name."""
    name = program.encode()
    return any(
        entry.kind == InodeKind.LINK or (entry.kind == InodeKind.FILE and _mode(tables, entry) & EXECUTABLE)
        for _, entry in tables.walk()
        if entry.name == name
    )


def _mode(tables: Tables, entry: DirectoryEntry) -> int:
    _, mode, *_ = HEAD.unpack(tables.inode(entry.place, HEAD.size))
    return int(mode)
