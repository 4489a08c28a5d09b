"""Records for the live view of a job."""

from __future__ import annotations

import enum
from collections import Counter

import msgspec

from argosy.core.render import count
from argosy.host.gpu_use import GpuUse


class RankState(enum.StrEnum):
    """The state of a rank.

    A rank is `HUNG` if it used no CPU and no GPU and wrote nothing for some time.  It is `SILENT` if it only wrote
    nothing, and `IDLE` if it used no CPU since the last measurement.  Ranks that wait for others in a collective
    operation often use their CPU.
    """

    RUNNING = "running"
    IDLE = "idle"
    SILENT = "silent"
    HUNG = "hung"
    ENDED = "ended"


class RankView(msgspec.Struct, frozen=True):
    """One rank of a job."""

    rank: int
    host: str
    state: RankState
    cores: str = ""
    """Cores that it may use, as a list of ranges."""
    cpu: float | None = None
    """CPU use in percent of one core; None until it is measured."""
    memory: int = 0
    """Bytes in memory of all its processes."""
    gpus: tuple[GpuUse, ...] = ()
    """Its GPUs; empty if they are not known."""
    quiet: float | None = None
    """Seconds since its last output; None if the output does not identify its lines."""
    last_line: str = ""
    """Its last line of output; empty if the output does not identify its lines."""
    pids: tuple[int, ...] = ()
    """Its processes on its node, the first one first."""


class NodeView(msgspec.Struct, frozen=True):
    """One node of a job."""

    host: str
    cpus: int
    """CPUs of the node."""
    used: int
    memory: int
    """Bytes of memory in use, by all users, and in total."""
    gpus: tuple[GpuUse, ...] | None
    """GPUs that the job sees; None if the node has no tool that reports them."""


class JobView(msgspec.Struct, frozen=True):
    """A job at one moment."""

    id: str
    name: str
    kind: str
    """``waiting``, ``running`` or ``ended``."""
    meaning: str
    """Description of its state."""
    code: int | None = 0
    """Exit code of an ended job; None if it is unknown."""
    measured: float = 0.0
    """Time of the measurement in seconds since 1970; 0 if there was none."""
    nodes: tuple[NodeView, ...] = ()
    ranks: tuple[RankView, ...] = ()
    last_line: str = ""
    """Last line of the job's output."""
    problem: str = ""
    """Why the newest values are missing; the others are older."""

    @property
    def counts(self) -> str:
        """The number of ranks in each state, for example ``2 ranks: 1 running, 1 hung``."""
        numbers = Counter(each.state for each in self.ranks)
        states = ", ".join(f"{numbers[state]} {state}" for state in RankState if numbers[state])
        return f"{count(len(self.ranks), 'rank')}: {states}" if self.ranks else "no ranks yet"
