"""Find out for which architecture the programs of an image are, if the image does not record it."""

from __future__ import annotations

import os
import posixpath
import struct
from pathlib import Path

from argosy.core.errors import ImageError
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.host.architectures import ELF64, MACHINES, go_arch
from argosy.images.rootfs import MAX_LINKS, resolve_in_root
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.tables import (
    BLOCK_BYTES,
    EXTENDED,
    FILE,
    FRAGMENT,
    HEAD,
    LARGE_FILE,
    NOTHING,
    SIZE,
    InodeKind,
    Tables,
    open_tables,
    parts_of,
)

SHELL = "/bin/sh"
"""The program whose header is read: each container starts it first."""

HEADER_BYTES = 20
"""The first bytes of an ELF file, to the end of e_machine (elf(5))."""

LARGEST_BLOCK = 1 << 20
"""Size of the largest block of a squashfs, in bytes. The file gives a place in a block, which may be larger."""

LONGEST_TARGET = 4096
"""Length of the longest target of a link that Linux accepts, in bytes."""

LINK = struct.Struct("<2I")
"""A symbolic link after the head: number of hard links, length of the target, which follows."""


def with_architecture(image: Image) -> Image:
    """Return an image with the architecture of its shell, if the image does not record one."""
    if image.arch or image.kind not in {ImageKind.SQUASHFS, ImageKind.TREE}:
        return image
    try:
        header = _header_in_tree(image) if image.kind is ImageKind.TREE else _header_in_squashfs(image)
    except (ImageError, OSError):  # damaged, or compressed by something other than gzip and zstd
        return image
    return replace(image, arch=_parse_header(header))


def _parse_header(header: bytes) -> str:
    """Return Go's name of the architecture in an ELF header; empty for an unknown one, and for another file."""
    if len(header) < HEADER_BYTES or not header.startswith(bytes.fromhex(ELF64)):
        return ""
    machine = MACHINES.get(int.from_bytes(header[18:20], "little"))
    return go_arch(machine) if machine else ""


def _header_in_tree(image: Image) -> bytes:
    shell = resolve_in_root(Path(image.path), SHELL)
    if not shell.is_file():
        return b""
    with shell.open("rb") as file:
        return file.read(HEADER_BYTES)


def _header_in_squashfs(image: Image) -> bytes:
    with open_tables(FileSlice(Path(image.path), image.base_offset, image.base_size)) as tables:
        place = _find_file(tables, SHELL)
        return _first_bytes(tables, place) if place is not None else b""


def _find_file(tables: Tables, path: str) -> int | None:
    """Return the reference to the inode of a file, also behind links; None if there is none."""
    for _ in range(MAX_LINKS):
        found = tables.find(path)
        if found.entry.kind == InodeKind.FILE and not found.rest:
            return found.entry.place
        if found.entry.kind != InodeKind.LINK:
            return None
        names = [name for name in path.split("/") if name]
        above = names[: len(names) - len(found.rest) - 1]
        rest = map(os.fsdecode, found.rest)
        path = posixpath.normpath(posixpath.join("/", *above, _target(tables, found.entry.place), *rest))
    return None


def _target(tables: Tables, place: int) -> str:
    _, length = LINK.unpack(tables.inode(place, HEAD.size + LINK.size)[HEAD.size :])
    if length > LONGEST_TARGET:
        raise ImageError(f"{tables.source.path} has a link with a target of {length} bytes")
    return os.fsdecode(tables.inode(place, HEAD.size + LINK.size + length)[HEAD.size + LINK.size :])


def _first_bytes(tables: Tables, place: int) -> bytes:
    """Return the first bytes of a file: they are in its first block, or in a fragment that it shares with others."""
    start, fragment, sizes = parts_of(tables, place)
    offset = 0
    if sizes:
        (size,) = SIZE.unpack_from(sizes)
    elif fragment != NOTHING:
        listed = tables.records(tables.numbers.fragment_table, tables.numbers.fragments, FRAGMENT.size)
        start, size, _ = FRAGMENT.unpack_from(listed, fragment * FRAGMENT.size)
        offset = _offset_in_fragment(tables, place)
    else:
        return b""
    most = offset + HEADER_BYTES
    if most > LARGEST_BLOCK:
        return b""
    data = tables.read(start, size & BLOCK_BYTES)
    return (data if size & ~BLOCK_BYTES else tables.unpack(data, most))[offset:most]


def _offset_in_fragment(tables: Tables, place: int) -> int:
    kind, *_ = HEAD.unpack(tables.inode(place, HEAD.size))
    if kind == InodeKind.FILE + EXTENDED:
        return int(LARGE_FILE.unpack_from(tables.inode(place, HEAD.size + LARGE_FILE.size), HEAD.size)[5])
    return int(FILE.unpack_from(tables.inode(place, HEAD.size + FILE.size), HEAD.size)[2])
