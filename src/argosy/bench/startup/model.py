"""What `argosy bench startup` is asked, starts and reports: records only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

BARE, RUNTIME, LINE, WRAPPER, SCRIPTED = "bare", "runtime", "line", "wrapper", "scripted"

CASES: Mapping[str, str] = {
    BARE: "the program itself, no container, from unpacked files",
    RUNTIME: "the runtime's plain line",
    LINE: "the line that the wrapped command ends in",
    WRAPPER: "the wrapped command",
    SCRIPTED: "a wrapper as tykky designs it",
}
"""Each can be run alone."""


class StartupRequest(msgspec.Struct, frozen=True):
    """What the user asks.

    Attributes
    ----------
    code
        Python code that is run, as ``import torch``.
    only
        Cases to run; empty for all.
    at_once
        So many starts at the same moment, each so many times.
    cold
        How many starts with the image's pages out of memory.
    """

    prefix: Path
    code: str = "pass"
    only: tuple[str, ...] = ()
    at_once: tuple[tuple[int, int], ...] = ((1, 30), (8, 7), (64, 3))
    cold: int = 5
    count: bool = True


class Case(msgspec.Struct, frozen=True):
    """One command line.

    Attributes
    ----------
    drop
        Files and folders whose pages are thrown out of memory before a cold start.
    place
        Folder of the shared file system that its files come from: calls that name a path below it are counted.  Empty
        where paths inside name files of it as well, so that no name tells (unpacked trees).
    """

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]
    drop: tuple[str, ...]
    place: str


class Figure(msgspec.Struct, frozen=True):
    """Milliseconds of one case: median and quartiles.

    Attributes
    ----------
    at_once
        Starts at the same moment; 0 stands for a cold start.
    each
        The single values, in the order they were taken; those of all cases were taken in turns.
    """

    case: str
    at_once: int
    median: float
    low: float
    high: float
    runs: int
    each: tuple[float, ...] = ()


class Calls(msgspec.Struct, frozen=True):
    """File-system calls of one start that name a path: all, and, where it is known, those on the shared file system."""

    case: str
    calls: int
    shared: int | None


class StartupReport(msgspec.Struct, frozen=True):
    """What was found; cases that could not be run are told in `notes`."""

    prefix: str
    runtime: str
    code: str
    figures: tuple[Figure, ...]
    calls: tuple[Calls, ...]
    notes: tuple[str, ...] = ()
