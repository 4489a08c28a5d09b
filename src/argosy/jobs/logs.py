"""Read and follow the output of a job: all tasks of an array, or one rank."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from argosy.core.errors import CheckFailed, Unreachable, UsageError
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.jobs.outputs import can_read
from argosy.jobs.query import (
    JobFacts,
    describe_waiting,
    find_job,
    is_output_elsewhere,
    may_run_again,
    read_past_facts,
)
from argosy.jobs.record import ENDS, last_run, read_plan, read_runs, sort_runs
from argosy.jobs.requeue import describe_requeue
from argosy.slurm.queries import base_number
from argosy.slurm.states import ENDED, WAITING

BLOCK = 65536


class RankLines:
    """A filter for the lines of one rank, in the label formats of srun, torchrun and hydra."""

    def __init__(self, rank: int) -> None:
        self._begins = re.compile(rb" *(?:%d: ?|\[%d\] ?)" % (rank, rank))
        self._rest = b""

    def feed(self, block: bytes) -> bytes:
        """Return the lines that this block completes, without their label."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        return b"".join(line[found.end() :] + b"\n" for line in lines if (found := self._begins.match(line)))


def read_output(facts: JobFacts, *, rank: int | None = None) -> Iterator[bytes]:
    """Yield the output of a job so far in blocks; a line with the name precedes each of several files.

    Raises
    ------
    UsageError
        If there is no output yet, or the output does not identify ranks.
    """
    files = _output_files(facts, rank)
    there = [file for file in files if can_read(file)]
    is_empty = facts.kind != ENDED and not any(Path(file).stat().st_size for file in there)
    if not there or is_empty:
        raise _nothing(facts, files, facts.subject if rank is None else f"rank {rank} of {facts.subject}")
    if rank is not None and not _is_split(facts):
        yield from _of_rank(facts, there, rank)
        return
    tasks = {run.job: f" of job {run.task}" for run in facts.runs if run.task and _is_split(facts)}
    for file in there:
        if len(files) > 1:
            task = tasks.get(Path(file).parent.name, "")  # the folder of a task has Slurm's own number
            yield f"==> {file}{task} <==\n".encode(errors="surrogateescape")
        yield from _blocks(file)
    missing = len(files) - len(there)
    if missing:
        yield f"==> {missing} more {'has' if missing == 1 else 'have'} written nothing yet <==\n".encode()


def _output_files(facts: JobFacts, rank: int | None) -> tuple[str, ...]:
    """Return the files that a job, or one rank of it, writes to."""
    if rank is None or not _is_split(facts):
        return facts.outputs or (facts.output,)
    of_rank = tuple(file for file in facts.outputs if Path(file).name == f"rank-{rank}.log")
    numbers = dict.fromkeys((*(run.job for run in sort_runs(facts.runs)), facts.id))
    files = [str(Path(read_plan(facts.record).logs, number, f"rank-{rank}.log")) for number in numbers]
    return of_rank or tuple(file for file in files if can_read(file)) or (files[-1],)


def _is_split(facts: JobFacts) -> bool:
    """Return whether each rank of a job writes to its own file."""
    return bool(read_plan(facts.record).logs)


def _of_rank(facts: JobFacts, files: Iterable[str], rank: int) -> Iterator[bytes]:
    """Yield the lines of one rank from the output of all ranks."""
    labelled = False
    for file in files:
        lines = RankLines(rank)
        for block in (*_blocks(file), b"\n"):
            found = lines.feed(block)
            labelled |= bool(found)
            yield found
    if not labelled:
        raise UsageError(
            f"the output of job {facts.id} does not contain lines of rank {rank}",
            evidence=", ".join(files),
            hint="launch with --label or --log-dir to separate the output of ranks",
        )


def _blocks(file: str) -> Iterator[bytes]:
    with Path(file).open("rb") as source:
        yield from iter(lambda: source.read(BLOCK), b"")


def _nothing(facts: JobFacts, files: tuple[str, ...], who: str) -> UsageError:
    if is_output_elsewhere(facts):
        return UsageError(
            f"the output of {who} is not on this machine",
            evidence=f"the job {facts.meaning}; its output goes to {files[0]}",
            hint=f"the folder may be local to {facts.nodes}: launch from a shared folder",
        )
    if not files[0]:
        return UsageError(
            f"the output of {who} is not known",
            evidence=f"the job {facts.meaning}; the name of its output contains a number that was not recorded",
            hint=f"see the outputs of all tasks: argosy logs {base_number(facts.id)}",
        )
    if facts.kind == ENDED:
        shape = read_plan(facts.record).shape
        ranks = f"; the job had {count(shape.ranks, 'rank')}" if shape.ranks else ""
        return UsageError(
            f"{who} wrote nothing",
            evidence=f"the job {facts.meaning}; there is no output in {files[0]}{ranks}",
            hint=f"see what the job did: argosy jobs show {facts.id}",
        )
    return UsageError(
        f"{who} has written nothing yet",
        evidence=f"the job {facts.meaning}; its output goes to {files[0]}",
        hint=f"follow it with: argosy logs -f {facts.id}; or see why it waits: argosy jobs show {facts.id}",
    )


