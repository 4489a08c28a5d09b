"""Cancel jobs, on this cluster or by ssh."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, ToolMissing, UsageError
from argosy.core.locks import read_owner
from argosy.core.render import count
from argosy.core.session import Session
from argosy.jobs.first_failure import find_checkpoint
from argosy.jobs.local_run import read_local_run
from argosy.jobs.names import JOB, LAST, LOCAL_RUN, find_named, last_launch, unknown_name, was_started
from argosy.jobs.query import may_have
from argosy.jobs.record import SCRIPT, STARTED, find_record, last_run, read_runs, read_submission, write_cancelled
from argosy.jobs.remote_record import session_of
from argosy.jobs.scheduler import ask_tasks, list_jobs
from argosy.slurm.calls import ask_slurm
from argosy.slurm.queries import JobRow, base_number, known_value, other_user, share_task
from argosy.slurm.states import ENDED, RUNNING, WAITING, choose_task, describe_state, task_number

NOT_KNOWN = "the job may still have been cancelled: check with 'argosy jobs'"


class JobToCancel(msgspec.Struct, frozen=True):
    """A job before it is cancelled."""

    job: str
    record: Path | None
    has_ended: bool
    text: str
    """How it ended, or its name and what it does."""
    other_user: str = ""
    """The user of a job that this user did not submit."""
    waited: bool = False
    """Whether it waited in the queue, maybe for a restart."""


def cancel_jobs(session: Session, jobs: tuple[str, ...]) -> tuple[str, ...]:
    """Cancel jobs where they were submitted; return a line about each.

    All jobs are looked up before the first is cancelled: scancel (24.11) prints nothing about unknown numbers and jobs
    that ended.

    Parameters
    ----------
    jobs
        Numbers or names of jobs, or ``last`` for the newest launch.

    Raises
    ------
    UsageError
        If a job is unknown, or several waiting and running jobs have the name.
    """
    asked = tuple(_look(session, job) for job in dict.fromkeys(_resolve(session, job) for job in jobs))
    going = tuple(each for each in asked if not each.has_ended)
    near = tuple(each.job for each in going if not read_submission(each.record).ssh)
    if near:
        owners = "; ".join(f"job {each.job} belongs to {each.other_user}" for each in going if each.other_user)
        ask_slurm(session, ("scancel", *near), doing="cancelling", otherwise=NOT_KNOWN, denied=owners)
    for each in going:
        if each.job not in near:
            there = session_of(session, each.record)
            ask_slurm(there, ("scancel", each.job), doing="cancelling", otherwise=NOT_KNOWN)
    for each in going:
        if each.record and "+" not in each.job:  # the other components of a job continue
            try:
                write_cancelled(each.record, each.job)
            except OSError as error:  # the job is cancelled, also if the disk is full
                session.reporter.note(f"the cancellation of job {each.job} cannot be written to its record: {error}")
            if each.waited and not read_submission(each.record).ssh:
                _remove_mark(each.record, each.job)
    return tuple(
        f"{'run' if LOCAL_RUN.fullmatch(each.job) else 'job'} {each.job} has already ended: {each.text}"
        if each.has_ended
        else f"job {each.job} is cancelled{each.text}"
        for each in asked
    )


def _remove_mark(record: Path, job: str) -> None:
    """Remove the mark that a job with ``--resume`` left next to its checkpoint for the restart that it waited for.

    Its script does that at the end of a run.  The tasks of an array have several checkpoints, whose marks stay.
    """
    with contextlib.suppress(OSError, UnicodeDecodeError):
        checkpoint = find_checkpoint((record / SCRIPT).read_text(encoding="utf-8"))
        if checkpoint:
            Path(f"{checkpoint}.argosy-{job}").unlink(missing_ok=True)


def _resolve(session: Session, job: str) -> str:
    """Return the job or run to cancel; of the jobs with a name, the only one that waits or runs.

    Slurm knows by which name a job waits or runs.  A step in an allocation has a name, too, but its number is that of
    the allocation.

    Raises
    ------
    UsageError
        If no job has the name, or several waiting and running jobs have it, or the last launch is not a job of its own.
    CheckFailed
        If the controller does not answer.
    """
    if JOB.fullmatch(job) or (LOCAL_RUN.fullmatch(job) and was_started(session.paths.runs / job)):
        return job
    if job == LAST:
        launch = last_launch(session)
        if launch.in_allocation:
            raise UsageError(
                f"the last launch ran in the allocation of job {launch.id}",
                hint=f"to end the allocation: argosy cancel {launch.id}",
            )
        return launch.id
    here = _list_alive(session, job)
    alive = {**here, **_list_alive_by_ssh(session, job, is_optional=bool(here))}
    if len(alive) > 1:
        numbers = sorted(alive, key=int, reverse=True)
        raise UsageError(
            f"{len(alive)} of your jobs have the name {job!r}",
            evidence="\n".join(f"job {number} {alive[number]}" for number in numbers),
            hint=f"cancel one by its number: argosy cancel {numbers[0]}; "
            f"or all of them: argosy cancel {' '.join(numbers)}",
        )
    ended = (each.id for each in find_named(session, job))
    number = next(iter(alive), "") or next(ended, "")
    if not number:
        raise unknown_name(session, job)
    return number


def _list_alive(session: Session, name: str) -> dict[str, str]:
    """Return the waiting and running jobs with a name: number -> what the job does; empty without Slurm."""
    try:
        return _describe(row for row in list_jobs(session) if name and row.name == name)
    except ToolMissing:
        return {}


def _list_alive_by_ssh(session: Session, name: str, *, is_optional: bool) -> dict[str, str]:
    """Return the waiting and running jobs with a name that were submitted by ssh; one question for each cluster.

    Parameters
    ----------
    is_optional
        Whether a cluster that does not answer is left out.
    """
    records: dict[str, dict[str, Path]] = {}
    for launch in find_named(session, name):
        host = read_submission(launch.record).ssh
        if host:
            records.setdefault(host, {})[launch.id] = launch.record
    alive: dict[str, str] = {}
    for jobs in records.values():
        there = session_of(session, next(iter(jobs.values())))
        try:
            rows = list_jobs(there)
        except ArgosyError:
            if not is_optional:
                raise
            continue
        alive |= _describe(row for row in rows if base_number(row.id) in jobs)
    return alive


def _describe(rows: Iterable[JobRow]) -> dict[str, str]:
    """Return what jobs do by the states of their tasks; jobs that have ended are left out."""
    found: dict[str, list[str]] = {}
    for row in rows:
        kind, meaning = describe_state(row.state)
        if kind != ENDED:
            found.setdefault(base_number(row.id), []).append(meaning)
    return {number: " and ".join(dict.fromkeys(meanings)) for number, meanings in found.items()}


def _look(session: Session, job: str) -> JobToCancel:
    """Ask for a job before it is cancelled.

    Raises
    ------
    UsageError
        If the job is unknown, or it is a run on this machine that continues.
    """
    if LOCAL_RUN.fullmatch(job):
        return _look_at_run(session.paths.runs / job, session.host.hostname)
    job = re.sub(r"%\d+(?=\]$)", "", job)  # squeue's limit of tasks that run at a time is not part of the list
    record = find_record(session, job)
    number = job if re.fullmatch(r"\d+_\d+", job) else base_number(job)
    rows = ask_tasks(session_of(session, record), number)
    own = task_number(job, choose_task(rows))
    if job.isdigit() and base_number(own) != job:  # Slurm's own number of a task, which is not that of its array
        job, record = own, find_record(session, own)
    if "[" in job:
        rows = tuple(row for row in rows if _is_one_of(row, job))
    if rows:
        owner = "" if record else other_user(rows[0], session.host.person.uid)
        return _describe_job(job, record, rows, owner)
    if record is None or not may_have(record, number):
        raise UsageError(
            f"there is no job {job}", evidence="nothing was cancelled", hint="see your jobs with 'argosy jobs'"
        )
    last = None if "_" in job else last_run(read_runs(record))  # the record may not say which task had which end
    code = f"; it ended with code {last.code}" if last else ""
    return JobToCancel(job, record, has_ended=True, text=f"Slurm does not list it any more{code}")


def _describe_job(job: str, record: Path | None, rows: Sequence[dict[str, str]], owner: str) -> JobToCancel:
    """Describe a job that Slurm lists, by the rows of what is cancelled: the job, a task, or several tasks."""
    facts = choose_task(rows)
    kind, meaning = describe_state(facts.get("JobState", ""))
    if kind == ENDED:
        return JobToCancel(job, record, has_ended=True, text=meaning, other_user=owner)
    has_several = "ArrayJobId" in facts and not re.fullmatch(r"\d+_\d+", job)
    what = _count_tasks(rows) if has_several else _where(facts, meaning)
    text = ", ".join(filter(None, (facts.get("JobName", ""), what)))
    return JobToCancel(job, record, has_ended=False, text=f" ({text})", other_user=owner, waited=kind == WAITING)


def _is_one_of(row: dict[str, str], job: str) -> bool:
    """Return whether the row of scontrol is about some of the tasks in a list: ``7_[1,3-5]``."""
    shown, wanted = row.get("ArrayTaskId", ""), job.partition("_")[2]
    return shown.endswith("...") or share_task(shown, wanted)


def _count_tasks(rows: Sequence[dict[str, str]]) -> str:
    """Say what the tasks of an array did; those that wait share a row, whose list Slurm may shorten."""
    kinds = Counter(describe_state(row.get("JobState", ""))[0] for row in rows)
    ran, ended = kinds[RUNNING], kinds[ENDED]
    parts = (
        f"{count(ran, 'task')} ran" if ran else "",
        f"{ended if ran else count(ended, 'task')} had ended" if ended else "",
        f"{'the others' if ran or ended else 'all tasks'} waited" if kinds[WAITING] else "",
    )
    return ", ".join(filter(None, parts))


def _look_at_run(record: Path, hostname: str) -> JobToCancel:
    run, (owner, _) = read_local_run(record, hostname), read_owner(record / STARTED)
    if run.kind == ENDED:
        return JobToCancel(run.id, record, has_ended=True, text=run.meaning)
    by_signal = f", or on {owner.host} with: kill {owner.pid}" if owner else ""
    raise UsageError(
        f"cannot cancel {run.subject}: it {run.meaning}, and is not a job of Slurm",
        hint=f"stop it with Ctrl-C in its terminal{by_signal}",
    )


def _where(facts: dict[str, str], meaning: str) -> str:
    nodes = known_value(facts.get("NodeList", ""))
    return f"it ran on {nodes}" if nodes else f"it {meaning}".replace("it waits", "it waited")
