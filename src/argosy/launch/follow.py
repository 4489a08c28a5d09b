"""Follow a job through the queue, its run and its requeues, and copy what it writes; the job goes on without us."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

from argosy.errors import CheckFailed
from argosy.launch.jobs import JobFacts, find_job
from argosy.launch.record import can_read
from argosy.schedulers.slurm import ENDED, WAITING
from argosy.session import Session

SHORTEST_PAUSE = 0.5
LONGEST_PAUSES = 6


def follow_job(session: Session, job: str, *, pause: float, stream: BinaryIO | None = None) -> JobFacts:
    """Print what a job writes until it ends, requeues included.

    Parameters
    ----------
    pause
        Seconds between two questions to the controller; up to six times that where nothing happens.  The output file is
        read more often: that asks the controller nothing.
    """
    copied = _Copied(stream or sys.stdout.buffer)
    facts = find_job(session, job)
    told, wait = "", pause
    while True:
        told = _tell(session, facts, told)
        moved = copied.catch_up(facts)
        if facts.kind == ENDED:
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
        session.reporter.note(f"job {facts.id} {news}")
    return news


def _said_its_end(facts: JobFacts) -> bool:
    """Tell whether the script wrote down the end of this run: then there is something to ask the controller."""
    file = Path(facts.record, "ends") if facts.record and not facts.outputs else None
    try:
        return bool(file) and len(file.read_text().splitlines()) > facts.restarts if file else False
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

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._offsets: dict[str, int] = {}

    def catch_up(self, facts: JobFacts) -> bool:
        """Copy what was added since, of an array what each task added, and tell whether there was something."""
        return sum(map(self._copy, facts.outputs or (facts.output,))) > 0

    def _copy(self, path: str) -> bool:
        if not can_read(path):
            return False
        before = self._offsets.get(path, 0)
        with Path(path).open("rb") as source:
            size = source.seek(0, 2)
            source.seek(before if size >= before else 0)
            for block in iter(lambda: source.read(65536), b""):
                self._stream.write(block)
            self._offsets[path] = source.tell()
        self._stream.flush()
        return self._offsets[path] != before
