"""Cancel jobs, on this cluster or by ssh."""

from __future__ import annotations

import re

from argosy.core.errors import UsageError
from argosy.core.session import Session
from argosy.core.store import write_text
from argosy.jobs.query import ask_job
from argosy.jobs.record import CANCELLED, find_record, last_run, read_runs, read_submitted
from argosy.jobs.remote_record import session_of
from argosy.slurm.calls import ask_slurm
from argosy.slurm.text import ENDED, describe_state

NOT_KNOWN = "the job may still have been cancelled: check with 'argosy jobs'"

JOB = re.compile(r"([1-9]\d*)(_(\d+|\[[\d,%-]+\]))?(\+\d+)?")
"""A job, a task of an array or several of them, a component of a heterogeneous job."""


def cancel_jobs(session: Session, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """Cancel jobs where they were submitted; return a line about each.

    All jobs are looked up before the first is cancelled: scancel (24.11) prints nothing about unknown numbers and jobs
    that ended.

    Raises
    ------
    UsageError
        If an argument is not a job number, or a job is unknown.
    """
    for job in jobs:
        if not JOB.fullmatch(job):
            raise UsageError(f"{job!r} is not a job number", hint="see your jobs with 'argosy jobs'")
    asked = {job: _look(session, job) for job in jobs}
    going = tuple(job for job, (kind, _) in asked.items() if kind != ENDED)
    near = tuple(job for job in going if not read_submitted(find_record(session, job)).get("ssh"))
    if near:
        ask_slurm(session, ("scancel", *near), doing="cancelling", otherwise=NOT_KNOWN)
    for job in going:
        if job not in near:
            ask_slurm(
                session_of(session, find_record(session, job)),
                ("scancel", job),
                doing="cancelling",
                otherwise=NOT_KNOWN,
            )
    for job in going:
        record = find_record(session, job)
        if record and job.isdigit():  # a task of an array does not end the array
            write_text(record / CANCELLED, "")
    return tuple(
        f"job {job} had ended already: {text}" if kind == ENDED else f"job {job} is cancelled{text}"
        for job, (kind, text) in asked.items()
    )


def _look(session: Session, job: str) -> tuple[str, str]:
    """Return a job's kind before it is cancelled, and a text about it.

    Raises
    ------
    UsageError
        If the job is unknown.
    """
    record = find_record(session, job)
    number = job if re.fullmatch(r"\d+_\d+", job) else re.split("[_+]", job)[0]
    facts = ask_job(session_of(session, record), number)
    if facts:
        state = facts.get("JobState", "")
        kind, meaning = describe_state(state)
        where = "" if "[" in job else _where(facts, meaning)  # several tasks run on different nodes
        text = ", ".join(filter(None, (facts.get("JobName", ""), where)))
        return kind, meaning if kind == ENDED else f" ({text})"
    if record is None:
        raise UsageError(
            f"there is no job {job}", evidence="nothing was cancelled", hint="see your jobs with 'argosy jobs'"
        )
    last = last_run(read_runs(record))
    return (
        ENDED,
        f"Slurm does not list it any more; it ended with code {last.code}"
        if last
        else "Slurm does not list it any more",
    )


def _where(facts: dict[str, str], meaning: str) -> str:
    nodes = facts.get("NodeList", "")
    return f"it ran on {nodes}" if nodes and nodes != "(null)" else f"it {meaning}".replace("it waits", "it waited")
