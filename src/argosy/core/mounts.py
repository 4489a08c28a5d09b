"""Find the type of the file system that a path is on."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

ESCAPED = re.compile(r"\\([0-7]{3})")
"""The kernel writes blanks, tabs, line breaks and backslashes in octal, and other bytes unchanged; see proc(5)."""

IN_MEMORY = frozenset({"tmpfs", "ramfs"})
"""Types of file systems in memory, where gigabytes of packages could crash a node."""


def file_system_type(path: Path) -> str:
    """Return the type of the file system of a path, for example ``nfs4``; empty if it is not known."""
    with contextlib.suppress(OSError):
        text = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="surrogateescape")
        return parse_file_system(text, str(path.resolve()))
    return ""


def parse_file_system(mounts: str, path: str) -> str:
    """Return the type of the file system of a path in the text of ``/proc/mounts``; the last mount wins."""
    best, kind = "", ""
    for line in mounts.split("\n"):
        _, escaped, fs, *_ = *line.split(" "), "", "", ""
        point = ESCAPED.sub(lambda found: chr(int(found[1], 8)), escaped)
        if fs and (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, fs
    return kind


def in_memory(path: Path) -> bool:
    """Return whether a folder is in memory."""
    return file_system_type(path) in IN_MEMORY
