"""Find the base and the layer of a flat image, whose only partition holds both.

`argosy.images.squashfs.join` copies the contents of the base's files unchanged, and writes other tables. A flat image
therefore has one more part, with the base's own superblock and tables. Together with the contents of the files they are
the base, byte for byte::

    argosy.base   superblock | tables of the base
    partition     superblock | files of the base | files of the layer | tables of both

A file or folder belongs to the layer if the number of its inode is higher than those of the base.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.core.errors import ImageError
from argosy.core.model import Image
from argosy.images.sif.format import DataType, Sif, SifPart
from argosy.images.sif.write import FileSlice, NewPart
from argosy.images.squashfs.superblock import SUPERBLOCK, Source, SplitFile, read_superblock, superblock_of

BASE_NAME = "argosy.base"
"""Name of the part with the superblock and the tables of the base."""


class FlatLayer(msgspec.Struct, frozen=True):
    """The layer in a flat image: the files of the partition that the base does not have."""

    whole: FileSlice
    base: SplitFile

    @property
    def path(self) -> Path:
        """The image file."""
        return self.whole.path


def plan_base_part(base: Source) -> NewPart:
    """Plan the part with the superblock and the tables of a base whose files a flat image contains."""
    end = superblock_of(base).data_end
    pieces = (base.slice_at(0, SUPERBLOCK.size), base.slice_at(end, base.length - end))
    return NewPart(DataType.GENERIC, pieces, name=BASE_NAME)


def find_base_spans(sif: Sif, system: SifPart) -> tuple[tuple[int, int], ...]:
    """Return offset and size of each range of a SIF file that belongs to the base, in order.

    Raises
    ------
    ImageError
        If the part that describes the base is damaged.
    """
    part = sif.part_named(BASE_NAME)
    if part is None:
        return ((system.offset, system.size),)
    end = read_superblock(sif.path, part.offset).data_end
    head = SUPERBLOCK.size
    if not (head <= end <= system.size and head < part.size):
        raise ImageError(
            f"{sif.path} is a damaged SIF image",
            evidence=f"read: {part}, {part.size} bytes, for {end} bytes of {system}",
            hint="copy, download or build it again",
        )
    return ((part.offset, head), (system.offset + head, end - head), (part.offset + head, part.size - head))


def base_source(image: Image) -> Source:
    """Return the bytes of the base of an image; the whole file system if the image has no separate base."""
    return source_of(Path(image.path), image.base_spans or ((image.base_offset, image.base_size),))


def source_of(path: Path, spans: tuple[tuple[int, int], ...]) -> Source:
    """Return the squashfs in some ranges of a file."""
    slices = tuple(FileSlice(path, offset, size) for offset, size in spans)
    return SplitFile(slices) if len(slices) > 1 else slices[0]


def layer_source(image: Image) -> FileSlice | FlatLayer | None:
    """Return the place of the layer of an image; None if it has none, or if it cannot be separated from the base."""
    path = Path(image.path)
    if image.layer_offset >= 0:
        return FileSlice(path, image.layer_offset, image.layer_size)
    base = base_source(image)
    return FlatLayer(FileSlice(path, image.base_offset, image.base_size), base) if isinstance(base, SplitFile) else None
