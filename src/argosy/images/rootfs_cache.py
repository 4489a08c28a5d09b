"""Unpack images into the cache, by content, for runtimes and build backends that need a folder.

These trees never change. The cache also stores the trees of built layers: the next build takes one by a rename,
instead of unpacking 20,000 files and removing them at its end.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.core.cache import fill_once, pin_entry
from argosy.core.errors import ArgosyError, CheckFailed, ImageError
from argosy.core.layout import ENV_PREFIX, LOCK
from argosy.core.session import Session
from argosy.core.store import is_owned, make_folder
from argosy.images.flat import FlatLayer
from argosy.images.part_digest import tree_name
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.pack import run_unsquashfs
from argosy.images.squashfs.superblock import Source
from argosy.images.tree_digests import (
    STATES_FILE,
    Entries,
    FileState,
    FileStates,
    is_unchanged,
    mode_of_entry,
    read_states,
    state_of,
    states_beside,
    write_states,
)
from argosy.images.unpack import unpack_source

LAYERS = "layers"
"""Folder in the cache."""


KEY = "key"
"""File next to the root of a tree, with the key of the tree."""

POWERS = stat.S_ISUID | stat.S_ISGID
CHANGED_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def unpack_cached(
    session: Session,
    source: Source | FlatLayer,
    *,
    key: str,
    what: str = "",
    look_again: Callable[[], str] | None = None,
) -> Path:
    """Return the unpacked tree of a squashfs; unpack it at the first use.

    In a cache of several users, each user has their own trees, for two reasons. In a user namespace, the kernel's
    overlay cannot change another user's folder, not even to add a mount point. And its owner could change any file.

    Parameters
    ----------
    key
        Digest of the squashfs, or another identity of it that does not come from the image itself.
    what
        Name for messages; by default the image's file name.
    look_again
        Computes the key again after unpacking, because the image may have been replaced meanwhile.

    Raises
    ------
    ToolFailed, ToolMissing, CheckFailed
        If unsquashfs fails or is missing, the disk is full, or the folder is another user's.
    ImageError
        If the image changed meanwhile.
    """
    entry, label = session.paths.cache / "trees" / tree_name(key), what or source.path.name

    def fill(tree: Path) -> None:
        _unpack(session, source, tree)
        if look_again and look_again() != key:
            raise ImageError(
                f"{source.path} changed while it was unpacked", hint="try again when no program writes to it"
            )

    for each in (entry, entry.with_name(f"{entry.name}-{os.geteuid()}")):
        tree = _unpacked(session, each, key, label, fill)
        if _is_trusted(each, key):
            return tree
    raise CheckFailed(
        f"the files of {label} in the cache belong to another user",
        evidence=str(each),
        hint="set ARGOSY_CACHE to a folder that only you can write to",
    )


def _unpacked(session: Session, entry: Path, key: str, what: str, fill: Callable[[Path], None]) -> Path:
    pin_entry(session.paths.cache, f"trees/{entry.name}", waiting=session.waiting)
    with fill_once(entry, what=f"unpacking {what}", waiting=session.waiting) as folder:
        if folder is not None:
            with session.step("unpack", f"{what} into the cache, once"):
                # A folder created in a setgid folder has the project's group, which a user namespace does not map.
                os.chown(folder, -1, os.getegid())
                mode = stat.S_IMODE(folder.stat().st_mode) & ~stat.S_ISGID & ~CHANGED_BY_OTHERS
                folder.chmod(0o700)
                (folder / KEY).write_text(key, encoding="utf-8")
                fill(folder / "root")
                folder.chmod(mode)
    return entry / "root"


def _is_trusted(entry: Path, key: str) -> bool:
    """Return whether a tree is our own and its key file matches: a folder can be renamed."""
    with suppress(OSError):
        return is_owned(entry) and (entry / KEY).read_text(encoding="utf-8") == key
    return False


def _drop_privileges(tree: Path) -> None:
    """Remove setuid and setgid bits and device nodes, which only root unpacks and which every user could then use.

    Other users do not get them from unsquashfs. Whiteouts stay: they are character devices with the number 0.
    """
    for folder, _, names in os.walk(tree) if os.geteuid() == 0 else ():
        for name in names:
            path = f"{folder}/{name}"
            status = os.lstat(path)
            if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and status.st_rdev):
                os.unlink(path)  # noqa: PTH108 - here and below: 100,000 of them
            elif stat.S_ISREG(status.st_mode) and status.st_mode & POWERS:
                os.chmod(path, stat.S_IMODE(status.st_mode) & ~POWERS)  # noqa: PTH101


def _unpack(session: Session, source: Source | FlatLayer, tree: Path) -> None:
    options = ("-processors", str(session.host.cpus), "-no-xattrs")
    unpack_source(session, source, tree, *options, doing=f"unpacking {source.path}")
    _drop_privileges(tree)


def store_layer(session: Session, key: str, tree: Path) -> None:
    """Move the tree of a newly built layer into the cache, unless it is there already or on another disk."""
    entry = session.paths.cache / LAYERS / key
    with suppress(OSError):
        make_folder(entry.parent)
        with suppress(FileNotFoundError):
            states_beside(tree).rename(tree / STATES_FILE)
        tree.rename(entry)


def take_layer(session: Session, key: str, tree: Path) -> bool:
    """Move the stored tree of a layer to `tree`, to build upon it; return whether there was one.

    The caller owns the tree. Packages in it may be hard links into the cache: do not let a user's script change it.
    """
    entry = session.paths.cache / LAYERS / key
    if not is_owned(entry):  # another user's folder is not writable, and its files cannot be trusted
        return False
    try:
        entry.rename(tree)
    except OSError:
        return False
    with suppress(FileNotFoundError):
        (tree / STATES_FILE).rename(states_beside(tree))
    _taken(tree).write_text(key, encoding="utf-8")
    return True


def _taken(tree: Path) -> Path:
    """Return the mark next to a taken tree. A tree unpacked from an image has none, and may differ from its lock."""
    return tree.with_name(f"{tree.name}.taken")


def return_layer(session: Session, key: str, tree: Path) -> None:
    """Store a taken tree again if no file in it has changed."""
    if _taken(tree).is_file() and is_unchanged(
        tree, read_states(states_beside(tree)), besides=frozenset({LOCK.lstrip("/")})
    ):
        store_layer(session, key, tree)


def link_layer(session: Session, key: str, cache: Path, tree: str) -> None:
    """Hard-link a stored layer into another cache on the same disk, as an unpacked tree; do nothing if there is none.

    Files that a later build may change in place are copied; packages are only replaced as a whole.

    Parameters
    ----------
    tree
        Key of the tree in the other cache, as for `unpack_cached`.
    """
    source = session.paths.cache / LAYERS / key
    entry = cache / "trees" / tree_name(tree)
    whole = is_owned(source) and (source / ENV_PREFIX[1:] / "pyvenv.cfg").is_file()
    if not whole or source.stat().st_dev != cache.parent.stat().st_dev:
        return
    with fill_once(entry, what="linking the layer", waiting=session.waiting) as folder:
        if folder is not None:
            (folder / KEY).write_text(tree, encoding="utf-8")
            states = read_states(source / STATES_FILE)
            lender = _Lender(f"{source}/", states, dict(states.files))
            lender.link_tree(str(source), str(folder / "root"), linking=False)
            _drop_privileges(folder / "root")
            (folder / "root" / STATES_FILE).unlink(missing_ok=True)
            if states.files:
                write_states(source / STATES_FILE, FileStates(states.device, lender.states))


class LayerTree(msgspec.Struct, frozen=True):
    """The tree of an image's layer in a cache."""

    key: str
    """As for `unpack_cached`."""
    packed: FileSlice
    """The squashfs that contains the layer."""
    entries: Entries
    """All entries of the layer but its lock."""


