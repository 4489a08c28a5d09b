"""Write SIF files: the same bytes for the same parts.

A base partition is copied byte for byte by the kernel, if possible. On file systems with shared blocks (XFS, btrfs),
``copy_file_range`` makes the new file refer to the blocks of the old one, and reads no data.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from argosy.core.errors import CheckFailed, ImageError
from argosy.core.os_errors import explain_os_error
from argosy.images.sif import format as form
from argosy.images.sif.format import DataType, FsKind, PartKind

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterable, Iterator, Sequence

    from argosy.images.sif.begin import BegunFile
    from argosy.images.sif.format import Sif, SifPart

ALIGNMENT = 4096
"""In bytes. Partitions begin at a page, as in Apptainer's files: kernel mounts and block sharing require it."""
DESCRIPTORS_OFFSET = 4096
DESCRIPTORS = 48
"""Number of descriptors that Apptainer reserves, so that signatures and objects can be added later."""
CHUNK = 16 << 20
"""Number of bytes to copy at a time. Signals are handled between two chunks."""
PLAIN_CHUNK = 1 << 20
"""Number of bytes in memory if the kernel cannot copy.

They stay in the processor's cache between reading and writing. Larger writes are slower in some virtual machines: Linux
allocates runs of pages as long as a write, and the machine may have returned long runs of free pages to its host.
"""

NO_KERNEL_COPY = frozenset(
    {errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EPERM, errno.EACCES, errno.EBADF, errno.EIO}
)
"""Errors of copy_file_range without support: network file systems, seccomp, and two file systems.

Linux 5.3 to 5.18 copies between any two file systems, later versions between few: not from one ext4 to another.
"""


class FileSlice(msgspec.Struct, frozen=True):
    """A range of a file: ``length`` bytes from ``offset``."""

    path: Path
    offset: int
    length: int

    def __post_init__(self) -> None:
        """Refuse negative values."""
        if self.offset < 0 or self.length < 0:
            raise ValueError(f"no file has {self.length} bytes at {self.offset}")

    def slice_at(self, at: int, length: int) -> FileSlice:
        """Return `length` bytes from byte `at` of this range."""
        return FileSlice(self.path, self.offset + at, length)


def whole_of(path: Path) -> FileSlice:
    """Return the range of all bytes of a file."""
    return FileSlice(path, 0, path.stat().st_size)


Piece = bytes | FileSlice
"""A piece of a part: bytes in memory, or a range of a file."""
AnyPiece = TypeVar("AnyPiece", bound=Piece)


class NewPart(msgspec.Struct, frozen=True):
    """A part to write, without a link to another one. ``group`` is without the mask, 0 for none.

    Parts get their ids in the order of writing, from 1.
    """

    datatype: int
    source: Piece | tuple[Piece, ...]
    name: str = ""
    group: int = form.DEFAULT_GROUP
    extra: bytes = b""

    def __post_init__(self) -> None:
        """Refuse values that do not fit into a descriptor."""
        if len(self.name.encode()) > form.NAME_SIZE or "\0" in self.name:
            raise ValueError(f"a part's name has at most {form.NAME_SIZE} bytes and no NUL: {self.name!r}")
        if len(self.extra) > form.EXTRA_SIZE:
            raise ValueError(f"a descriptor holds {form.EXTRA_SIZE} bytes of extra, not {len(self.extra)}")
        if self.group & ~form.GROUP_MASK != self.group:
            raise ValueError(f"group {self.group} does not fit into 28 bits")

    @property
    def size(self) -> int:
        """The size of the data, in bytes."""
        return sum(len(piece) if isinstance(piece, bytes) else piece.length for piece in self.pieces)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces of the data, in order."""
        return self.source if isinstance(self.source, tuple) else (self.source,)


class _Placed(msgspec.Struct, frozen=True):
    """A part with its position in the file."""

    part: NewPart
    offset: int
    stored: int


def plan_system_part(source: FileSlice | tuple[Piece, ...], *, arch: str) -> NewPart:
    """Plan the primary system partition from a squashfs, for an architecture, for example ``amd64``."""
    extra = render_partition_extra(FsKind.SQUASHFS, PartKind.PRIMARY_SYSTEM, arch=arch)
    return NewPart(DataType.PARTITION, source, extra=extra)


def plan_overlay_part(
    source: FileSlice | tuple[Piece, ...], *, arch: str, name: str = "", group: int = form.DEFAULT_GROUP
) -> NewPart:
    """Plan a squashfs overlay partition. To be mounted, it must have the group of the system partition."""
    extra = render_partition_extra(FsKind.SQUASHFS, PartKind.OVERLAY, arch=arch)
    return NewPart(DataType.PARTITION, source, name=name, group=group, extra=extra)


def plan_json_part(name: str, data: bytes, *, group: int = form.DEFAULT_GROUP) -> NewPart:
    """Plan a JSON object."""
    return NewPart(DataType.JSON, data, name=name, group=group)


def plan_sbom_part(name: str, data: bytes, *, group: int = form.DEFAULT_GROUP) -> NewPart:
    """Plan a bill of materials in CycloneDX JSON."""
    extra = form.SBOM_EXTRA.pack(form.CYCLONEDX_JSON)
    return NewPart(DataType.SBOM, data, name=name, group=group, extra=extra)


def plan_copied_part(sif: Sif, part: SifPart) -> NewPart:
    """Plan a byte-for-byte copy of a part of another SIF file, with its group and without its link.

    Ids change, so a link would be wrong. Do not copy signatures: they are meaningless without their link.
    """
    source = FileSlice(sif.path, part.offset, part.size)
    return NewPart(part.datatype, source, name=part.name[: form.NAME_SIZE], group=part.group, extra=part.extra)


def render_partition_extra(fs: int, kind: int, *, arch: str) -> bytes:
    """Return the extra field of a partition's descriptor."""
    return form.PARTITION_EXTRA.pack(fs, kind, form.parse_arch(arch))


