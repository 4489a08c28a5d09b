"""Pins: records of processes that use cache entries, so that the garbage collector keeps those entries.

A process writes its pin, then checks the collector's lock; the collector takes the lock, then reads the pins. So one
of the two always sees the other. A pin stays valid if the process replaces itself with another program by `exec`.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from argosy.core.locks import READABLE, Owner, hold_lock, is_abandoned, read_owner, this_owner, write_owner
from argosy.core.shared_folders import is_foreign_link
from argosy.core.store import make_folder

USES = "uses"
COLLECTOR = "gc.lease"
BUILD = "build"
"""Pin of a build: it protects all kinds of entries except trees, which have pins of their own."""


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


def _owner_in_name(name: str) -> Owner | None:
    """Return the owner that the name of a pin tells: on a full disk its file is empty."""
    found = re.fullmatch(r"(.+?)\.(\d+)\.(\w+)(-?)(.*)", name)
    if found is None:
        return None
    host, pid, kind, _, entry = found.groups()
    what = f"{kind}/{entry}" if entry else kind
    return Owner(host=host, boot="", pid=int(pid), started="", user="unknown user", what=what)