def link_unchanged(session: Session, old: LayerTree, new: LayerTree) -> None:
    """Make a tree from another one in the cache: link its unchanged files, and unpack the others.

    Nothing changes these trees, so the links are safe. If this fails, `unpack_cached` unpacks all files.
    """
    known, entry = (session.paths.cache / "trees" / tree_name(each.key) for each in (old, new))
    if not _is_trusted(known, old.key):
        return
    with suppress(OSError, ArgosyError), fill_once(entry, what="linking the layer", waiting=session.waiting) as folder:
        if folder is not None:
            (folder / KEY).write_text(new.key, encoding="utf-8")
            tree, packed = folder / "root", new.packed
            others = tuple(name for name, each in new.entries.items() if old.entries.get(name) != each)
            files = (*(name for name in others if not _is_folder(new.entries[name])), LOCK.lstrip("/"))
            run_unsquashfs(session, packed.path, packed.offset, tree, "-no-xattrs", doing="unpacking", parts=files)
            _drop_privileges(tree)
            _link_entries(f"{known}/root", str(tree), new.entries)


def _link_entries(source: str, target: str, entries: Entries) -> None:
    """Make the folders that are missing in `target`, and hard links to the files, from sorted entries."""
    for name, entry in entries.items():
        path = f"{target}/{name}"
        if os.path.lexists(path):
            continue
        if _is_folder(entry):
            os.mkdir(path)  # noqa: PTH102 - here and below: 20,000 of them
            os.chmod(path, stat.S_IMODE(mode_of_entry(entry)))  # noqa: PTH101
        else:
            os.link(f"{source}/{name}", path, follow_symlinks=False)


def _is_folder(entry: bytes) -> bool:
    return stat.S_ISDIR(mode_of_entry(entry))


class _Lender(msgspec.Struct, frozen=True):
    """Links the files of a stored tree.

    Linking changes their ctime, which the remembered states contain, so it updates them.
    """

    inside: str
    known: FileStates
    states: dict[str, FileState]

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
        state = self.known.find_unchanged(name, os.lstat(entry.path))
        os.link(entry.path, beside, follow_symlinks=False)
        if state:
            self.states[name] = state_of(os.lstat(entry.path), state.digest)
