"""Plan the root of a container folder by folder, so that bubblewrap can build it without an overlay.

A start then runs one program that mounts, instead of six. A folder that only one tree contains is mounted from there.
Folders that several trees contain, usually only ``/etc``, are merged once with hard links. The entries of ``/opt`` and
``/run`` are mounted one by one, so that folders of the host can be mounted next to them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.cache import fill_once
from argosy.core.model import Bind, Entry
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import link_or_copy
from argosy.images.squashfs.pack import FUSE_WHITEOUT, is_whiteout
from argosy.wrap.plan import USUALLY_EMPTY

NOT_THE_IMAGES = frozenset({"dev", "proc", "root", "sys", "tmp"})
"""Folders that are mounted from the host instead."""

SYSTEM = frozenset({"", "etc", "opt", "usr", "var"})
OPEN = ("/opt", "/run")
JOINED = "/etc"
"""Always merged, because the files of the machine and of the caller are mounted there."""

OF_THE_MACHINE = ("hosts", "resolv.conf", "localtime")
OF_THE_CALLER = ("passwd", "group")
MOST_LINKS = 20_000
PLACE = "joined-"


class How(StrEnum):
    """How bubblewrap creates an entry of the root."""

    BIND = "bind"
    FOLDER = "folder"
    LINK = "link"


class RootEntry(msgspec.Struct, frozen=True):
    """One entry of the root."""

    target: str
    how: How
    source: str = ""
    """For a mount: a path in the prefix's ``cache/trees``, or an absolute one. For a link: its target. Empty for an
    empty folder."""


class Root(msgspec.Struct, frozen=True):
    """Entries of a root without an overlay; if there are none, the root needs an overlay."""

    entries: tuple[RootEntry, ...] = ()
    folder: str = ""
    """Name of the folder with merged files, in the cache; empty if there is none."""
    users: str = ""
    groups: str = ""
    """Contents of the image's ``/etc/passwd`` and ``/etc/group``."""


class _NeedsOverlay(Exception):
    """Report that hard links cannot merge these trees."""


def find_root(entry: Entry, cache: Path, name: str, at: str, binds: tuple[Bind, ...], session: Session) -> Root:
    """Plan the root of a version, and merge the folders that several trees contain.

    Parameters
    ----------
    at
        Path of an installation: its first folder is that of the host, unless it is a system folder.

    Returns
    -------
    Root
        Without entries if there is no tree, if a tree removes files of a lower one, or if a mount needs a folder that
        the image does not have.
    """
    if not entry.trees or entry.devices.binds:
        return Root()
    place = cache / f"{PLACE}{name}"
    trees = tuple(tree if tree.is_relative_to(cache) else tree.resolve() for tree in map(Path, entry.trees))
    left = at.split("/")[1] if at else ""
    skipped = NOT_THE_IMAGES | ({left} if left not in SYSTEM else set())
    try:
        entries = tuple(_find_entries(trees, "", place, skipped))
        with fill_once(place, what="merging the image's folders", waiting=session.waiting) as folder:
            if folder is not None:
                _join(trees, entries, folder / "root", place / "root")
        users, groups = (
            (place / "root/etc" / name).read_text(errors="replace", encoding="utf-8") for name in OF_THE_CALLER
        )
    except (_NeedsOverlay, PermissionError):
        return Root()
    if not all(_has_place(entries, bind.target) for bind in binds):
        return Root()
    relative = (replace(each, source=each.source.removeprefix(f"{cache}/")) for each in entries)
    return Root(tuple(relative), place.name, users, groups)


def read_root_entries(cache: Path, names: tuple[str, ...]) -> tuple[RootEntry, ...]:
    """Return the entries of an existing version's root with absolute paths; none if it needs an overlay."""
    *trees, last = names or ("",)
    if not trees or not last.startswith(PLACE):
        return ()
    return tuple(_find_entries(tuple(cache / name / "root" for name in trees), "", cache / last, NOT_THE_IMAGES))


def root_entry_words(entry: RootEntry) -> tuple[str, ...]:
    """Return the options with which bubblewrap creates an entry of the root."""
    if entry.how is How.FOLDER:
        return ("--dir", entry.target)
    return ("--symlink" if entry.how is How.LINK else "--ro-bind", entry.source, entry.target)


def _has_place(entries: tuple[RootEntry, ...], target: str) -> bool:
    """Return whether a path can be a mount point: it exists in the image, or is outside its folders."""
    above = [entry for entry in entries if entry.how is How.BIND and target.startswith(f"{entry.target}/")]
    return all(os.path.lexists(entry.source + target.removeprefix(entry.target)) for entry in above)


def _find_entries(
    trees: tuple[Path, ...], above: str, place: Path, skipped: frozenset[str] = frozenset()
) -> Iterator[RootEntry]:
    """Yield the entries of the folder `above` (empty for the root), and those of its folders that must be split."""
    names = {name for tree in trees for name in _names(tree, above)} | (set() if above else {JOINED[1:]})
    for name in sorted(names - skipped):
        target = f"{above}/{name}"
        first, *others = [tree / target[1:] for tree in trees if os.path.lexists(tree / target[1:])] or [
            place / target[1:]
        ]
        if first.is_symlink() and not above and name in USUALLY_EMPTY:
            # /home -> var/home: bubblewrap cannot mount on a link.
            yield RootEntry(target, How.FOLDER)
        elif first.is_symlink() and target != JOINED:
            yield RootEntry(target, How.LINK, str(first.readlink()))
        elif target in OPEN or (target == "/var" and not (first / "tmp").is_dir()):
            yield RootEntry(target, How.FOLDER)
            yield from _find_entries(trees, target, place)
        elif target == JOINED or (_is_folder(first) and any(map(_is_folder, others))):
            yield RootEntry(target, How.BIND, f"{place}/root{target}")
        else:
            yield _single(target, first)


def _single(target: str, path: Path) -> RootEntry:
    """Return the entry for a path that only one tree contains."""
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        raise _NeedsOverlay
    empty = path.is_dir() and not any(path.iterdir())
    return RootEntry(target, How.FOLDER) if empty else RootEntry(target, How.BIND, str(path))


def _names(tree: Path, above: str) -> list[str]:
    folder = tree / above.removeprefix("/")
    return [path.name for path in folder.iterdir()] if _is_folder(folder) else []


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _join(trees: tuple[Path, ...], entries: tuple[RootEntry, ...], root: Path, final: Path) -> None:
    """Merge the folders that several trees contain, the lowest tree first."""
    left = MOST_LINKS
    root.mkdir()
    for target in (entry.target for entry in entries if Path(entry.source).is_relative_to(final)):
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
    """Merge a folder into another with hard links, and return their number."""
    done = 0
    for folder, _, names in os.walk(source):
        place = target / os.path.relpath(folder, source)
        if os.path.lexists(place) and not _is_folder(place):  # a folder hides a link of a lower tree, as in an overlay
            place.unlink()
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
