"""Read and write ranges of cores and ranks: Linux' cpulists, Slurm's CpuSpecList, and taskset's strides; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MOST_CORES = 1 << 16
"""Core numbers are below this, so that a damaged text cannot fill the memory."""

RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")


def parse_range(text: str) -> range | None:
    """Return the cores of a single core or range, also with a stride: ``9``, ``1-7``, ``0-6:2``; None if not valid."""
    found = RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return range(first, last + 1, int(found[3] or 1)) if first <= last < MOST_CORES else None


def parse_cpulist(text: str) -> frozenset[int]:
    """Return the cores of a list such as ``1-7,9``; parts that are not ranges are ignored."""
    return frozenset(core for part in text.split(",") for core in parse_range(part) or ())


def render_cpulist(numbers: Iterable[int]) -> str:
    """Render numbers as ranges, for example ``0-3,7``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