def write_sif(
    path: str | os.PathLike[str],
    parts: Sequence[NewPart],
    *,
    uuid: uuid.UUID,
    time: int,
    arch: str,
    begun: BegunFile | None = None,
) -> None:
    """Write a new SIF file and sync it to disk; on failure, remove it.

    Pass a temporary name next to the final one, and rename the file afterwards.

    Parameters
    ----------
    path
        The file to create.
    parts
        The parts, in this order.
    uuid
        The file's identity. If it is derived from the content, equal builds have equal bytes.
    time
        Seconds since 1970, for all times in the file.
    arch
        The architecture of the primary system partition, for example ``amd64``.
    begun
        A file next to this one that has some of the content already.

    Raises
    ------
    CheckFailed
        If the file exists, or cannot be written (disk full, no permission).
    ImageError
        If a part's source cannot be read or is too short, or SIF does not support the architecture.
    """
    placed = tuple(_place(parts))
    head = _pack_header(placed, uuid=uuid, time=time, arch=arch)
    table = b"".join(_pack_descriptor(number, each, time=time) for number, each in enumerate(placed, start=1))
    target = Path(path)
    pieces = tuple(pair for each in placed for pair in place_pieces(each.offset, each.part.pieces))
    written = begun.move_to(target, pieces) if begun else frozenset()
    with new_file(target, exists=bool(written)) as descriptor, _write_faults(target):
        _write_all(descriptor, head, 0)
        _write_all(descriptor, table, DESCRIPTORS_OFFSET)
        os.truncate(descriptor, _end(placed))
        _write_at(descriptor, (pair for pair in pieces if pair not in written))
        os.fsync(descriptor)


def write_pieces(path: Path, pieces: Iterable[Piece]) -> None:
    """Write pieces in sequence into a new file and sync it to disk.

    Raises
    ------
    CheckFailed, ImageError
        As raised by `write_sif`.
    """
    with new_file(path) as descriptor, _write_faults(path):
        _write_at(descriptor, place_pieces(0, pieces))
        os.fsync(descriptor)


