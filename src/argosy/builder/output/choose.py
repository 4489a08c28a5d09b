"""Decide whether a SIF image has one partition (flat), or one for the base and one for the layer (delta); pure."""

from __future__ import annotations

import msgspec

from argosy.core.model import Image
from argosy.core.records import replace
from argosy.images.squashfs.pack import COMPRESSION
from argosy.images.squashfs.superblock import Superblock

TIMES_SLOWER = "3 times"
"""CPU time of packing with gzip at level 1 to that with zstd at level 1: 3.1 for PyTorch's libraries, 128 KiB blocks.

Level 9, the default of mksquashfs, takes 23 times as long. If a flat image may cost at most twice the CPU time of a
delta image, the base must be compressed with zstd. A whole build of 19 packages (432 MB) whose wheels are in the cache
takes 1.2 s of CPU time in both forms over a base with Argosy's own packing, and over one with gzip 6.7 s instead of
1.3 s.
"""


class Partitions(msgspec.Struct, frozen=True):
    """The form of a SIF image, and why it was chosen."""

    flat: bool
    why: str

    def __str__(self) -> str:
        """Render the form for the report of a build."""
        form = "one partition (flat)" if self.flat else "base and layer as two partitions (delta)"
        return f"{form}: {self.why}"


FLAT = Partitions(flat=True, why="")


def choose_partitions(
    *, asked: bool | None, base: Image, packing: Superblock, built: bool, opt_is_link: bool = False
) -> Partitions:
    """Choose the form of an image over a base.

    Parameters
    ----------
    asked
        Whether the user asked for a flat image; None for the default.
    packing
        The superblock of the base.
    built
        Whether the base is an image that Argosy built.
    opt_is_link
        Whether ``/opt`` of the base is a link. In one partition, unsquashfs would not find the layer below it.
    """
    if asked is not None:
        return Partitions(asked, "as requested")
    if opt_is_link:
        return Partitions(flat=False, why="/opt of the base is a link")
    if built and base.layer_offset >= 0:
        return Partitions(flat=False, why="the base image has its layer in a partition of its own")
    if packing.compressor == COMPRESSION:
        return Partitions(flat=True, why=f"the base has {COMPRESSION} blocks, as the new packages")
    blocks = f"the base has {packing.compressor} blocks of {packing.block_size >> 10} KiB"
    if packing.compressor == "gzip":
        return Partitions(flat=False, why=f"{blocks}, and packing with gzip takes {TIMES_SLOWER} the CPU time")
    return Partitions(flat=False, why=f"{blocks}, so that one partition needs packing all of it again")


def keep_apart(chosen: Partitions, *, asked: bool | None, removes_files: bool) -> Partitions:
    """Return the form for a layer that is installed: one that removes files of the base stays apart.

    One partition without these files would have to be packed as a whole, so that they are not in it.
    """
    if asked is None and chosen.flat and removes_files:
        return replace(chosen, flat=False, why="steps removed files of the base")
    return chosen
