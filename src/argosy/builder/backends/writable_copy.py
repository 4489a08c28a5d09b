"""Let programs change a copy of a base, for build backends without an overlay, and collect their changes.

The kernel sets the time of a file's last change (ctime), so comparing it finds every file that programs wrote,
replaced or gave other permissions, without reading any file.

Changes become a part of the image's layer.  Whiteouts mark removed files.  They are character devices 0:0, which the
kernel's overlay and fuse-overlayfs understand in any layer, including a squashfs.  An extended attribute marks a folder
that was removed and created again (opaque).  Argosy's squashfs files have no extended attributes, so each old entry of
such a folder gets a whiteout instead.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

from argosy.builder.backends.plan import NAMES
from argosy.core.session import Session
from argosy.core.store import remove_path
from argosy.images.rootfs import locate_in_root
from argosy.images.squashfs.pack import FUSE_WHITEOUT, is_whiteout, run_unsquashfs, write_whiteout

Mark = tuple[int, ...]
"""The metadata of an entry that a change alters: mode, size, inode and times of a file, or the mode of a folder."""


class CopiedBase(msgspec.Struct, frozen=True):
    """The unpacked base of one build."""

    tree: Path
    marks: dict[str, Mark]
    """The marks of all entries before any program ran, by path below the tree."""


def copy_base(session: Session, image: Path, *, offset: int, tree: Path) -> CopiedBase:
    """Unpack the base that begins at `offset` bytes in `image`, and copy this machine's resolver files into it."""
    options = ("-processors", str(session.host.cpus), "-no-xattrs")
    run_unsquashfs(session, image, offset, tree, *options, doing=f"unpacking {image}")
    for name in NAMES:
        there, own = Path(name), locate_in_root(tree, name)
        if there.is_file():
            own.parent.mkdir(parents=True, exist_ok=True)
            own.unlink(missing_ok=True)
            own.write_bytes(there.read_bytes())
    return CopiedBase(tree, take_marks(tree))


def take_marks(tree: Path) -> dict[str, Mark]:
    """Return the marks of all entries of a tree, by path below it."""
    return {path: _mark(entry.stat(follow_symlinks=False)) for path, entry in _walk(tree, "")}


def _mark(status: os.stat_result) -> Mark:
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    return (status.st_mode, status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns)


def _walk(tree: Path, below: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    with os.scandir(tree / below) as entries:
        for entry in entries:
            path = f"{below}{entry.name}"
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(tree, f"{path}/")


def apply_changes(upper: Path, tree: Path) -> None:
    """Move the upper layer of an overlay into a tree, and remove the entries that it marks as removed."""
    for folder, _, names in os.walk(upper):
        for name in names:
            mark = Path(folder, name)
            if not is_whiteout(mark):
                continue
            mark.unlink()
            remove_path(locate_in_root(tree, f"{Path(folder).relative_to(upper)}/{name}"))
    move_changes(upper, tree)


def gather_changes(copy: CopiedBase, upper: Path, *, ignored: tuple[str, ...]) -> None:
    """Link the entries that differ from the base into `upper`, in the form of an overlay's upper layer."""
    there = take_marks(copy.tree)
    changed = [path for path, mark in there.items() if copy.marks.get(path) != mark and not _below(path, ignored)]
    for path in changed:
        if stat.S_ISDIR(there[path][0]):
            (upper / path).mkdir(parents=True, exist_ok=True)
        else:
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(copy.tree / path, upper / path, follow_symlinks=False)
    for path in copy.marks:
        parent = path.rpartition("/")[0]
        has_parent = not parent or (parent in there and stat.S_ISDIR(there[parent][0]))
        if path not in there and has_parent and not _below(path, ignored):
            (upper / parent).mkdir(parents=True, exist_ok=True)
            write_whiteout(upper / path)
    _copy_modes(upper, there)


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(f"{path}/".startswith(f"{folder}/") for folder in folders)


def _copy_modes(upper: Path, marks: dict[str, Mark]) -> None:
    """Set the modes of the folders in the upper layer to those in the copy, innermost first."""
    for folder, _, _ in os.walk(upper, topdown=False):
        mark = marks.get(str(Path(folder).relative_to(upper)))
        if mark:
            Path(folder).chmod(stat.S_IMODE(mark[0]))


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
        remove_path(there)
        entry.rename(there)
        found = True
    return found


def drop_mount_points(upper: Path, bound: Iterable[str]) -> None:
    """Remove the empty mount points that bind mounts left behind."""
    for path in bound:
        target = locate_in_root(upper, path)
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
