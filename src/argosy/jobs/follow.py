"""Follow a job through the queue, its run and its requeues, and copy what it writes; the job goes on without us."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

from argosy.core.errors import CheckFailed
from argosy.core.session import Session
from argosy.jobs.logs import RankLines, is_split, output_files
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import can_read
from argosy.slurm.text import ENDED, WAITING

SHORTEST_PAUSE = 0.5
LONGEST_PAUSES = 6


def follow_job(
    session: Session, job: str, *, pause: float, stream: BinaryIO | None = None, rank: int | None = None
) -> JobFacts:
    """Print what a job writes until it ends, requeues included.

    Parameters
    ----------
    pause
        Seconds between two questions to the controller; up to six times that where nothing happens.  The output file is
        read more often: that asks the controller nothing.
    rank
        The one whose lines are printed; all of them by default.
    """
    copied = _Copied(stream or sys.stdout.buffer, rank)
    facts = find_job(session, job, or_record=True)
    told, wait = "", pause
    while True:
        told = _tell(session, facts, told)
        moved = copied.catch_up(facts)
        if facts.kind == ENDED:
            copied.end()
            return facts
        wait = pause if moved else min(wait * 1.5, pause * LONGEST_PAUSES)
        asked = time.monotonic()
        while time.monotonic() < asked + wait and not _said_its_end(facts):
            time.sleep(min(SHORTEST_PAUSE, wait))
            if copied.catch_up(facts):
                wait = pause
        facts = _ask_again(session, job, facts)


def _tell(session: Session, facts: JobFacts, told: str) -> str:
    """Say why a job waits, once for each reason."""
    news = f"{facts.meaning}{f' ({facts.reason})' if facts.reason not in {'', 'None'} else ''}"
    if facts.kind == WAITING and news != told:
        session.reporter.note(f"job {facts.id} {news}{f'; {facts.advice}' if facts.advice else ''}")
    return news


def _said_its_end(facts: JobFacts) -> bool:
    """Return whether the script noted the end of this run: only then is the controller worth asking."""
    file = Path(facts.record, "ends") if facts.record and not facts.outputs else None
    try:
        return bool(file) and len(file.read_text(encoding="utf-8").splitlines()) > facts.restarts if file else False
    except OSError:
        return False


def _ask_again(session: Session, job: str, facts: JobFacts) -> JobFacts:
    """Ask the controller; one that does not answer is asked again later, since the job goes on without it."""
    try:
        return find_job(session, job)
    except CheckFailed as error:
        session.reporter.note(f"{error.what}; the job goes on")
        return facts


class _Copied:
    """How much of each file was copied; one that is not there yet holds nothing."""

    def __init__(self, stream: BinaryIO, rank: int | None) -> None:
        self._stream = stream
        self._rank = rank
        self._offsets: dict[str, int] = {}
        self._lines: dict[str, RankLines] = {}

    def catch_up(self, facts: JobFacts) -> bool:
        """Copy what was added since, of an array what each task added, and tell whether there was something."""
        whole = self._rank is None or is_split(facts)
        return sum(self._copy(path, whole=whole) for path in output_files(facts, self._rank)) > 0

    def _copy(self, path: str, *, whole: bool) -> bool:
        if not can_read(path):
            return False
        before = self._offsets.get(path, 0)
        with Path(path).open("rb") as source:
            size = source.seek(0, 2)
            source.seek(before if size >= before else 0)
            for block in iter(lambda: source.read(65536), b""):
                self._stream.write(block if whole else self._of_rank(path, block))
            self._offsets[path] = source.tell()
        self._stream.flush()
        return self._offsets[path] != before

    def end(self) -> None:
        """Copy the last line of one rank, where it has no end."""
        for lines in self._lines.values():
            self._stream.write(lines.feed(b"\n"))

    def _of_rank(self, path: str, block: bytes) -> bytes:
        return self._lines.setdefault(path, RankLines(self._rank or 0)).feed(block)
