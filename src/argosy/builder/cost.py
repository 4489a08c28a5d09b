"""Measure what a build cost beside time: disk and memory at their highest."""

from __future__ import annotations

import os
import resource
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

BLOCK = 512
KIBIBYTE = 1024


class Cost(msgspec.Struct, frozen=True):
    """What a build took.

    Attributes
    ----------
    new
        Bytes of the layer's tree on disk: what is new in the image, unpacked.
    disk
        Bytes on disk at the highest point seen: work files and the output; the cache, which stays, is not counted.
    memory
        Bytes of the largest process, this one and all that it started.
    """

    new: int
    disk: int
    memory: int


def disk_use(path: Path, *, without: Path | None = None) -> int:
    """Add up the blocks of a file or a tree, a file with several names once; 0 where there is nothing."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    total = status.st_blocks * BLOCK
    if not stat.S_ISDIR(status.st_mode):
        return total
    seen: set[int] = set()
    folders = [str(path)]
    skipped = str(without)
    while folders:
        # A folder that the kernel keeps to itself, as an overlay's work folder, is not ours to count.
        with suppress(PermissionError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                status = entry.stat(follow_symlinks=False)
                if entry.path == skipped or (status.st_nlink > 1 and status.st_ino in seen):
                    continue
                total += status.st_blocks * BLOCK
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                elif status.st_nlink > 1:
                    seen.add(status.st_ino)
    return total


def measure_cost(work: Path, tree: Path, output: Path | None = None, *, before: Cost | None = None) -> Cost:
    """Measure now; with what was measured `before`, the higher of both, and the tree is not walked again."""
    new = before.new if before else disk_use(tree)
    disk = new + disk_use(work, without=tree) + (disk_use(output) if output else 0)
    return Cost(new, max(disk, before.disk if before else 0), _peak_memory())


def _peak_memory() -> int:
    """Give the bytes of the largest process since this one began: itself, and each that it waited for."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * KIBIBYTE
