"""The root of a container put together by bubblewrap itself, folder by folder, so that no overlay has to be mounted.

A start then runs one program that mounts instead of six.  Folders that one tree has are bound from there; the few that
several have (``/etc`` as a rule) are joined once by hard links.  ``/opt`` and ``/run`` are shown one by one, so that
folders of the host find room beside them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.model import Bind, Entry
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import fill_once, link_or_copy
from argosy.images.squashfs.pack import FUSE_WHITEOUT, is_whiteout
from argosy.wrap.plan import USUALLY_EMPTY

NOT_THE_IMAGES = frozenset({"dev", "proc", "root", "sys", "tmp"})
"""Those of the host are shown in their place."""

SYSTEM = frozenset({"", "etc", "opt", "usr", "var"})
OPEN = ("/opt", "/run")
JOINED = "/etc"
"""Always joined: the machine's files and the caller's name need places there."""

OF_THE_MACHINE = ("hosts", "resolv.conf", "localtime")
OF_THE_CALLER = ("passwd", "group")
MOST_LINKS = 20_000
PLACE = "joined-"


class How(StrEnum):
    """How one entry of the root comes about."""

    BIND = "bind"
    FOLDER = "folder"
    LINK = "link"


class RootEntry(msgspec.Struct, frozen=True):
    """One entry of the root.

    Attributes
    ----------
    source
        What is bound: a path in the prefix's ``cache/trees``, or a whole one; or what a link says; empty for an empty
        folder.
    """

    target: str
    how: How
    source: str = ""


class Root(msgspec.Struct, frozen=True):
    """How a root is put together by links; without `root_entries` that is impossible, and an overlay is needed.

    Attributes
    ----------
    folder
        What was joined by links, in the cache; not below it where nothing was.
    users, groups
        What the image's ``/etc/passwd`` and ``/etc/group`` say.
    """

    root_entries: tuple[RootEntry, ...] = ()
    folder: str = ""
    users: str = ""
    groups: str = ""


class _NeedsOverlay(Exception):
    """These trees cannot be joined by links."""


def find_root(entry: Entry, cache: Path, name: str, at: str, binds: tuple[Bind, ...], session: Session) -> Root:
    """Plan how the root of a version is put together by links, and make what must be joined.

    Parameters
    ----------
    cache
        Where what is joined goes.
    name
        What it is called there.
    at
        Where an installation is found: its first folder is left to the host, unless it is the system's.

    Returns
    -------
    Root
        Without entries if there is no tree, if something was removed from a lower tree, or if a mount needs a folder
        that the image does not have.
    """
    if not entry.trees or entry.devices.binds:
        return Root()
    place = cache / f"{PLACE}{name}"
    trees = tuple(tree if tree.is_relative_to(cache) else tree.resolve() for tree in map(Path, entry.trees))
    left = at.split("/")[1] if at else ""
    skipped = NOT_THE_IMAGES | ({left} if left not in SYSTEM else set())
    try:
        root_entries = tuple(_tops(trees, "", place, skipped))
        with fill_once(place, what="joining the image's folders", waiting=session.waiting) as folder:
            if folder is not None:
                _join(trees, root_entries, folder / "root", place / "root")
        users, groups = (
            (place / "root/etc" / name).read_text(errors="replace", encoding="utf-8") for name in OF_THE_CALLER
        )
    except (_NeedsOverlay, PermissionError):
        return Root()
    if not all(_has_place(root_entries, bind.target) for bind in binds):
        return Root()
    relative = (replace(root_entry, source=root_entry.source.removeprefix(f"{cache}/")) for root_entry in root_entries)
    return Root(tuple(relative), place.name, users, groups)


def tops_of(cache: Path, names: tuple[str, ...]) -> tuple[RootEntry, ...]:
    """Give the entries of the root of a version that is there, with whole paths; none where it needs an overlay."""
    *trees, last = names or ("",)
    if not trees or not last.startswith(PLACE):
        return ()
    return tuple(_tops(tuple(cache / name / "root" for name in trees), "", cache / last, NOT_THE_IMAGES))


def root_entry_words(root_entry: RootEntry) -> tuple[str, ...]:
    """Give the words by which bubblewrap makes an entry of the root."""
    if root_entry.how is How.FOLDER:
        return ("--dir", root_entry.target)
    return ("--symlink" if root_entry.how is How.LINK else "--ro-bind", root_entry.source, root_entry.target)


def _has_place(root_entries: tuple[RootEntry, ...], target: str) -> bool:
    """Tell whether something can be mounted at a path: the image's folders have it, or it is in none of them."""
    above = [
        root_entry
        for root_entry in root_entries
        if root_entry.how is How.BIND and target.startswith(f"{root_entry.target}/")
    ]
    return all(os.path.lexists(root_entry.source + target.removeprefix(root_entry.target)) for root_entry in above)


