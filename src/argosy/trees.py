"""Images unpacked into the cache, by content, for runtimes and carriers that work on a folder; never changed after.

Beside them lie the trees of layers that were built and will be built upon: the next build takes such a tree away by a
rename, and need not unpack 20,000 files, nor remove them at its end.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.layout import ENV_PREFIX, LOCK
from argosy.process import Command, failed, run_checked
from argosy.session import Session
from argosy.store import is_anothers, whole_folder
from argosy.tree_notes import NOTES, Note, Notes, is_unchanged, note_of, notes_beside, read_notes, write_notes
from argosy.uses import note_use
from argosy.whiteouts import parse_whiteouts, restore_whiteouts

LAYERS = "layers"
"""Folder of the cache."""

UNSQUASHFS_SOME_NOT_WRITTEN = 2
"""unsquashfs(1): non-fatal errors, as device nodes that an ordinary user cannot make."""


def unpacked(session: Session, image: Path, *, offset: int, key: str, what: str = "") -> Path:
    """Give the unpacked tree of the squashfs that begins at `offset` bytes in `image`; unpack it at the first use.

    In a cache of several users each has trees of their own: in a user namespace the kernel's overlay cannot change a
    folder of somebody else, not even to put a mount point into it.

    Parameters
    ----------
    key
        Name in the cache: the digest of the squashfs.
    what
        What it is to the user; the image itself where nothing is said.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full.
    """
    place = session.places.cache / "trees" / key.removeprefix("sha256:")
    said = what or image.name
    tree = _unpacked(session, image, offset, place, said)
    if not is_anothers(tree):
        return tree
    return _unpacked(session, image, offset, place.with_name(f"{place.name}-{os.geteuid()}"), said)


def _unpacked(session: Session, image: Path, offset: int, place: Path, what: str) -> Path:
    note_use(session.places.cache, f"trees/{place.name}", waiting=session.waiting)
    with whole_folder(place, what=f"unpacking {what}", waiting=session.waiting) as folder:
        if folder is not None:
            with session.step("unpack", f"{what} into the cache, once") as step:
                # Of a project's folder new ones have its group, which a user namespace does not know either.
                os.chown(folder, -1, os.getegid())
                folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~stat.S_ISGID)
                _unpack(session, image, offset, folder / "root")
                step.result = f"{what} into the cache, once"
    return place / "root"


def _unpack(session: Session, image: Path, offset: int, tree: Path) -> None:
    options = ("-processors", str(session.host.cpus), "-no-xattrs")
    run_unsquashfs(session, image, offset, tree, *options, doing=f"unpacking {image}")


def run_unsquashfs(
    session: Session, image: Path, offset: int, tree: Path, *options: str, doing: str, parts: tuple[str, ...] = ()
) -> None:
    """Unpack the squashfs that begins at `offset` bytes in `image`, with the marks of removed files.

    Parameters
    ----------
    parts
        Paths in it that are unpacked; none: all.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full.
    """
    words = ("unsquashfs", "-no-progress", "-quiet", *options, "-o", str(offset), "-d", str(tree), str(image), *parts)
    command = Command(words)
    reply = session.runner.run(command)
    if reply.code not in {0, UNSQUASHFS_SOME_NOT_WRITTEN} or not tree.is_dir():
        raise failed(command, reply, doing=doing)
    if reply.code or session.host.person.uid != 0:
        listing = Command(("unsquashfs", "-no-progress", "-lls", "-o", str(offset), "-d", "", str(image), *parts))
        restore_whiteouts(tree, parse_whiteouts(run_checked(session.runner, listing, doing=doing).stdout))


def keep_layer(session: Session, key: str, tree: Path) -> None:
    """Move the tree of a layer that was just built into the cache, unless it is there, or that is another disk."""
    place = session.places.cache / LAYERS / key
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            notes_beside(tree).rename(tree / NOTES)
        tree.rename(place)


def take_layer(session: Session, key: str, tree: Path) -> bool:
    """Take the tree of a layer that was kept, to build upon it: whoever takes it owns it; tell whether there was one.

    Packages in it may be links to the cache's: do not let a user's script change it.
    """
    place = session.places.cache / LAYERS / key
    if is_anothers(place):  # in whose folders nothing can be installed
        return False
    try:
        place.rename(tree)
    except OSError:
        return False
    with suppress(FileNotFoundError):
        (tree / NOTES).rename(notes_beside(tree))
    return True


def put_back_layer(session: Session, key: str, tree: Path) -> None:
    """Keep the tree of a layer that was taken and is as it was, file by file; nothing where it changed."""
    if is_unchanged(tree, read_notes(notes_beside(tree)), besides=frozenset({LOCK.lstrip("/")})):
        keep_layer(session, key, tree)


def lend_layer(session: Session, key: str, cache: Path) -> None:
    """Unpack a layer that was kept into another cache of the same disk, by links; not where there is none.

    Files that a later build may write where they are become files of their own; packages are replaced as a whole.
    """
    source = session.places.cache / LAYERS / key
    place = cache / "trees" / key
    if not (source / ENV_PREFIX[1:] / "pyvenv.cfg").is_file() or not _one_disk(source, cache.parent):
        return
    with whole_folder(place, what="linking the layer", waiting=session.waiting) as folder:
        if folder is not None:
            notes = read_notes(source / NOTES)
            lender = _Lender(f"{source}/", notes, dict(notes.files))
            lender.link_tree(str(source), str(folder / "root"), linking=False)
            (folder / "root" / NOTES).unlink(missing_ok=True)
            if notes.files:
                write_notes(source / NOTES, Notes(notes.device, lender.noted))


def _one_disk(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


class _Lender(msgspec.Struct, frozen=True):
    """Links the files of a kept tree; that changes their ctime, by which notes know a file, so each is noted anew."""

    inside: str
    known: Notes
    noted: dict[str, Note]

    def link_tree(self, source: str, target: str, *, linking: bool) -> None:
        os.mkdir(target)  # noqa: PTH102 - here and below: 20,000 of them
        with os.scandir(source) as entries:
            for entry in entries:
                beside = f"{target}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    self.link_tree(entry.path, beside, linking=linking or source.endswith("/site-packages"))
                elif linking or entry.is_symlink():
                    self.link(entry, beside)
                else:
                    shutil.copy2(entry.path, beside)
        shutil.copymode(source, target)

    def link(self, entry: os.DirEntry[str], beside: str) -> None:
        name = entry.path.removeprefix(self.inside)
        note = self.known.known(name, os.lstat(entry.path))
        os.link(entry.path, beside, follow_symlinks=False)
        if note:
            self.noted[name] = note_of(os.lstat(entry.path), note.digest)
