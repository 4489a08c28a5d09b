"""What a measuring process is asked and what it answers; records that travel as JSON between two processes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Way(StrEnum):
    """One way of packing, or one step of it."""

    DELTA = "delta"
    BASE = "base"
    FLAT = "flat"
    ANEW = "anew"
    SANDBOX = "sandbox"
    COPY = "copy"
    BUILD = "build"


@dataclass(frozen=True, slots=True)
class PackTask:
    """Pack a base and an installed layer in one way.

    Attributes
    ----------
    delta
        The image made of both: its lock is written again.
    work
        An empty folder for this way; the three steps of Apptainer share one.
    """

    way: Way
    base: str
    delta: str
    layer_tree: str
    work: str


@dataclass(frozen=True, slots=True)
class CommandTask:
    """Run one command, and tell what it cost."""

    words: tuple[str, ...]


RANK = "rank"
"""Name of the command that ranks run in the series of starts."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Start so many at once, so many times over."""

    at_once: int
    times: int


@dataclass(frozen=True, slots=True)
class StartTask:
    """Start `true` and Python in each image, natively and by the bare runtime, and ranks, interleaved."""

    runtime: str
    plain: str
    delta: str
    flat: str
    cache: str
    ranks: int
    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Seconds of one case, in the order they were taken."""

    case: str
    command: str
    at_once: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StartAnswer:
    """All series of one runtime."""

    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class MemoryTask:
    """Map the libraries of an image in several processes: in one container, and in one each."""

    runtime: str
    image: str
    ranks: int
    cache: str
    work: str


@dataclass(frozen=True, slots=True)
class Mapping:
    """What the ranks of one shape held together.

    Attributes
    ----------
    file_bytes
        Sum of ``Pss_File`` of smaps_rollup: pages of files, each counted once however many ranks share it.
    mapped_bytes
        Bytes of the files that each rank mapped.
    """

    containers: int
    ranks: int
    file_bytes: int
    mapped_bytes: int


@dataclass(frozen=True, slots=True)
class MemoryAnswer:
    """One mapping for each shape."""

    mappings: tuple[Mapping, ...]
