"""Ask Slurm about jobs: the user's list, and the rows of one job from the controller or the accounting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from argosy.core.errors import ArgosyError, CheckFailed, ToolMissing, Unreachable
from argosy.core.process import Command, Reply
from argosy.core.session import Session
from argosy.jobs.remote_record import session_of
from argosy.slurm.calls import ask_slurm, no_answer, run_slurm, says_no_answer
from argosy.slurm.queries import (
    JobRow,
    parse_sacct,
    parse_scontrol_jobs,
    parse_squeue,
    plan_sacct,
    plan_squeue,
    sort_tasks,
)


def list_jobs(session: Session, *, ended: bool = False) -> tuple[JobRow, ...]:
    """List the user's own jobs that wait or run; with `ended`, also those that ended and that Slurm still knows."""
    return sort_tasks(parse_squeue(ask_slurm(session, plan_squeue(ended=ended), doing="asking for your jobs")))


def watch_list(session: Session) -> Iterator[tuple[tuple[JobRow, ...], str]]:
    """Yield the user's jobs without end, and why they are out of date if the controller does not answer.

    The caller waits between two lists.
    """
    rows: tuple[JobRow, ...] = ()
    while True:
        try:
            rows, problem = list_jobs(session), ""
        except (CheckFailed, Unreachable) as error:
            problem = error.what
        yield rows, problem


def ask_tasks(session: Session, job: str) -> tuple[dict[str, str], ...]:
    """Return the scheduler's facts about each task of an array, or each component of a job; empty for an unknown job.

    The tasks that wait share a row. Of an array that has left the queue, only the main task is listed.

    Raises
    ------
    CheckFailed
        If the controller does not answer.
    """
    reply, rows = ask_controller(session, job)
    if says_no_answer(reply.stderr):
        raise no_answer(reply)
    accounted = {} if rows else ask_accounting(session, job)
    return (accounted,) if accounted else rows


def ask_controller(session: Session, job: str) -> tuple[Reply, tuple[dict[str, str], ...]]:
    """Return the reply of scontrol about a job, and a row for each task or component."""
    reply = run_slurm(session, Command(("scontrol", "show", "job", "--oneliner", job)))
    return reply, parse_scontrol_jobs(reply.stdout, job) if reply.code == 0 else ()


def ask_accounting(session: Session, job: str) -> dict[str, str]:
    """Return the facts about a job that left the queue; empty if the cluster has no accounting."""
    try:
        reply = session.runner.run(Command(plan_sacct(job)))
    except ToolMissing:
        return {}
    return parse_sacct(reply.stdout, job) if reply.code == 0 else {}


NO_ACCOUNTING = re.compile(r"^AccountingStorageType *= *(\(null\)|accounting_storage/none) *$", re.MULTILINE)
"""Line of ``scontrol show config`` on a cluster whose sacct answers ``Slurm accounting storage is disabled``."""

WITHOUT = (
    "sacct does not work on this cluster, which keeps no accounting: use 'scontrol show job {job}' in the first "
    "minutes after the end, or read the log"
)


def advise_without_accounting(session: Session, text: str, job: str, record: str) -> str:
    """Return the replacement for a text about a job that recommends sacct; empty if sacct works, or that is unknown.

    Parameters
    ----------
    record
        Folder of the job's record, which names the cluster of a job submitted by ssh; empty without a record.
    """
    if not re.search(r"\bsacct\b", text):
        return ""
    try:
        there = session_of(session, Path(record)) if record else session
        reply = run_slurm(there, Command(("scontrol", "show", "config")))
    except ArgosyError:
        return ""
    return WITHOUT.format(job=job) if NO_ACCOUNTING.search(reply.stdout) else ""
