"""Sources of a live view: a job of Slurm or a run on this machine, and the last lines of its output."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from argosy.core.errors import ToolMissing, UsageError
from argosy.core.locks import is_alive, read_owner
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.jobs.live.probe import JobView, ProbeTarget
from argosy.jobs.local_run import read_local_run
from argosy.jobs.names import LOCAL_RUN
from argosy.jobs.query import LAST_BYTES, JobFacts, describe_waiting, find_job
from argosy.jobs.record import END, STARTED, read_plan, read_submission
from argosy.jobs.remote_record import session_of
from argosy.jobs.requeue import describe_requeue
from argosy.jobs.scheduler import ask_tasks, list_jobs
from argosy.slurm.states import ENDED, HALTED, RUNNING, WAITING, choose_task, describe_state

LONGEST_LINE = 400
LABEL = re.compile(r" *(?:(\d+): ?|\[(\d+)\] ?)(.*)")
"""The label of a rank, as srun, torchrun and hydra write it."""

CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")
"""Sequences that change colours, the cursor or the title of a terminal (ECMA-48, sections 5.4 and 8.3.89)."""


class JobSource(Protocol):
    """The state, the measurements and the output of a job."""

    every: float
    """Seconds between two questions that the site allows."""
    asks_first: bool
    """Whether to ask for the state before each measurement. If not, a step that fails shows that the job ended."""
    output: OutputWatch
    session: Session
    """Reaches the nodes."""
    target: ProbeTarget
    """The processes of the job."""

    def ask(self, view: JobView) -> JobView:
        """Return the view with the present state of the job."""


def open_source(session: Session, job: str) -> tuple[JobSource, JobView]:
    """Return the source for a job of Slurm, or for a run on this machine, and its first view without measurements.

    Raises
    ------
    UsageError
        If there is no such job.
    """
    is_local = LOCAL_RUN.fullmatch(job)
    source: JobSource = LocalRun(session, session.paths.runs / job) if is_local else SlurmJob(session, job)
    return source, source.ask(JobView(job, "", RUNNING, ""))


class SlurmJob:
    """A job of Slurm."""

    def __init__(self, session: Session, job: str) -> None:
        self._here = session
        self._job = job
        facts = find_job(session, job, or_record=True)
        self._first: JobFacts | None = facts  # for the first view, so that Slurm is not asked twice
        record = Path(facts.record) if facts.record else None
        plan = read_plan(facts.record)
        self._name = plan.name
        self.session = session_of(session, record)
        self.target = ProbeTarget()
        self.asks_first = bool(read_submission(record).ssh)  # this also copies the output
        self.every = plan.polling_seconds
        self._logs = plan.logs
        self._step_options = plan.step_options
        self.output = OutputWatch(facts.output, None)
        self._requeue = (0, "")

    def ask(self, view: JobView) -> JobView:
        """Ask Slurm for the state of the job; while it waits, also for the expected start."""
        facts, self._first = self._first or find_job(self._here, self._job), None
        if facts.kind == ENDED:
            name = view.name or self._name
            return replace(view, name=name, kind=ENDED, meaning=facts.meaning, code=facts.code, problem="")
        if facts.kind == WAITING or facts.state in HALTED:
            meaning = "; ".join(filter(None, (describe_waiting(facts), self._describe_requeue(facts))))
            return replace(view, name=self._name, kind=WAITING, meaning=meaning, problem="")
        row = choose_task(ask_tasks(self.session, facts.id))
        if row.get("JobId"):
            nodes = row.get("NumNodes", "1").partition("-")[0]
            count = int(nodes) if nodes.isdigit() else 1
            self.target = ProbeTarget(row["JobId"], count, step_options=self._step_options)
            self.output.folder = Path(self._logs, row["JobId"]) if self._logs else None
        name = row.get("JobName", self._name)
        return replace(view, id=facts.id, name=name, kind=RUNNING, meaning=facts.meaning, problem="")

    def _describe_requeue(self, facts: JobFacts) -> str:
        """Describe the last requeue of the job; a cause that Slurm is asked for stays until the next one."""
        if facts.restarts != self._requeue[0]:
            self._requeue = facts.restarts, describe_requeue(self._here, facts)
        return self._requeue[1]


class LocalRun:
    """A run on this machine.

    Raises
    ------
    UsageError
        If there is no such run, or it runs on another machine.
    """

    every = 2.0
    asks_first = True

    def __init__(self, session: Session, record: Path) -> None:
        self.session = session
        self._record = record
        owner, _ = read_owner(record / STARTED)
        if owner is None:
            raise UsageError(f"there is no run {record.name} on this machine", hint="see the runs with 'argosy top'")
        if owner.host != session.host.hostname:
            raise UsageError(f"run {record.name} is on {owner.host}", hint=f"type this on {owner.host}")
        self.target = ProbeTarget(process=owner.pid)
        plan = read_plan(record)
        self._name = plan.name
        self.output = OutputWatch("", Path(plan.logs, record.name) if plan.logs else None)

    def ask(self, view: JobView) -> JobView:
        """Read the state of the run from its record and its process."""
        facts = read_local_run(self._record, self.session.host.hostname)
        return replace(view, name=self._name, kind=facts.kind, meaning=facts.meaning, code=facts.code)


def resolve_job(session: Session) -> str:
    """Return the user's only running job, or the only run on this machine.

    Raises
    ------
    UsageError
        If there is none, or there are several.
    """
    runs = session.paths.runs
    found = [
        file.parent.name
        for file in sorted(runs.glob(f"*/{STARTED}"))
        if not (file.parent / END).exists() and (owner := read_owner(file)[0]) and is_alive(owner)
    ]
    with contextlib.suppress(ToolMissing):
        found += [row.id for row in list_jobs(session) if describe_state(row.state)[0] == RUNNING]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError("you have no running jobs", hint="see your waiting jobs with 'argosy jobs'")
    raise UsageError("you have several running jobs", evidence="\n".join(found), hint="argosy top JOB")


class LastOutput(msgspec.Struct, frozen=True):
    """The last line of output, and when it was written (seconds since 1970)."""

    line: str
    at: float


class OutputWatch:
    """Reads what was appended to the output files of a job since the last call.

    Parameters
    ----------
    output
        The job's output file; empty if it is not known.
    folder
        Folder with an output file for each rank, if the job has them.
    """

    def __init__(self, output: str, folder: Path | None) -> None:
        self._output = output
        self.folder = folder
        self._offsets: dict[Path, int] = {}
        self.job: LastOutput | None = None
        self.ranks: dict[int, LastOutput] = {}

    def read(self, ranks: Sequence[int]) -> None:
        """Read new output; `ranks` are the ranks whose own files are read, if they have any."""
        if self._output:
            self._read_job(Path(self._output))
        for rank in ranks if self.folder else ():
            self._read_rank(rank, Path(self.folder or "", f"rank-{rank}.log"))

    def _read_job(self, file: Path) -> None:
        found = self._appended(file)
        if not found:
            # A job that has written nothing is silent since its output file was created.
            with contextlib.suppress(OSError):
                self.job = self.job or LastOutput("", file.stat().st_mtime)
            return
        lines, self.job = found
        for line in lines:
            if match := LABEL.fullmatch(line):
                self.ranks[int(match[1] or match[2])] = LastOutput(match[3], self.job.at)

    def _read_rank(self, rank: int, file: Path) -> None:
        found = self._appended(file)
        if found:
            self.ranks[rank] = found[1]
            self.job = max(filter(None, (self.job, found[1])), key=lambda output: output.at)

    def _appended(self, file: Path) -> tuple[list[str], LastOutput] | None:
        """Return new lines of a file, and the last one with the file's time; None if there are none."""
        try:
            with file.open("rb") as source:
                status = os.fstat(source.fileno())
                before = self._offsets.get(file, 0)
                source.seek(max(before if before <= status.st_size else 0, status.st_size - LAST_BYTES))
                data = source.read(LAST_BYTES)
                whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1  # an incomplete line is read again
                self._offsets[file] = source.tell() - len(data) + whole
        except OSError:
            return None
        lines = [clean_line(line) for line in re.split(r"[\r\n]+", data.decode(errors="replace"))]
        lines = [line for line in lines if line]
        return (lines, LastOutput(lines[-1], min(status.st_mtime, time.time()))) if lines else None


def clean_line(line: str) -> str:
    """Return a line without control characters, which could change the terminal, and cut to a sensible length."""
    plain = CONTROL.sub("", line).expandtabs(4)
    return "".join(c for c in plain if c.isprintable())[:LONGEST_LINE].rstrip()
