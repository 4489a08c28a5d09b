"""What lies in the cache, and what of it may go: list -> choose -> move away under the collector's lease -> remove."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.core.cache_pins import BUILD, COLLECTOR, read_pins
from argosy.core.locks import Owner, hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import Session
from argosy.core.store import is_foreign, work_folder

KINDS: Mapping[str, tuple[str, bool]] = {
    "bases": ("bases made here", True),
    "fetched": ("images fetched", True),
    "trees": ("images unpacked", True),
    "with": ("images with packages of --with", True),
    "layers": ("layers of wrapped environments", True),
    "tools": ("static uv", True),
    "downloads": ("files fetched for steps", True),
    "uv": ("wheels", False),
    "conda": ("conda packages", False),
    "bytecode": ("byte code of packages", False),
}
"""Folder -> what it holds, and whether each thing in it is an entry of its own."""

BLOCK_BYTES = 512


class CacheEntry(msgspec.Struct, frozen=True):
    """A part of the cache that is kept or removed as a whole.

    Attributes
    ----------
    name
        Its path in the cache.
    bytes
        On the disk; a file with several names counts once.
    used
        When it was used last, in seconds since 1970.
    kept
        Why it may not go now; empty where it may.
    """

    name: str
    kind: str
    bytes: int
    used: float
    kept: str = ""


class Limits(msgspec.Struct, frozen=True):
    """What stays: what was used since then (seconds since 1970), and as much of it as fits (bytes; -1: all)."""

    since: float
    keep: int = -1


def list_entries(session: Session) -> tuple[CacheEntry, ...]:
    """Give every entry of the cache, by kind, the largest first."""
    cache = session.paths.cache
    used, scripts = read_pins(cache), list(_job_scripts(session))
    found = [_entry(cache, kind, path, used, scripts) for kind, path in _paths(cache)]
    return tuple(sorted(found, key=lambda each: (list(KINDS).index(each.kind), -each.bytes)))


def _paths(cache: Path) -> Iterator[tuple[str, Path]]:
    for kind, (_, several) in KINDS.items():
        folder = cache / kind
        if several and folder.is_dir():
            yield from ((kind, path) for path in folder.iterdir() if path.name[0] != "." and not _is_lease(path))
        elif folder.is_dir():
            yield kind, folder


def _is_lease(path: Path) -> bool:
    return path.is_file() and ".lease" in path.name


def _entry(
    cache: Path, kind: str, path: Path, used: Mapping[str, Owner], scripts: Iterable[tuple[str, str]]
) -> CacheEntry:
    name = str(path.relative_to(cache))
    kept = _why_kept(cache, name, used, scripts)
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        if is_foreign(path):
            kept = f"belongs to another user (uid {status.st_uid})"
        return CacheEntry(name, kind, disk_bytes(path), status.st_mtime, kept)
    return CacheEntry(name, kind, 0, 0.0, kept)


def _why_kept(cache: Path, name: str, used: Mapping[str, Owner], scripts: Iterable[tuple[str, str]]) -> str:
    """Say why an entry may not go: a living process uses it, or a job's script names it; empty where it may."""
    owner = used.get(name) or (None if name.startswith("trees/") else used.get(BUILD))
    if owner:
        return f"in use by {owner}"
    return next((f"named by {script}" for script, text in scripts if str(cache / name) in text), "")


def _job_scripts(session: Session) -> Iterator[tuple[str, str]]:
    """Give the scripts of jobs, which run or may be run again without Argosy."""
    for script in sorted((session.paths.state / "runs").glob("*/*.sh")):
        with contextlib.suppress(OSError):
            yield str(script), script.read_text(errors="replace", encoding="utf-8")


def disk_bytes(path: Path) -> int:
    """Give the bytes that a file or tree takes on the disk."""
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


def choose_garbage(entries: Collection[CacheEntry], limits: Limits) -> tuple[CacheEntry, ...]:
    """Choose what goes: all that was not used for long, then the longest unused until the rest fits."""
    free = sorted((each for each in entries if not each.kept), key=lambda each: each.used)
    gone = [each for each in free if each.used < limits.since]
    left = sum(each.bytes for each in entries) - sum(each.bytes for each in gone)
    for each in free[len(gone) :]:
        if limits.keep < 0 or left <= limits.keep:
            break
        gone.append(each)
        left -= each.bytes
    return tuple(gone)


def collect(limits: Limits, session: Session, *, dry: bool = False) -> tuple[CacheEntry, ...]:
    """Remove what is not needed, beside runs and builds that go on; give what was, or would be, removed.

    Raises
    ------
    CheckFailed
        When the cache cannot be written.
    """
    cache = session.paths.cache
    chosen = choose_garbage(list_entries(session), limits)
    if dry or not chosen:
        return chosen
    with (
        work_folder(cache / "work") as trash,  # emptied after the lease is given up
        translate_os_errors(cache),
        hold_lock(cache / COLLECTOR, what="collecting the cache", waiting=session.waiting),
    ):
        # Whoever came since the list was made is seen now; who comes later waits for the lease.
        used, scripts = read_pins(cache), list(_job_scripts(session))
        chosen = tuple(each for each in chosen if not _why_kept(cache, each.name, used, scripts))
        for number, each in enumerate(chosen):
            with contextlib.suppress(FileNotFoundError):
                (cache / each.name).rename(trash / str(number))
    return chosen