def _place(parts: Sequence[NewPart]) -> Iterator[_Placed]:
    position = _table_end(len(parts))
    for part in parts:
        alignment = ALIGNMENT if part.datatype == DataType.PARTITION else 1
        offset = -(-position // alignment) * alignment
        yield _Placed(part, offset=offset, stored=offset + part.size - position)
        position = offset + part.size


def partition_offset(before: Sequence[NewPart]) -> int:
    """Return the position of a partition that follows these parts, in a file with at most `DESCRIPTORS` parts."""
    position = _table_end(DESCRIPTORS) + sum(part.size for part in before)
    return -(-position // ALIGNMENT) * ALIGNMENT


def _table_end(count: int) -> int:
    return DESCRIPTORS_OFFSET + max(count, DESCRIPTORS) * form.DESCRIPTOR.size


def _end(placed: Sequence[_Placed]) -> int:
    return placed[-1].offset + placed[-1].part.size if placed else _table_end(0)


def _pack_header(placed: Sequence[_Placed], *, uuid: uuid.UUID, time: int, arch: str) -> bytes:
    total, data = max(len(placed), DESCRIPTORS), _table_end(len(placed))
    counts = (total - len(placed), total, DESCRIPTORS_OFFSET, total * form.DESCRIPTOR.size, data, _end(placed) - data)
    return form.HEADER.pack(
        form.LAUNCH, form.MAGIC, form.VERSION, form.parse_arch(arch), uuid.bytes, time, time, *counts
    )


def _pack_descriptor(number: int, placed: _Placed, *, time: int) -> bytes:
    part = placed.part
    return form.DESCRIPTOR.pack(
        part.datatype,
        True,
        number,
        part.group | form.GROUP_MASK,
        0,
        placed.offset,
        part.size,
        placed.stored,
        time,
        time,
        0,
        0,
        part.name.encode(),
        part.extra,
    )


@contextlib.contextmanager
def new_file(path: Path, *, exists: bool = False) -> Iterator[int]:
    """Create a file, or open the begun one if it exists, and remove it if an error occurs."""
    flags = os.O_RDWR | os.O_CLOEXEC | (0 if exists else os.O_CREAT | os.O_EXCL)
    with _write_faults(path):
        # Executable, as Apptainer's files are: the launch line starts the image.
        descriptor = os.open(path, flags, 0o755)
    try:
        yield descriptor
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _write_faults(path: Path) -> Iterator[None]:
    try:
        yield
    except FileExistsError as error:
        raise CheckFailed(f"{path} already exists", hint="remove it, or choose another file name") from error
    except OSError as error:
        raise explain_os_error(error, path.parent) from error


def place_pieces(offset: int, pieces: Iterable[AnyPiece]) -> Iterator[tuple[int, AnyPiece]]:
    """Return pieces that follow each other, with their positions."""
    for piece in pieces:
        yield offset, piece
        offset += len(piece) if isinstance(piece, bytes) else piece.length


def _write_at(descriptor: int, pieces: Iterable[tuple[int, Piece]]) -> None:
    for offset, piece in pieces:
        if isinstance(piece, bytes):
            _write_all(descriptor, piece, offset)
        else:
            copy_slice(descriptor, piece, offset)


def copy_slice(descriptor: int, source: FileSlice, offset: int) -> None:
    """Copy a range of a file to a position of an open file.

    Raises
    ------
    ImageError
        If the range cannot be read.
    OSError
        If the file cannot be written.
    """
    with _open_slice(source) as origin:
        done = 0
        while done < source.length:
            span = (min(CHUNK, source.length - done), source.offset + done, offset + done)
            done += _copy_in_kernel(origin, descriptor, *span) or _copy_plainly(
                origin, descriptor, *span, source=source
            )


@contextlib.contextmanager
def _open_slice(source: FileSlice) -> Iterator[int]:
    try:
        origin = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise _source_fault(source, error.strerror or str(error)) from error
    try:
        size = os.fstat(origin).st_size
        if source.offset + source.length > size:
            raise _source_fault(source, f"{size} bytes")
        yield origin
    finally:
        os.close(origin)


def _copy_in_kernel(origin: int, target: int, count: int, start: int, offset: int) -> int:
    # A Python that was built for a glibc before 2.27 lacks the call: those of uv and of Argosy's bundle.
    if not hasattr(os, "copy_file_range"):
        return 0
    try:
        return os.copy_file_range(origin, target, count, start, offset)
    except OSError as error:
        if error.errno in NO_KERNEL_COPY:
            return 0
        raise


def _copy_plainly(origin: int, target: int, count: int, start: int, offset: int, *, source: FileSlice) -> int:
    try:
        data = os.pread(origin, min(count, PLAIN_CHUNK), start)
    except OSError as error:
        raise _source_fault(source, error.strerror or str(error)) from error
    if not data:
        raise _source_fault(source, f"its end at {start}: it shrank")
    _write_all(target, data, offset)
    return len(data)


def _source_fault(source: FileSlice, read: str) -> ImageError:
    return ImageError(
        f"cannot copy {source.path} into an image",
        evidence=f"read: {read}\nexpected: {source.length} bytes from {source.offset}",
        hint="check that the file exists, is readable and complete, and try again",
    )


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
