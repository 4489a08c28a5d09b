"""Read SIF files, and check every number in them against the size of the file.

A file may come from a download, a full disk or a stranger. Whatever its bytes are, reading it results in a `Sif`, or in
an `ImageError` with the value that was read and the value that was expected.
"""

from __future__ import annotations

import contextlib
import os
import stat
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from argosy.core.errors import ImageError
from argosy.images.identify import identify_file
from argosy.images.sif import format as form
from argosy.images.sif.format import DataType, FsKind, PartKind, Sif, SifHeader, SifPart
from argosy.images.squashfs.superblock import read_superblock

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTORS_LIMIT = 1 << 16
"""Maximum number of descriptors to read (38 MB). Writers reserve 48, but a sparse file may claim millions."""
PART_LIMIT = 64 << 20
"""Objects in an image have kilobytes to a few megabytes. Partitions are mounted, not read."""

_RENEW = "the file is damaged or incomplete: copy, download or build it again"


class _Source(msgspec.Struct, frozen=True):
    """An open file, with the name and the size for error messages."""

    path: Path
    size: int
    descriptor: int

    def read(self, offset: int, size: int, what: str) -> bytes:
        """Read these bytes. They must be within the file."""
        if not (0 <= offset <= self.size and 0 <= size <= self.size - offset):
            raise self.fault(f"{what} at bytes {offset} to {offset + size}", f"within {self.size} bytes")
        chunks = bytearray()
        while len(chunks) < size:
            chunk = os.pread(self.descriptor, size - len(chunks), offset + len(chunks))
            if not chunk:
                raise self.fault(f"{what}: {len(chunks)} bytes", f"{size} bytes (the file shrinks while it is read)")
            chunks += chunk
        return bytes(chunks)

    def fault(self, read: object, expected: object) -> ImageError:
        """Return the error for an impossible number."""
        evidence = f"read: {read}\nexpected: {expected}"
        return ImageError(f"{self.path} is a damaged SIF image", evidence=evidence, hint=_RENEW)


def read_sif(path: str | os.PathLike[str]) -> Sif:
    """Read the header and the used descriptors of a SIF file, without the data of its parts.

    Raises
    ------
    ImageError
        If the file cannot be read, is not a SIF file, has another version, or contains an impossible number.
    """
    with _open_source(Path(path)) as source:
        header = _read_header(source)
        return Sif(path=source.path, size=source.size, header=header, parts=_read_parts(source, header))


def read_part(path: str | os.PathLike[str], part: SifPart, *, limit: int = PART_LIMIT) -> bytes:
    """Read the bytes of an object: a lock, a bill of materials, or labels.

    Raises
    ------
    ImageError
        If the object is larger than ``limit`` bytes, or outside of the file.
    """
    if part.size > limit:
        raise ImageError(
            f"{part} of {path} is too large to read",
            evidence=f"read: {part.size} bytes\nexpected: at most {limit}",
            hint="mount partitions; only small objects can be read",
        )
    with _open_source(Path(path)) as source:
        return source.read(part.offset, part.size, str(part)) if part.size else b""


def verify_sif(path: str | os.PathLike[str]) -> Sif:
    """Check that a SIF file is a complete image: structure, one system partition, squashfs in its partitions.

    Raises
    ------
    ImageError
        As raised by :func:`read_sif`. Also if parts overlap, there is not exactly one primary system partition, its
        architecture differs from the header's, runtimes would ignore an overlay, or a squashfs is incomplete.
    """
    sif = read_sif(path)
    system = form.choose_system(sif)
    for fault in _check_structure(sif, system):
        raise ImageError(f"{sif.path} is a damaged SIF image", evidence=fault, hint=_RENEW)
    for part in sif.parts_of(DataType.PARTITION):
        _verify_partition(sif, part)
    return sif