SHORTEST_PAUSE = 0.5
LONGEST_PAUSES = 6


def follow_job(
    session: Session, job: str, *, pause: float | None = None, stream: BinaryIO | None = None, rank: int | None = None
) -> JobFacts:
    """Print the output of a job until it ends, also after requeues.

    Parameters
    ----------
    pause
        Seconds between two queries to the controller; None for the interval of the job's site.  It becomes up to six
        times as long if nothing happens.  The output file is read more often, because that does not load the
        controller.
    rank
        The rank whose lines are printed; all by default.
    """
    copied = _Copied(stream or sys.stdout.buffer, rank)
    facts = find_job(session, job, or_record=True)
    pause = pause or read_plan(facts.record).polling_seconds
    reason, wait, has_asked = "", pause, False
    reported: set[str] = set()
    while True:
        _report_requeue(session, facts, reported)
        reason = _report_waiting(session, facts, reason)
        moved = copied.catch_up(facts)
        if facts.kind == ENDED:
            copied.end()
            return facts
        wait = pause if moved else min(wait * 1.5, pause * LONGEST_PAUSES)
        asked = time.monotonic()
        # The recorded end of a run ends this wait once: Slurm may need minutes to complete the job.
        while time.monotonic() < asked + wait and (has_asked or not _has_recorded_end(facts)):
            time.sleep(min(SHORTEST_PAUSE, wait))
            if copied.catch_up(facts):
                wait = pause
        has_asked = _has_recorded_end(facts)
        facts = _ask_again(session, job, facts)


def _report_requeue(session: Session, facts: JobFacts, reported: set[str]) -> None:
    """Report once for each restart of a job, or of a task, that it was put back into the queue."""
    restart = f"{facts.id} {facts.restarts}"
    if restart not in reported and (requeue := describe_requeue(session, facts)):
        session.reporter.note(f"job {facts.id} {requeue}")
    reported.add(restart)


def _report_waiting(session: Session, facts: JobFacts, reported: str) -> str:
    """Report why a job waits, once for each reason and again when a start is first expected; return what to compare."""
    news = f"{facts.reason} {bool(facts.start)}"
    if facts.kind == WAITING and news != reported:
        session.reporter.note(f"job {facts.id} {describe_waiting(facts)}")
    return news


def _has_recorded_end(facts: JobFacts) -> bool:
    """Return whether the script recorded the end of this run, so that the controller should be asked."""
    file = Path(facts.record, ENDS) if facts.record and not facts.outputs else None
    try:
        return file is not None and len(file.read_text(encoding="utf-8").splitlines()) > facts.restarts
    except (OSError, UnicodeDecodeError):
        return False


def _ask_again(session: Session, job: str, facts: JobFacts) -> JobFacts:
    """Return new facts from the controller; if it does not answer, the recorded end, or the old facts.

    The job can run without the controller.
    """
    try:
        return find_job(session, job)
    except (CheckFailed, Unreachable) as error:
        last = last_run(read_runs(Path(facts.record))) if _has_recorded_end(facts) else None
        end = f"its record says that it ended with code {last.code} on {last.nodes}" if last else "the job may continue"
        session.reporter.note(f"{error.what}; {end}")
        if last and not may_run_again(Path(facts.record)):
            past = read_past_facts(session, job, Path(facts.record))
            return replace(past, output=facts.output, outputs=facts.outputs)
        return facts


class _Copied:
    """The copied part of each output file."""

    def __init__(self, stream: BinaryIO, rank: int | None) -> None:
        self._stream = stream
        self._rank = rank
        self._offsets: dict[str, int] = {}
        self._lines: dict[str, RankLines] = {}

    def catch_up(self, facts: JobFacts) -> bool:
        """Copy new output of all files, and return whether there was any."""
        whole = self._rank is None or _is_split(facts)
        return sum(self._copy(path, whole=whole) for path in _output_files(facts, self._rank)) > 0

    def _copy(self, path: str, *, whole: bool) -> bool:
        if not can_read(path):
            return False
        before = self._offsets.get(path, 0)
        with Path(path).open("rb") as source:
            size = source.seek(0, 2)
            source.seek(before if size >= before else 0)
            for block in iter(lambda: source.read(BLOCK), b""):
                self._stream.write(block if whole else self._of_rank(path, block))
            self._offsets[path] = source.tell()
        self._stream.flush()
        return self._offsets[path] != before

    def end(self) -> None:
        """Copy the last line of a rank if it does not end with a newline."""
        for lines in self._lines.values():
            self._stream.write(lines.feed(b"\n"))

    def _of_rank(self, path: str, block: bytes) -> bytes:
        return self._lines.setdefault(path, RankLines(self._rank or 0)).feed(block)
