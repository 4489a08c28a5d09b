"""Turn what programs changed in a base's root (the upper layer of an overlay) into a part of the image's layer.

Whiteouts, the marks of removed files, are character devices 0:0, which the kernel's overlay and fuse-overlayfs
understand in any layer, a squashfs too.  The mark of a folder that was removed and made again (opaque) is an extended
attribute, which our squashfs do not keep: it is written as a whiteout for each of the folder's old entries.
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
    """Give the changes one form.

    Parameters
    ----------
    entries_of
        Gives the names in a folder of the base, by its path.
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
                # The kernel's are links of one: unsquashfs ends where an ordinary user cannot make the first.
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
    """Move the changes into a layer's tree, over what stands there; tell whether there were any."""
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
    """Remove the empty mount points that were made for what was bound from this machine."""
    for path in bound:
        place = upper / path.lstrip("/")
        if place.is_symlink() or not place.exists():
            continue
        if place.is_file() and place.stat().st_size == 0:
            place.unlink()
        elif place.is_dir() and not any(place.iterdir()):
            place.rmdir()
        parent = place.parent
        while not place.exists() and parent != upper and not any(parent.iterdir()):
            parent.rmdir()
            parent = parent.parent
