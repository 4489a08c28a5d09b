"""Wait for a program, but not for one that transfers no data, as a registry that does not answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

TIMED_OUT = 124
"""Exit code of a program that was ended because it transferred no data, as of timeout(1)."""
IDLE = "no data"
"""Begin of the message about such a program."""
IDLE_BYTES = 200
"""A program that transferred fewer bytes is idle. One HTTP request and its answer are longer."""
IDLE_CHECKS = 20
"""Number of looks at a program in its longest idle time."""


def wait(ends_within: Callable[[float | None], bool], pid: int, idle: float) -> bool:
    """Wait until a program ends, and return whether it did so before it transferred no data for `idle` seconds.

    Parameters
    ----------
    ends_within
        Waits for some seconds, or without a limit for None, and returns whether the program has ended.
    idle
        0 for no limit.
    """
    if not idle:
        return ends_within(None)
    looks, before = 0, 0
    while looks < IDLE_CHECKS:
        if ends_within(idle / IDLE_CHECKS):
            return True
        now = _transferred(pid)
        looks, before = (looks + 1, before) if 0 <= now < before + IDLE_BYTES else (0, now)
    return False


def _transferred(pid: int) -> int:
    """Return the bytes that a program has read and written; -1 if the kernel does not tell them (proc(5), io)."""
    try:
        rows = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines())
        return int(rows["rchar"]) + int(rows["wchar"])
    except (OSError, ValueError, KeyError):
        return -1
