"""The bytes of a squashfs: one range of a file, or several ranges of it that follow each other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.images.sif.write import FileSlice


class SplitFile(msgspec.Struct, frozen=True):
    """Ranges of one file that together are a squashfs: the base inside a flat image."""

    slices: tuple[FileSlice, ...]

    @property
    def path(self) -> Path:
        """The file."""
        return self.slices[0].path

    @property
    def length(self) -> int:
        """The size of the squashfs, in bytes."""
        return sum(part.length for part in self.slices)

    def slice_at(self, at: int, length: int) -> FileSlice:
        """Return the range of the file with `length` bytes from byte `at` of the squashfs.

        Raises
        ------
        ValueError
            If these bytes are in several ranges.
        """
        start = 0
        for part in self.slices:
            if start <= at and at + length <= start + part.length:
                return part.slice_at(at - start, length)
            start += part.length
        raise ValueError(f"{length} bytes at byte {at} are not in one range")


Source = FileSlice | SplitFile
"""The place of the bytes of a squashfs."""


def slices_of(source: Source) -> tuple[FileSlice, ...]:
    """Return the ranges of the file, in order."""
    return source.slices if isinstance(source, SplitFile) else (source,)
