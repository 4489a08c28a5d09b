"""Whiteouts, the marks by which a layer says that a file of the base is gone: character devices 0:0.

The kernel's overlay and fuse-overlayfs understand them in any layer.  Since Linux 5.8 everybody may make them, but
unsquashfs leaves devices out for everybody who is not root: what was removed would come back without a word.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from argosy.core.errors import CheckFailed

FUSE_WHITEOUT = ".wh."
"""The mark of fuse-overlayfs where such a device cannot be made: an empty file with this before its name."""

MODE = stat.S_IFCHR | 0o644
LISTED = re.compile(r"c[-rwxsStT]{9} \S+ +0, *0 \d{4}-\d\d-\d\d \d\d:\d\d /(.+)")
"""A whiteout in what ``unsquashfs -lls -d ''`` prints."""


def is_whiteout(path: Path) -> bool:
    """Tell whether a path is the mark of a removed file."""
    status = path.lstat()
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def write_whiteout(path: Path) -> None:
    """Mark a file as removed.

    Raises
    ------
    CheckFailed
        When this user may not on this kernel.
    """
    try:
        os.mknod(path, MODE, 0)
    except PermissionError as error:
        raise CheckFailed(
            "what steps removed cannot be marked as removed here",
            evidence=f"mknod {path.name} c 0 0: {error.strerror}; ordinary users may since Linux 5.8",
            hint="build on a machine with a newer kernel, or as root",
        ) from error


def parse_whiteouts(listing: str) -> tuple[str, ...]:
    """Give the paths of removed files out of what ``unsquashfs -lls -d ''`` prints."""
    return tuple(found[1] for line in listing.splitlines() if (found := LISTED.fullmatch(line)))


def restore_whiteouts(tree: Path, paths: tuple[str, ...]) -> None:
    """Put whiteouts into an unpacked tree that unsquashfs left out.

    On a kernel that forbids it fuse-overlayfs joins trees for ordinary users, and knows the other mark.
    """
    for name in paths:
        path = tree / name
        if os.path.lexists(path) or not path.parent.resolve().is_relative_to(tree.resolve()):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.mknod(path, MODE, 0)
        except PermissionError:
            path.with_name(f"{FUSE_WHITEOUT}{path.name}").touch()
