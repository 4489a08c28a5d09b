"""Who uses an entry of the cache: owner records that stay true through `exec`, so nothing in use is collected.

A user writes its record, then looks for the collector's lease; the collector takes its lease, then reads the records.
So one of the two always sees the other.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from argosy.core.locks import READABLE, Owner, hold_lock, is_alive, is_older, read_owner, this_owner
from argosy.core.records import asdict
from argosy.core.store import make_folder

USES = "uses"
COLLECTOR = "gc.lease"
BUILD = "build"
"""What a build uses: every kind but trees, of which each has a record of its own."""
FORGOTTEN_AFTER_SECONDS = 7 * 86400.0
"""A record of another machine that is older than any job lasts."""


def pin_entry(cache: Path, entry: str, *, waiting: Callable[[Owner], None]) -> None:
    """Note that this process, or the program that takes its place, uses an entry; wait while the cache is collected.

    Parameters
    ----------
    entry
        Its path in the cache, as ``trees/DIGEST``; or :data:`BUILD`.
    """
    record = cache / USES / f"{os.uname().nodename}.{os.getpid()}.{entry.replace('/', '-')}"
    with contextlib.suppress(OSError):  # a cache that can only be read is collected by somebody else
        make_folder(record.parent)
        record.write_text(json.dumps(asdict(this_owner(entry))), encoding="utf-8")
        record.chmod(READABLE)
        if (cache / entry).exists():
            os.utime(cache / entry)
        if (cache / COLLECTOR).exists():
            with hold_lock(cache / COLLECTOR, what="waiting for the collector", waiting=waiting):
                pass


def read_pins(cache: Path) -> dict[str, Owner]:
    """Give each entry in use with one of its users; records of the dead are swept."""
    used: dict[str, Owner] = {}
    with contextlib.suppress(FileNotFoundError):
        for record in sorted((cache / USES).iterdir()):
            owner, _ = read_owner(record)
            alive = is_alive(owner) if owner else None
            if alive is False or (alive is None and is_older(record, FORGOTTEN_AFTER_SECONDS)):
                with contextlib.suppress(OSError):
                    record.unlink()
            elif owner:
                used[owner.what] = owner
    return used
