"""Turn the changes of a base (the upper layer of an overlay) into a part of the image's layer.

Whiteouts mark removed files.  They are character devices 0:0, which the kernel's overlay and fuse-overlayfs understand
in any layer, including a squashfs.  An extended attribute marks a folder that was removed and created again (opaque).
Argosy's squashfs files have no extended attributes, so each old entry of such a folder gets a whiteout instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from argosy.images.whiteouts import FUSE_WHITEOUT, is_whiteout, write_whiteout

OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque", "user.fuseoverlayfs.opaque")
FUSE_OPAQUE = ".wh..wh..opq"


def complete_changes(upper: Path, entries_of: Callable[[str], tuple[str, ...]]) -> None:
    """Convert all kinds of whiteouts and opaque marks into character devices 0:0.

    Parameters
    ----------
    entries_of
        Returns the names in a folder of the base.
    """
    for folder in list(_folders(upper)):
        opaque = _is_opaque(folder)
        for entry in list(folder.iterdir()):
            if entry.name == FUSE_OPAQUE:
                entry.unlink()
                opaque = True
            elif entry.name.startswith(FUSE_WHITEOUT):
                entry.unlink()
                write_whiteout(folder / entry.name.removeprefix(FUSE_WHITEOUT))
            elif is_whiteout(entry) and entry.lstat().st_nlink > 1:
                # The kernel's whiteouts are hard links of one inode; unsquashfs without root fails on them.
                entry.unlink()
                write_whiteout(entry)
        if opaque:
            held = {entry.name for entry in folder.iterdir()}
            for name in entries_of(str(folder.relative_to(upper))):
                if name not in held:
                    write_whiteout(folder / name)


def _folders(upper: Path) -> Iterator[Path]:
    for folder, _, _ in os.walk(upper):
        yield Path(folder)


def _is_opaque(folder: Path) -> bool:
    for name in OPAQUE:
        try:
            if os.getxattr(folder, name) == b"y":
                return True
        except OSError:
            continue
    return False


def move_changes(upper: Path, tree: Path) -> bool:
    """Move the changes into a layer's tree, replacing what is there; return whether there were any."""
    found = False
    for entry in upper.iterdir():
        there = tree / entry.name
        both = entry.is_dir() and not entry.is_symlink() and there.is_dir() and not there.is_symlink()
        if both:
            found = move_changes(entry, there) or found
            continue
        if there.is_symlink() or there.exists():
            shutil.rmtree(there) if there.is_dir() and not there.is_symlink() else there.unlink()
        entry.rename(there)
        found = True
    return found


def drop_mount_points(upper: Path, bound: Iterable[str]) -> None:
    """Remove the empty mount points that bind mounts left behind."""
    for path in bound:
        target = upper / path.lstrip("/")
        if target.is_symlink() or not target.exists():
            continue
        if target.is_file() and target.stat().st_size == 0:
            target.unlink()
        elif target.is_dir() and not any(target.iterdir()):
            target.rmdir()
        parent = target.parent
        while not target.exists() and parent != upper and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent
