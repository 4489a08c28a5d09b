r"""The SIF format: its records, numbers and names. Nothing here opens a file.

The layout, little endian throughout (apptainer/sif, ``pkg/sif``; SIF version 01)::

    offset   size   HEADER, 128 bytes
    0          32   launch line, "#!/usr/bin/env run-singularity\n"
    32         10   magic, "SIF_MAGIC\0"
    42          3   version, "01\0"
    45          3   architecture of the primary system partition, "02\0" is amd64
    48         16   UUID of the file
    64       2 x 8  created, modified                   seconds since 1970
    80       2 x 8  descriptors: free, in all           counts
    96       2 x 8  descriptor table: offset, length    bytes     ---+
    112      2 x 8  data section: offset, length        bytes        |
    ...             a gap up to 4096                                 |
                    DESCRIPTOR, 585 bytes each, one per part     <---+
    +0          4   data type, 0x4001 ...
    +4          1   in use? (a removed part leaves an empty descriptor)
    +5          4   id, from 1
    +9          4   group | 0xf0000000                  0 under the mask: in no group
    +13         4   link: a part's id, or a group | 0xf0000000
    +17      3 x 8  data: offset, size, size with the padding before it ---+
    +41      2 x 8  created, modified                                      |
    +57      2 x 8  uid, gid                            unused             |
    +73       128   name                                                   |
    +201      384   extra: partition (file system i32, kind i32,           |
                    architecture 3 bytes), SBOM (format i32)               |
    ...             a gap, before a partition up to the next 4096          |
                    the part's bytes                                   <---+

Published images have gaps between these areas, so a reader must follow the offsets.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from argosy.core.errors import ImageError

if TYPE_CHECKING:
    from collections.abc import Mapping

HEADER = struct.Struct("<32s10s3s3s16s2q6q")
DESCRIPTOR = struct.Struct("<i?3I3q4q128s384s")
PARTITION_EXTRA = struct.Struct("<2i3s")
SBOM_EXTRA = struct.Struct("<i")
CYCLONEDX_JSON = 1
"""SIF's number for the format of a bill of materials."""

MAGIC = b"SIF_MAGIC\0"
MAGIC_OFFSET = 32
VERSION = b"01\0"
LAUNCH = b"#!/usr/bin/env run-singularity\n"
"""First line of a file: the kernel starts the file with this program."""
GROUP_MASK = 0xF000_0000
"""Set in every stored group id, and in a link to a group (DescrGroupMask in apptainer/sif)."""
DEFAULT_GROUP = 1
NAME_SIZE = 128
EXTRA_SIZE = 384


class DataType(IntEnum):
    """The content of a part. A file may contain other numbers: :func:`render_data_type` renders any number."""

    DEFINITION = 0x4001
    ENVIRONMENT = 0x4002
    LABELS = 0x4003
    PARTITION = 0x4004
    SIGNATURE = 0x4005
    JSON = 0x4006
    GENERIC = 0x4007
    CRYPTO_MESSAGE = 0x4008
    SBOM = 0x4009
    OCI_ROOT_INDEX = 0x400A
    OCI_BLOB = 0x400B


class FsKind(IntEnum):
    """The file system in a partition."""

    SQUASHFS = 1
    EXT3 = 2
    ARCHIVE = 3
    RAW = 4
    ENCRYPTED_SQUASHFS = 5
    GOCRYPTFS_SQUASHFS = 6


class PartKind(IntEnum):
    """The purpose of a partition."""

    SYSTEM = 1
    PRIMARY_SYSTEM = 2
    DATA = 3
    OVERLAY = 4


DATA_TYPES: Mapping[int, str] = {
    DataType.DEFINITION: "definition file",
    DataType.ENVIRONMENT: "environment variables",
    DataType.LABELS: "labels",
    DataType.PARTITION: "partition",
    DataType.SIGNATURE: "signature",
    DataType.JSON: "JSON object",
    DataType.GENERIC: "object",
    DataType.CRYPTO_MESSAGE: "cryptographic message",
    DataType.SBOM: "SBOM",
    DataType.OCI_ROOT_INDEX: "OCI root index",
    DataType.OCI_BLOB: "OCI blob",
}
INSPECT_NAME = "inspect-metadata.json"
"""The part in which ``apptainer build`` stores the output of ``apptainer inspect``, including the labels."""

ARCHES: Mapping[str, str] = {
    "00": "unknown",
    "01": "386",
    "02": "amd64",
    "03": "arm",
    "04": "arm64",
    "05": "ppc64",
    "06": "ppc64le",
    "07": "mips",
    "08": "mipsle",
    "09": "mips64",
    "10": "mips64le",
    "11": "s390x",
    "12": "riscv64",
}
"""SIF's code of an architecture -> Go's name of it, as in Apptainer and OCI."""


class SifPartition(msgspec.Struct, frozen=True):
    """The facts in a partition's descriptor.

    ``fs`` and ``kind`` are values of :class:`FsKind` and :class:`PartKind` if known; ``arch`` is Go's name.
    """

    fs: int
    kind: int
    arch: str

    def __str__(self) -> str:
        """Render the partition, for example ``overlay squashfs amd64``."""
        return f"{render_part_kind(self.kind)} {render_fs_kind(self.fs)} {self.arch}"


