"""Find a job, or a run on this machine, by a number, a name or ``last``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.os_errors import suggest_file
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.suggest import suggest_word
from argosy.jobs.record import END, RECORD_NAME, STARTED, read_plan, read_submission
from argosy.jobs.scheduler import list_jobs
from argosy.slurm.queries import base_number, is_job_id

LAST = "last"
"""The word for the newest job or run."""

LOCAL_RUN = re.compile(RECORD_NAME)

JOB = re.compile(r"([1-9]\d*)(_(\d+|\[[\d,%-]+\]))?(\+\d+)?")
"""A job, a task of an array or several of them, a component of a heterogeneous job."""


class Launch(msgspec.Struct, frozen=True):
    """A launch in the records."""

    id: str
    """Number of the job, or name of the record of a run on this machine."""
    record: Path
    in_allocation: bool
    """Whether it ran as steps of a job that another command submitted."""

    @property
    def name(self) -> str:
        """The value of ``--name``, else the name of the program."""
        return read_plan(self.record).name


def resolve_name(session: Session, name: str) -> str:
    """Return the number of a job, or the name of the record of a run on this machine.

    Parameters
    ----------
    name
        The number of a job or the record of a run, which are returned unchanged, ``last`` for the newest launch, or
        the name of a job. Of several jobs with this name, the newest is used, and a note contains its number.

    Raises
    ------
    UsageError
        If no job has this name.
    """
    if _is_exact(name):
        return name
    if name == LAST:
        return last_launch(session).id
    found, problem = tuple(launch.id for launch in find_named(session, name)), ""
    if not found:
        try:
            found = _find_in_queue(session, name)
        except ArgosyError as error:
            problem = error.what
    if not found:
        raise unknown_name(session, name, problem)
    if len(found) > 1:
        kind = "job" if is_job_id(found[0]) else "run"
        session.reporter.note(f"{kind} {found[0]} is the newest of {len(found)} jobs with the name {name!r}")
    return found[0]


def last_launch(session: Session) -> Launch:
    """Return the newest launch.

    Raises
    ------
    UsageError
        If there is none.
    """
    launch = next(_launches(session), None)
    if launch is None:
        raise UsageError("nothing was launched from this machine yet", hint="give the number of a job")
    return launch


def names_run(session: Session, name: str) -> bool:
    """Return whether a text means a job or a run, and not a file; a file precedes a job with its name."""
    if _is_exact(name) or name == LAST:
        return True
    return bool(find_named(session, name)) and not os.path.exists(name)  # noqa: PTH110 - a name may be too long


def find_named(session: Session, name: str) -> tuple[Launch, ...]:
    """Return the launches in the records that have a name, the newest first."""
    return tuple(launch for launch in list_launches(session) if name and launch.name == name)


def _find_in_queue(session: Session, name: str) -> tuple[str, ...]:
    """Return the numbers of the waiting and running jobs that have a name, the newest first."""
    numbers = {base_number(row.id) for row in list_jobs(session) if name and row.name == name}
    return tuple(sorted(numbers, key=int, reverse=True))


def _recorded_names(session: Session) -> Iterator[str]:
    """Yield the names of the launches in the records, the newest first."""
    return (launch.name for launch in list_launches(session))


def unknown_name(session: Session, name: str, problem: str = "") -> UsageError:
    """Return the error for a name that no job has; it suggests a similar one.

    Parameters
    ----------
    problem
        Why Slurm could not be asked.
    """
    near = suggest_word(name, (LAST, *_recorded_names(session)))
    file = "" if near else quote(name) if Path(name).is_file() else suggest_file(Path(name))
    suggestion = f"did you mean {near}? " if near else f"to explain a file: argosy why {file}; " if file else ""
    searched = f"searched in {session.paths.runs}" + (f"; {problem}" if problem else "")
    hint = f"{suggestion}see your jobs with 'argosy jobs' and 'argosy jobs --past 20'"
    return UsageError(f"there is no job {name!r}", evidence=searched, hint=hint)


def unknown_log(session: Session, log: str, otherwise: str) -> UsageError:
    """Return the error for a log that is neither a file nor a job; it suggests a similar job or file.

    Parameters
    ----------
    otherwise
        Hint without the suggestion: the things that a log can be.
    """
    near = suggest_word(log, (LAST, *_recorded_names(session))) or (suggest_file(Path(log)) if log else "")
    return UsageError(f"there is no log {log!r}", hint=f"did you mean {near}? {otherwise}" if near else otherwise)


def was_started(record: Path) -> bool:
    """Return whether a folder is the record of a launch on this machine that was not refused."""
    return any((record / name).is_file() for name in (STARTED, END))


def _is_exact(name: str) -> bool:
    """Return whether a text is the number of a job, or the record of a run on this machine."""
    return bool(JOB.fullmatch(name) or LOCAL_RUN.fullmatch(Path(name).name))


def _launches(session: Session) -> Iterator[Launch]:
    """Yield the launches in the records, the newest first; a refused launch is not one."""
    for record in sorted((session.paths.runs).glob("*"), reverse=True):
        submission = read_submission(record)
        if submission.job:
            yield Launch(submission.job, record, submission.in_allocation)
        elif not submission.is_known and was_started(record):
            yield Launch(record.name, record, in_allocation=False)


def list_launches(session: Session) -> Iterator[Launch]:
    """Yield the launches outside of allocations, the newest first; of two jobs with one number, only the newer one."""
    seen: set[str] = set()
    for launch in _launches(session):
        if not launch.in_allocation and launch.id not in seen:
            seen.add(launch.id)
            yield launch
