"""Remove what nothing needs any more: unused entries of the cache, and replaced images of the catalog.

Entries of the cache are removed under the collector's lock. An image of the catalog can be removed if a newer version
replaced it, and nothing refers to it any more.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.cache import BUILD, COLLECTOR, read_pins, sweep_unfilled
from argosy.core.locks import Owner, hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import Session
from argosy.core.shared_folders import is_foreign_link
from argosy.core.store import is_foreign, sweep_old_parts, sweep_work, work_folder
from argosy.images.catalog import CatalogImage, list_folders, unlink_images

NOTES = "notes"
NOTE_FOLDERS = ("answers", "contents", "digests", "entries", "links", "made", "references", "torch")
"""Folders with one file for each state of each image or file, about which it notes something."""

KINDS: Mapping[str, tuple[str, bool]] = {
    "bases": ("bases made here", True),
    "fetched": ("images fetched", True),
    "trees": ("images unpacked", True),
    "with": ("images with packages of --with", True),
    "layers": ("layers of wrapped environments", True),
    "tools": ("static uv", True),
    "downloads": ("files fetched for steps", True),
    "packed": ("packages packed for images", True),
    NOTES: ("notes about images", True),
    "uv": ("wheels", False),
    "conda": ("conda packages", False),
    "bytecode": ("byte code of packages", False),
}
"""Kind -> its content, and whether each item in its folder is an entry. Except for notes, the folder has that name."""

FILLED = ("bases", "fetched", "tools", "trees")
"""Kinds whose entries `fill_once` creates."""

WORK = "work"
"""Folder for temporary files."""

BLOCK_BYTES = 512

REASONS = {
    "used": "in use by running commands",
    "named": "named by scripts of jobs that may wait or run: launched in the last 30 days, or running here",
    "foreign": "of other users",
}
"""Kinds of reasons to keep an entry."""

MayRun = Callable[[Path, float], bool]
"""Returns whether the job of a script that was written at a time, in seconds since 1970, may still wait or run."""


def always(_script: Path, _written: float) -> bool:
    """Take each job for one that may wait or run."""
    return True


class CacheEntry(msgspec.Struct, frozen=True):
    """A part of the cache that is removed as a whole."""

    name: str
    """Path in the cache."""
    kind: str
    bytes: int
    """Size on disk. Hard links to a file count once."""
    used: float
    """Time of the last use, in seconds since 1970."""
    kept: str = ""
    """Why it cannot be removed now. Empty if it can."""
    reason: str = ""
    """The kind of this reason: a key of `REASONS`."""


def list_entries(session: Session, may_run: MayRun = always) -> tuple[CacheEntry, ...]:
    """Return all entries of the cache, by kind, the largest first."""
    cache = session.paths.cache
    used, scripts = read_pins(cache), list(_job_scripts(session, may_run))
    found = [_entry(cache, kind, path, used, scripts) for kind, path in _paths(cache)]
    return tuple(sorted(found, key=lambda each: (list(KINDS).index(each.kind), -each.bytes)))


def _paths(cache: Path) -> Iterator[tuple[str, Path]]:
    for kind, (_, several) in KINDS.items():
        folders = (cache / name for name in (NOTE_FOLDERS if kind == NOTES else (kind,)))
        for folder in (each for each in folders if each.is_dir() and not is_foreign_link(each)):
            if several:
                yield from ((kind, path) for path in folder.iterdir() if path.name[0] != "." and not _is_lease(path))
            else:
                yield kind, folder


def _is_lease(path: Path) -> bool:
    return path.is_file() and ".lease" in path.name


def _entry(
    cache: Path, kind: str, path: Path, used: Mapping[str, Owner], scripts: Iterable[tuple[str, str, float]]
) -> CacheEntry:
    name = str(path.relative_to(cache))
    reason, kept = _why_kept(cache, name, used, scripts if kind != NOTES else ())
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        if is_foreign(path):
            reason, kept = "foreign", f"belongs to another user (uid {status.st_uid})"
        return CacheEntry(name, kind, disk_bytes(path), status.st_mtime, kept, reason)
    return CacheEntry(name, kind, 0, 0.0, kept, reason)


def _why_kept(
    cache: Path, name: str, used: Mapping[str, Owner], scripts: Iterable[tuple[str, str, float]]
) -> tuple[str, str]:
    """Return why an entry cannot be removed: a running process uses it, or a job script names it; empty if it can.

    The first text is a key of `REASONS`, the second one names the process or the script.

    Parameters
    ----------
    scripts
        Empty for notes: no script names one, and there may be thousands.
    """
    owner = used.get(name) or (None if name.startswith("trees/") else used.get(BUILD))
    if owner:
        return "used", f"in use by {owner}"
    path = str(cache / name)
    return next((("named", f"named by {script}") for script, text, _ in scripts if path in text), ("", ""))


def _job_scripts(session: Session, may_run: MayRun = always) -> Iterator[tuple[str, str, float]]:
    """Yield path, text and modification time of the scripts of jobs that may wait or run."""
    for script in sorted((session.paths.runs).glob("*/*.sh")):
        with contextlib.suppress(OSError):
            written = script.stat().st_mtime
            if may_run(script, written):
                yield str(script), script.read_text(errors="replace", encoding="utf-8"), written


def disk_bytes(path: Path) -> int:
    """Return the disk space of a file or tree, in bytes."""
    seen: set[tuple[int, int]] = set()
    total, todo = 0, [str(path)]
    while todo:
        at = todo.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(at)
            if (status.st_dev, status.st_ino) not in seen:
                total += status.st_blocks * BLOCK_BYTES
                seen.add((status.st_dev, status.st_ino))
            if os.path.isdir(at) and not os.path.islink(at):  # noqa: PTH112, PTH114 - 100,000 of them
                with os.scandir(at) as inside:
                    todo += [entry.path for entry in inside]
    return total


def choose_garbage(entries: Collection[CacheEntry], since: float, keep: int) -> tuple[CacheEntry, ...]:
    """Choose the entries to remove: those unused since the limit, then the least recently used until the rest fits."""
    free = sorted((each for each in entries if not each.kept), key=lambda each: each.used)
    gone = [each for each in free if each.used < since]
    left = sum(each.bytes for each in entries) - sum(each.bytes for each in gone)
    for each in free[len(gone) :]:
        if keep < 0 or left <= keep:
            break
        gone.append(each)
        left -= each.bytes
    return tuple(gone)


class Collected(msgspec.Struct, frozen=True):
    """The result of a collection."""

    removed: tuple[CacheEntry, ...]
    held: tuple[CacheEntry, ...] = ()
    """Entries that the limits select, but that must stay."""


def _choose_held(
    entries: Collection[CacheEntry], gone: Collection[CacheEntry], since: float, keep: int
) -> tuple[CacheEntry, ...]:
    """Choose the entries that stay only because they must: unused since the limit, or all if the rest is too large."""
    left = sum(each.bytes for each in entries) - sum(each.bytes for each in gone)
    return tuple(each for each in entries if each.kept and (each.used < since or 0 <= keep < left))


def collect(
    session: Session, since: float, keep: int = -1, *, may_run: MayRun = always, dry: bool = False
) -> Collected:
    """Remove unused entries, also while jobs and builds run, and what killed processes left; return the entries.

    Parameters
    ----------
    since
        Entries that were not used since this time are removed, in seconds since 1970.
    keep
        Then the least recently used entries are removed until at most so many bytes remain; -1 for no limit.
    may_run
        Entries stay if the script of a job names them for which this is true.
    dry
        Whether to return the entries without removing them.

    Raises
    ------
    CheckFailed
        If the cache cannot be written.
    """
    cache, entries = session.paths.cache, list_entries(session, may_run)
    chosen = choose_garbage(entries, since, keep)
    held = _choose_held(entries, chosen, since, keep)
    if dry:
        return Collected(chosen, held)
    _sweep_killed(session)
    if not chosen:
        return Collected(chosen, held)
    with (
        work_folder(cache / WORK) as trash,  # emptied after the lock is released
        translate_os_errors(cache),
        hold_lock(cache / COLLECTOR, what="collecting the cache", waiting=session.waiting),
    ):
        # Processes that started after the listing have pinned their entries; later ones wait for the lock.
        used, scripts = read_pins(cache), list(_job_scripts(session, may_run))
        chosen = tuple(
            each
            for each in chosen
            if not any(_why_kept(cache, each.name, used, scripts if each.kind != NOTES else ()))
            and not is_foreign_link((cache / each.name).parent)
        )
        for number, each in enumerate(chosen):
            with contextlib.suppress(FileNotFoundError):
                (cache / each.name).rename(trash / str(number))
    return Collected(chosen, held)


def _sweep_killed(session: Session) -> None:
    """Remove what killed processes left: half entries and records, and entries that a collection had begun to remove.

    They are not listed as entries, and nobody else may need the same entry again.
    """
    cache = session.paths.cache
    sweep_work(cache / WORK)
    for folder in (session.paths.runs, *(cache / name for name in NOTE_FOLDERS)):
        if not is_foreign_link(folder):
            sweep_old_parts(folder)
    for folder in (cache / kind for kind in FILLED):
        if os.access(folder, os.W_OK) and not is_foreign_link(folder):
            sweep_unfilled(folder)


class SupersededImage(msgspec.Struct, frozen=True):
    """An old version of an image that has a newer one."""

    name: str
    path: str
    bytes: int
    """Size of the file."""
    changed: float
    """Modification time, in seconds since 1970."""
    kept: str = ""
    """Why it is not removed. Empty if it can be removed."""


def list_superseded(since: float, session: Session) -> tuple[SupersededImage, ...]:
    """Return the versions in the user's own folders that are older than `since` and not the newest of their name.

    A version stays if an alias points to it, or if the script of a job that was submitted after `since` names it.
    """
    images = list_folders(session)
    scripts = [(path, text) for path, text, written in _job_scripts(session) if written >= since]
    return tuple(
        SupersededImage(
            str(each.name), str(each.path), each.size, each.changed, next(_reasons(each, images, scripts), "")
        )
        for each in images
        if each.changed < since and _is_replaced(each, images) and _own_folder(each.path, session)
    )


def remove_superseded(since: float, session: Session, *, dry: bool = False) -> tuple[SupersededImage, ...]:
    """Remove the versions that `list_superseded` finds, except those that must stay; return all of them.

    Parameters
    ----------
    dry
        Whether to return them without removing any.
    """
    found = list_superseded(since, session)
    for path in (Path(each.path) for each in found if not each.kept and not dry):
        unlink_images([path], _own_folder(path, session) or path.parent)
    return found


def _own_folder(path: Path, session: Session) -> Path | None:
    """Return the folder of the user that contains an image; None if it belongs to a project or a site."""
    return next((folder for folder in session.paths.images if path.is_relative_to(folder)), None)


def _is_replaced(image: CatalogImage, images: list[CatalogImage]) -> bool:
    """Return whether the folder of an image has a newer version of the same name."""
    newest = max(
        (each.changed for each in images if each.path.parent == image.path.parent and not each.alias_of), default=0.0
    )
    return bool(image.name.tag) and not image.alias_of and image.changed < newest


def _reasons(image: CatalogImage, images: list[CatalogImage], scripts: list[tuple[str, str]]) -> Iterator[str]:
    """Yield the reasons to keep an image."""
    target = str(image.path.resolve())
    if image.name.tag == "latest":
        yield f"{image.name.name} alone means it"
    yield from (f"alias {each.name}" for each in images if each.alias_of == target)
    yield from (f"named by {script}" for script, text in scripts if str(image.path) in text or target in text)