@contextlib.contextmanager
def _open_source(path: Path) -> Iterator[_Source]:
    try:
        # Opening a FIFO would block, and opening a device can have side effects.
        if not stat.S_ISREG(path.stat().st_mode):
            raise _foreign(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _foreign(path) from error
    try:
        yield _Source(path, os.fstat(descriptor).st_size, descriptor)
    except OSError as error:
        raise ImageError(
            f"cannot read {path}", evidence=str(error), hint="check whether its file system works"
        ) from error
    finally:
        os.close(descriptor)


def _foreign(path: Path) -> ImageError:
    found = identify_file(path)
    return ImageError(
        f"{path} is not a SIF image",
        evidence=f"read: {found.description}\nexpected: a SIF file (SIF_MAGIC at byte {form.MAGIC_OFFSET})",
        hint="pass an image made by argosy, apptainer or singularity, or convert this file with argosy build",
    )


def _read_header(source: _Source) -> SifHeader:
    magic_end = form.MAGIC_OFFSET + len(form.MAGIC)
    if source.size < magic_end or source.read(form.MAGIC_OFFSET, len(form.MAGIC), "magic") != form.MAGIC:
        raise _foreign(source.path)
    fields = form.HEADER.unpack(source.read(0, form.HEADER.size, "header"))
    _, _, version, arch, _, _, _, free, total, *spans = fields
    if version != form.VERSION:
        raise ImageError(
            f"{source.path} has an unknown SIF version",
            evidence=f"read: {form.render_text(version)}\nexpected: {form.render_text(form.VERSION)}",
            hint="update argosy, or rebuild the image with a current runtime",
        )
    header = SifHeader(
        arch=form.render_arch(arch),
        descriptors_free=free,
        descriptors_total=total,
        descriptors_offset=spans[0],
        descriptors_length=spans[1],
        data_offset=spans[2],
        data_length=spans[3],
    )
    _refuse_invalid_header(source, header)
    return header


def _refuse_invalid_header(source: _Source, header: SifHeader) -> None:
    total, offset, length = header.descriptors_total, header.descriptors_offset, header.descriptors_length
    if not 0 <= total <= DESCRIPTORS_LIMIT:
        raise source.fault(f"{total} descriptors", f"0 to {DESCRIPTORS_LIMIT}")
    if not 0 <= header.descriptors_free <= total:
        raise source.fault(f"{header.descriptors_free} free descriptors", f"0 to {total}")
    if not form.HEADER.size <= offset <= source.size:
        raise source.fault(f"descriptors at byte {offset}", f"{form.HEADER.size} to {source.size}, the file's size")
    if not total * form.DESCRIPTOR.size <= length <= source.size - offset:
        wanted = f"{total * form.DESCRIPTOR.size} ({total} descriptors) to {source.size - offset}, the file's rest"
        raise source.fault(f"descriptors of {length} bytes", wanted)
    # Descriptors contain the offsets of the data, and writers count differently here: refuse only impossible values.
    if header.data_offset < form.HEADER.size or header.data_length < 0:
        raise source.fault(
            f"{header.data_length} bytes of data at {header.data_offset}", "neither below the header's end"
        )


def _read_parts(source: _Source, header: SifHeader) -> tuple[SifPart, ...]:
    size = form.DESCRIPTOR.size
    table = source.read(header.descriptors_offset, header.descriptors_total * size, "descriptors")
    parts: dict[int, SifPart] = {}
    for fields in form.DESCRIPTOR.iter_unpack(table):
        if not fields[1]:
            continue  # a reserved descriptor, or one of a removed part
        part = _parse_part(fields)
        if part.id < 1 or part.id in parts:
            raise source.fault(f"a part with the id {part.id}", "ids from 1, each once")
        _refuse_invalid_part(source, header, part)
        parts[part.id] = part
    if len(parts) > header.descriptors_total - header.descriptors_free:
        raise source.fault(
            f"{len(parts)} parts", f"{header.descriptors_total - header.descriptors_free}, by the header"
        )
    return tuple(parts.values())


def _parse_part(fields: tuple[Any, ...]) -> SifPart:
    datatype, _, part_id, group, _, offset, size, stored, _, _, _, _, name, extra = fields
    return SifPart(
        id=part_id,
        datatype=datatype,
        group=group & ~form.GROUP_MASK,
        offset=offset,
        size=size,
        stored=stored,
        name=form.render_text(name),
        extra=extra.rstrip(b"\0"),
    )


def _refuse_invalid_part(source: _Source, header: SifHeader, part: SifPart) -> None:
    if min(part.offset, part.size, part.stored) < 0:
        raise source.fault(f"{part}: {part.size} bytes at {part.offset}, {part.stored} with padding", "none negative")
    if part.size == 0:
        return  # apptainer aligns the offset of an empty part, which may then be after the end of the file
    if not (form.HEADER.size <= part.offset <= source.size and part.size <= source.size - part.offset):
        raise source.fault(f"{part} at bytes {part.offset} to {part.end}", f"within {source.size}, the file's size")
    table_end = header.descriptors_offset + header.descriptors_total * form.DESCRIPTOR.size
    if part.offset < table_end and part.end > header.descriptors_offset:
        span = f"{header.descriptors_offset} to {table_end}"
        raise source.fault(f"{part} at bytes {part.offset} to {part.end}", f"outside of the descriptors at {span}")


def _check_structure(sif: Sif, system: SifPart) -> Iterator[str]:
    """Yield the contradictions between parts, each as the evidence of an error."""
    partitions = [(part, part.partition) for part in sif.parts if part.partition]
    systems = [part for part, partition in partitions if partition.kind == PartKind.PRIMARY_SYSTEM]
    if len(systems) > 1:
        yield f"read: {', '.join(map(str, systems))}\nexpected: one primary system partition"
    if system.partition and system.partition.arch != sif.header.arch:
        yield f"read: {system} in a file for {sif.header.arch}\nexpected: the same architecture"
    for part, partition in partitions:
        if partition.kind == PartKind.OVERLAY and part not in sif.overlays:
            yield f"read: {part} in group {part.group}\nexpected: {system.group}, the group of {system}"
    for before, after in pairwise(sorted((part for part in sif.parts if part.size), key=lambda part: part.offset)):
        if before.end > after.offset:
            yield f"read: {after} at byte {after.offset}\nexpected: behind {before}, which ends at {before.end}"


def _verify_partition(sif: Sif, part: SifPart) -> None:
    if part.partition is None or part.partition.fs != FsKind.SQUASHFS:
        return
    used = read_superblock(sif.path, part.offset).bytes_used
    if used > part.size:
        evidence = f"read: a squashfs of {used} bytes in {part}\nexpected: at most {part.size}, the partition's size"
        raise ImageError(f"{sif.path} is a damaged SIF image", evidence=evidence, hint=_RENEW)
