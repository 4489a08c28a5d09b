"""Where the time of a wrapped command under bubblewrap goes, from the log of ``strace -f -ttt`` of its processes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bench.records import Row, many

EXEC = re.compile(r'^\d+ +(\d+\.\d+) execve\("([^"]+)", (.*)$', re.MULTILINE)
BIND = re.compile(r'"--(?:dev-|ro-)?bind(?:-try|-data)?"')
PHASES = {
    "shell": "the wrapper, until bubblewrap starts",
    "mounts": "bubblewrap, until its mounts are complete",
    "enter": "enter the container, until the program starts",
}


def phase_rows(logs: Sequence[str]) -> Iterator[Row]:
    """Give the milliseconds of each phase, and the number of mounts.

    Parameters
    ----------
    logs
        One log for each start of a wrapped command.
    """
    starts = [read_phases(log) for log in logs]
    for number, (phase, what) in enumerate(PHASES.items()):
        yield many(f"wrapping.bwrap.phase.{phase}", f"bwrap: {what}", [start[number] for start in starts], "ms")
    mounts = [len(BIND.findall(words)) for log in logs for _, program, words in _executed(log) if _is_bwrap(program)]
    yield many("wrapping.bwrap.binds", "bwrap: bind mounts of a wrapped command", mounts, "")


def read_phases(log: str) -> tuple[float, float, float]:
    """Return the milliseconds of the phases of one start.

    Raises
    ------
    RuntimeError
        If a program of the start was never executed.
    """
    started = _executed(log)
    first = started[0][0]
    bwrap = next((at for at, program, _ in started if _is_bwrap(program)), 0.0)
    hold = next((at for at, _, words in started if '"argosy-hold"' in words and at > bwrap), 0.0)
    program = started[-1][0]
    if not first < bwrap < hold < program:
        raise RuntimeError(f"bwrap did not start the command: {log[-600:]}")
    return (bwrap - first) * 1000, (hold - bwrap) * 1000, (program - hold) * 1000


def _executed(log: str) -> list[tuple[float, str, str]]:
    """Return time, path and arguments of each program that was executed."""
    return [(float(at), program, words) for at, program, words in EXEC.findall(log) if "ENOENT" not in words]


def _is_bwrap(program: str) -> bool:
    return program.endswith("/bwrap")
