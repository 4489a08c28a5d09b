"""Entries of the cache: folders that one process fills, pins of entries in use, and remembered values.

A pin is the record of a process that uses an entry, so that the garbage collector keeps the entry. The process writes
its pin, then checks the collector's lock; the collector takes the lock, then reads the pins. So one of the two always
sees the other. A pin stays valid if the process replaces itself with another program by `exec`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.locks import READABLE, Owner, hold_lock, is_abandoned, is_older, read_owner, this_owner, write_owner
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import decode_json
from argosy.core.render import DAY
from argosy.core.shared_folders import is_foreign_link, read_regular_file, share_new
from argosy.core.store import PART, atomic_file, atomic_folder, is_foreign, make_folder, remove_parts, remove_path

T = TypeVar("T")

USES = "uses"
COLLECTOR = "gc.lease"
BUILD = "build"
"""Pin of a build: it protects all kinds of entries except trees, which have pins of their own."""


@contextlib.contextmanager
def fill_once(
    path: Path, *, what: str, waiting: Callable[[Owner], None], shared: bool = False
) -> Iterator[Path | None]:
    """Yield a temporary folder that becomes `path` if the block succeeds; yield None if `path` exists.

    Only one process fills the folder; others wait for it.

    Parameters
    ----------
    shared
        Whether the users of a shared cache read the folder; false for unpacked trees, whose modes are contents.
    """
    with translate_os_errors(path.parent):
        is_filled = path.is_dir()
        if not is_filled:
            make_folder(path.parent)
    if is_filled:
        yield None
        return
    with hold_lock(path.with_name(path.name + ".lease"), what=what, waiting=waiting):
        if path.is_dir():
            yield None
            return
        remove_parts(path)
        with atomic_folder(path, replace=False) as beside:
            yield beside
            if shared:
                share_new(beside)


def sweep_unfilled(folder: Path) -> None:
    """Remove what killed processes left of the folders that `fill_once` was filling in a folder."""
    for part in folder.glob(".*.part"):
        name = re.fullmatch(rf"\.(.+?)\.({PART}|gone\.part)", part.name)
        if name is None or is_foreign(part):
            continue
        lease = folder / f"{name[1]}.lease"
        with contextlib.suppress(_BeingFilled), hold_lock(lease, what="cleaning up", waiting=_leave, refusing=_leave):
            remove_path(part)


class _BeingFilled(Exception):
    """Report that a living process fills a folder."""


def _leave(owner: Owner) -> None:
    raise _BeingFilled(owner)


def mark_used(path: Path) -> None:
    """Set the time of the last use of a cache entry, at most once a day: reading it often must not cost a write."""
    with contextlib.suppress(OSError):  # another user's entry
        if is_older(path, DAY):
            os.utime(path)


def final_name(path: Path) -> str:
    """Return the final path of a file in a temporary folder of `fill_once`, for messages."""
    return re.sub(rf"/\.([^/]+)\.{PART}(?=/)", r"/\1", str(path))


def pin_entry(cache: Path, entry: str, *, waiting: Callable[[Owner], None]) -> None:
    """Pin a cache entry for this process and the program that replaces it; wait for a running collection.

    Parameters
    ----------
    entry
        Path in the cache, for example ``trees/DIGEST``, or :data:`BUILD`.
    waiting
        Called once with the owner of the collector's lock, if this process must wait.
    """
    record = cache / USES / f"{os.uname().nodename}.{os.getpid()}.{entry.replace('/', '-')}"
    with contextlib.suppress(OSError):  # another user collects a read-only cache
        make_folder(record.parent)
        write_owner(record, this_owner(entry))
        record.chmod(READABLE)
        if (cache / entry).exists():
            os.utime(cache / entry)
        if (cache / COLLECTOR).exists():
            with hold_lock(cache / COLLECTOR, what="waiting for the collector", waiting=waiting):
                pass


def read_pins(cache: Path) -> dict[str, Owner]:
    """Return the pinned entries, each with one owner; pins of ended processes are removed."""
    used: dict[str, Owner] = {}
    with contextlib.suppress(FileNotFoundError):
        for record in () if is_foreign_link(cache / USES) else sorted((cache / USES).iterdir()):
            owner, _ = read_owner(record)
            if is_abandoned(owner, record):
                with contextlib.suppress(OSError):
                    record.unlink()
            elif owner or (owner := _owner_in_name(record.name)):
                used[owner.what] = owner
    return used


def is_pinned_by_others(cache: Path, entry: str) -> bool:
    """Return whether another process uses a cache entry, or may use it."""
    kind = f".{entry.replace('/', '-')}"
    own = f"{os.uname().nodename}.{os.getpid()}{kind}"
    try:
        records = [each for each in (cache / USES).iterdir() if each.name.endswith(kind) and each.name != own]
        return any(not is_abandoned(read_owner(record)[0], record) for record in records)
    except OSError:
        return True


def _owner_in_name(name: str) -> Owner | None:
    """Return the owner that the name of a pin tells: on a full disk its file is empty."""
    found = re.fullmatch(r"(.+?)\.(\d+)\.(\w+)(-?)(.*)", name)
    if found is None:
        return None
    host, pid, kind, _, entry = found.groups()
    what = f"{kind}/{entry}" if entry else kind
    return Owner(host=host, boot="", pid=int(pid), started="", user="unknown user", what=what)


def read_memo(file: Path, kind: type[T], *, trust_others: bool = False) -> T | None:
    """Return the value that a file remembers; None if it is missing or damaged.

    Parameters
    ----------
    trust_others
        Whether to use a file of any user. In a cache of several users, each of them can write any file; without this
        argument, only files of this user and of root are used.
    """
    with contextlib.suppress(OSError, msgspec.DecodeError):
        text = read_regular_file(file, own=not trust_others)
        mark_used(file)
        return decode_json(text, kind)
    return None


def write_memo(file: Path, value: object) -> None:
    """Write a value as JSON. An incomplete file is not used, so it is not flushed to the disk."""
    # The value is valid even if the cache cannot be written, or a path is not UTF-8, which JSON cannot store.
    with contextlib.suppress(OSError, ArgosyError, UnicodeEncodeError):
        make_folder(file.parent)
        with atomic_file(file, force=True, flush=False) as beside:
            beside.write_bytes(msgspec.json.encode(value))


def remember_text(file: Path | None, ask: Callable[[], str]) -> str:
    """Return the text that a file remembers, of any user; without it, ask for the text, and remember it.

    Parameters
    ----------
    file
        None to remember nothing.
    """
    if file is None:
        return ask()
    text = read_memo(file, str, trust_others=True)
    if text is None:
        text = ask()
        write_memo(file, text)
    return text
