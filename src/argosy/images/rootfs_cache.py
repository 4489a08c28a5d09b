"""Images unpacked into the cache, by content, for runtimes and build backends that need a folder.

Beside them lie the trees of layers that were built and will be built upon: the next build takes such a tree away by a
rename, and need not unpack 20,000 files, nor remove them at its end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.core.cache_pins import pin_entry
from argosy.core.errors import CheckFailed, ImageError
from argosy.core.layout import ENV_PREFIX, LOCK
from argosy.core.session import Session
from argosy.core.store import fill_once, is_owned
from argosy.images.part_digest import tree_name
from argosy.images.squashfs.pack import run_unsquashfs
from argosy.images.tree_digests import NOTES, Note, Notes, is_unchanged, note_of, notes_beside, read_notes, write_notes

LAYERS = "layers"
"""Folder of the cache."""


KEY = "key"
"""File beside the root of a tree: the key for which it was unpacked."""

POWERS = stat.S_ISUID | stat.S_ISGID
CHANGED_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def unpack_cached(
    session: Session,
    image: Path,
    *,
    offset: int,
    key: str,
    what: str = "",
    look_again: Callable[[], str] | None = None,
) -> Path:
    """Give the unpacked tree of the squashfs that begins at `offset` bytes in `image`; unpack it at the first use.

    In a cache of several users each has trees of their own: in a user namespace the kernel's overlay cannot change a
    folder of somebody else, not even to put a mount point into it; and somebody else could put any file into it.

    Parameters
    ----------
    key
        The digest of the bytes of the squashfs, or what else tells it from all others; never what an image claims.
    what
        What it is to the user; the image itself where nothing is said.
    look_again
        Takes the key once more after the files were unpacked: the image may have been replaced meanwhile.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        When unsquashfs fails, is not there, or the disk is full, or another user has put something in the way.
    ImageError
        When the image changed meanwhile.
    """
    place, said = session.paths.cache / "trees" / tree_name(key), what or image.name

    def fill(tree: Path) -> None:
        _unpack(session, image, offset, tree)
        if look_again and look_again() != key:
            raise ImageError(f"{image} changed while it was unpacked", hint="try again when no program writes to it")

    for each in (place, place.with_name(f"{place.name}-{os.geteuid()}")):
        tree = _unpacked(session, each, key, said, fill)
        if _is_trusted(each, key):
            return tree
    raise CheckFailed(
        f"the files of {said} in the cache are not yours",
        evidence=str(each),
        hint="give ARGOSY_CACHE a folder that only you can write to",
    )


def _unpacked(session: Session, place: Path, key: str, what: str, fill: Callable[[Path], None]) -> Path:
    pin_entry(session.paths.cache, f"trees/{place.name}", waiting=session.waiting)
    with fill_once(place, what=f"unpacking {what}", waiting=session.waiting) as folder:
        if folder is not None:
            with session.step("unpack", f"{what} into the cache, once") as step:
                # Of a project's folder new ones have its group, which a user namespace does not know either.
                os.chown(folder, -1, os.getegid())
                mode = stat.S_IMODE(folder.stat().st_mode) & ~stat.S_ISGID & ~CHANGED_BY_OTHERS
                folder.chmod(0o700)
                (folder / KEY).write_text(key, encoding="utf-8")
                fill(folder / "root")
                folder.chmod(mode)
                step.result = f"{what} into the cache, once"
    return place / "root"


def _is_trusted(place: Path, key: str) -> bool:
    """Tell whether a tree is our own, and is kept under the key for which it was unpacked: it may have been renamed."""
    with suppress(OSError):
        return is_owned(place) and (place / KEY).read_text(encoding="utf-8") == key
    return False


def _drop_privileges(tree: Path) -> None:
    """Take away what only root can unpack and everybody could use: setuid and setgid bits, and device nodes.

    A user who is not root gets none of these from unsquashfs either.  The marks of removed files stay: they are
    character devices with the number 0.
    """
    for folder, _, names in os.walk(tree):
        for name in names:
            path = f"{folder}/{name}"
            status = os.lstat(path)
            if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev):
                os.unlink(path)  # noqa: PTH108 - here and below: 100,000 of them
            elif stat.S_ISREG(status.st_mode) and status.st_mode & POWERS:
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~POWERS)  # noqa: PTH101


def _unpack(session: Session, image: Path, offset: int, tree: Path) -> None:
    options = ("-processors", str(session.host.cpus), "-no-xattrs")
    run_unsquashfs(session, image, offset, tree, *options, doing=f"unpacking {image}")
    if os.geteuid() == 0:
        _drop_privileges(tree)


def store_layer(session: Session, key: str, tree: Path) -> None:
    """Move the tree of a layer that was just built into the cache, unless it is there, or that is another disk."""
    place = session.paths.cache / LAYERS / key
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            notes_beside(tree).rename(tree / NOTES)
        tree.rename(place)


def take_layer(session: Session, key: str, tree: Path) -> bool:
    """Take the tree of a layer that was kept, to build upon it: whoever takes it owns it; tell whether there was one.

    Packages in it may be links to the cache's: do not let a user's script change it.
    """
    place = session.paths.cache / LAYERS / key
    if not is_owned(place):  # in the folders of others nothing can be installed, and their files may be anything
        return False
    try:
        place.rename(tree)
    except OSError:
        return False
    with suppress(FileNotFoundError):
        (tree / NOTES).rename(notes_beside(tree))
    _taken(tree).write_text(key, encoding="utf-8")
    return True


def _taken(tree: Path) -> Path:
    """Give the mark beside a tree that was taken: one that was unpacked from an image may differ from its claim."""
    return tree.with_name(f"{tree.name}.taken")


def return_layer(session: Session, key: str, tree: Path) -> None:
    """Keep the tree of a layer that was taken and is as it was, file by file; nothing where it changed."""
    if _taken(tree).is_file() and is_unchanged(
        tree, read_notes(notes_beside(tree)), besides=frozenset({LOCK.lstrip("/")})
    ):
        store_layer(session, key, tree)


def link_layer(session: Session, key: str, cache: Path, tree: str) -> None:
    """Unpack a layer that was kept into another cache of the same disk, by links; not where there is none.

    Files that a later build may write where they are become files of their own; packages are replaced as a whole.

    Parameters
    ----------
    tree
        The key of its tree there, as `unpack_cached` takes it.
    """
    source = session.paths.cache / LAYERS / key
    place = cache / "trees" / tree_name(tree)
    whole = is_owned(source) and (source / ENV_PREFIX[1:] / "pyvenv.cfg").is_file()
    if not whole or not _one_disk(source, cache.parent):
        return
    with fill_once(place, what="linking the layer", waiting=session.waiting) as folder:
        if folder is not None:
            (folder / KEY).write_text(tree, encoding="utf-8")
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