def _tops(
    trees: tuple[Path, ...], above: str, place: Path, skipped: frozenset[str] = frozenset()
) -> Iterator[RootEntry]:
    """Give the entries of the folder `above` (empty for the root itself), and of what is opened below it."""
    names = {name for tree in trees for name in _names(tree, above)} | (set() if above else {JOINED[1:]})
    for name in sorted(names - skipped):
        target = f"{above}/{name}"
        first, *others = [tree / target[1:] for tree in trees if os.path.lexists(tree / target[1:])] or [
            place / target[1:]
        ]
        if (
            first.is_symlink() and not above and name in USUALLY_EMPTY
        ):  # /home -> var/home: nothing is mounted on a link
            yield RootEntry(target, How.FOLDER)
        elif first.is_symlink() and target != JOINED:
            yield RootEntry(target, How.LINK, str(first.readlink()))
        elif target in OPEN or (target == "/var" and not (first / "tmp").is_dir()):
            yield RootEntry(target, How.FOLDER)
            yield from _tops(trees, target, place)
        elif target == JOINED or (_is_folder(first) and any(map(_is_folder, others))):
            yield RootEntry(target, How.BIND, f"{place}/root{target}")
        else:
            yield _single(target, first)


def _single(target: str, path: Path) -> RootEntry:
    """Give an entry that one tree has."""
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise _NeedsOverlay
    empty = path.is_dir() and not any(path.iterdir())
    return RootEntry(target, How.FOLDER) if empty else RootEntry(target, How.BIND, str(path))


def _names(tree: Path, above: str) -> list[str]:
    folder = tree / above.removeprefix("/")
    return [path.name for path in folder.iterdir()] if _is_folder(folder) else []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _join(trees: tuple[Path, ...], root_entries: tuple[RootEntry, ...], root: Path, final: Path) -> None:
    """Make the folders that several trees have, the lowest tree first."""
    left = MOST_LINKS
    root.mkdir()
    for target in (root_entry.target for root_entry in root_entries if Path(root_entry.source).is_relative_to(final)):
        for tree in reversed(trees):
            if _is_folder(tree / target[1:]):
                left -= _link_tree(tree / target[1:], root / target[1:], left)
    etc = root / JOINED[1:]
    etc.mkdir(exist_ok=True)
    for name in (*OF_THE_MACHINE, *OF_THE_CALLER):
        if (etc / name).is_symlink() or not (etc / name).is_file():
            (etc / name).unlink(missing_ok=True)
            (etc / name).touch()


def _link_tree(source: Path, target: Path, most: int) -> int:
    """Lay one folder over another by hard links; give how many there were."""
    done = 0
    for folder, _, names in os.walk(source):
        place = target / os.path.relpath(folder, source)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copymode(folder, place)
        links = [name for name in os.listdir(folder) if Path(folder, name).is_symlink()]  # noqa: PTH208 - names
        for name in dict.fromkeys((*names, *links)):
            if name.startswith(FUSE_WHITEOUT) or is_whiteout(Path(folder, name)):
                raise _NeedsOverlay
            _link(Path(folder, name), place / name)
        done += len(names)
        if done > most:
            raise _NeedsOverlay
    return done


def _link(source: Path, target: Path) -> None:
    if _is_folder(target):
        raise _NeedsOverlay
    target.unlink(missing_ok=True)
    link_or_copy(source, target)