class SifHeader(msgspec.Struct, frozen=True):
    """The part of the first 128 bytes of the file that Argosy reads. Offsets and lengths are in bytes."""

    arch: str
    descriptors_free: int
    descriptors_total: int
    descriptors_offset: int
    descriptors_length: int
    data_offset: int
    data_length: int


class SifPart(msgspec.Struct, frozen=True):
    """A descriptor in use.

    ``group`` is without the mask, 0 for none. ``stored`` is the size with the padding before the data. ``name`` is
    printable: other characters are escaped. ``extra`` is without padding.
    """

    id: int
    datatype: int
    group: int
    offset: int
    size: int
    stored: int
    name: str
    extra: bytes

    @property
    def partition(self) -> SifPartition | None:
        """The partition's record; None if the part is not a partition."""
        if self.datatype != DataType.PARTITION:
            return None
        fs, kind, arch = PARTITION_EXTRA.unpack_from(self.extra.ljust(EXTRA_SIZE, b"\0"))
        return SifPartition(fs=fs, kind=kind, arch=render_arch(arch))

    @property
    def kind(self) -> str:
        """The kind of the part, for example ``primary system squashfs amd64`` or ``SBOM``."""
        return str(self.partition or render_data_type(self.datatype))

    @property
    def end(self) -> int:
        """The offset of the first byte after the part's data."""
        return self.offset + self.size

    def __str__(self) -> str:
        """Render the part, for example ``part 2 (primary system squashfs amd64)``."""
        return f"part {self.id} ({self.kind}{f' {self.name!r}' if self.name else ''})"


class Sif(msgspec.Struct, frozen=True):
    """The structure of a SIF file. All offsets and sizes are within the file."""

    path: Path
    size: int
    header: SifHeader
    parts: tuple[SifPart, ...]

    @property
    def system(self) -> SifPart | None:
        """The primary system partition: the root file system that a runtime mounts."""
        return next((part for part in self.parts if _is_kind(part, PartKind.PRIMARY_SYSTEM)), None)

    @property
    def overlays(self) -> tuple[SifPart, ...]:
        """The overlay partitions that a runtime mounts over the system partition, lowest first.

        Apptainer (pkg/image/sif.go) silently ignores overlays of another group, unless the system partition has no
        group.
        """
        group = self.system.group if self.system else 0
        overlays = (part for part in self.parts if _is_kind(part, PartKind.OVERLAY))
        return tuple(part for part in overlays if group in {0, part.group})

    def parts_of(self, datatype: int) -> tuple[SifPart, ...]:
        """Return the parts of a data type, in the order of the file."""
        return tuple(part for part in self.parts if part.datatype == datatype)

    def part_named(self, name: str) -> SifPart | None:
        """Return the first part with this name."""
        return next((part for part in self.parts if part.name == name), None)


def choose_system(sif: Sif) -> SifPart:
    """Return the primary system partition.

    Raises
    ------
    ImageError
        If the file has none: it contains data, not an image.
    """
    if sif.system is not None:
        return sif.system
    raise ImageError(
        f"{sif.path} has no root file system",
        evidence="read: " + (", ".join(map(str, sif.parts)) or "no parts") + "\nexpected: a primary system partition",
        hint="pass an image: this SIF file contains only data",
    )


def render_data_type(number: int) -> str:
    """Return the name of a data type; for an unknown one, its number."""
    return DATA_TYPES.get(number, f"type {number:#x}")


def _name_in(kinds: type[IntEnum], number: int) -> str:
    return next((kind.name.lower().replace("_", " ") for kind in kinds if kind == number), "")


def render_fs_kind(number: int) -> str:
    """Return the name of a partition's file system; for an unknown one, its number."""
    return _name_in(FsKind, number) or f"file system {number}"


def render_part_kind(number: int) -> str:
    """Return the name of a partition's purpose; for an unknown one, its number."""
    return _name_in(PartKind, number) or f"kind {number}"


def render_arch(code: bytes) -> str:
    """Return the name of a stored architecture code; for an unknown one, the code."""
    text = render_text(code)
    return ARCHES.get(text, f"architecture {text}")


def parse_arch(name: str) -> bytes:
    """Return the code of an architecture, for example ``amd64``.

    Raises
    ------
    ImageError
        If SIF has no code for that name.
    """
    code = next((code for code, known in ARCHES.items() if known == name), None)
    if code is None:
        raise ImageError(
            f"the SIF format does not support the architecture {name!r}",
            evidence="it supports " + ", ".join(ARCHES.values()),
            hint="use one of these names",
        )
    return code.encode() + b"\0"


def render_text(field: bytes) -> str:
    """Decode a NUL-padded text field. Escape unprintable characters, so that it cannot control a terminal."""
    text = field.rstrip(b"\0").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _is_kind(part: SifPart, kind: PartKind) -> bool:
    return part.partition is not None and part.partition.kind == kind
