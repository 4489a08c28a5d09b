"""Measure the peak disk and memory use of a build."""

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
    """Record the peak use of a build.

    Attributes
    ----------
    new
        Bytes of the layer's tree on disk: the unpacked new files of the image.
    disk
        Peak bytes on disk of work files and output, without the cache.
    memory
        Bytes of the largest process among this one and its children.
    """

    new: int
    disk: int
    memory: int


def disk_use(path: Path, *, without: Path | None = None) -> int:
    """Return the bytes of a file or tree on disk, counting hard links once; 0 if it does not exist."""
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
        # Some folders are readable only for the kernel, for example the work folder of an overlay.
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
    """Measure the use now, and return the maximum of this and `before`; with `before`, the tree is not walked again."""
    new = before.new if before else disk_use(tree)
    disk = new + disk_use(work, without=tree) + (disk_use(output) if output else 0)
    return Cost(new, max(disk, before.disk if before else 0), _peak_memory())


def _peak_memory() -> int:
    """Return the peak memory in bytes of this process and of the children that it waited for."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * KIBIBYTE
