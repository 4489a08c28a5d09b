"""List submitted jobs from their records: how they ended, and how two of them differ."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import ArgosyError, SiteError, UsageError
from argosy.core.parse import parse_json
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import join
from argosy.jobs.launch_plan import NO_PLAN, LaunchPlan
from argosy.jobs.local_run import read_local_run
from argosy.jobs.names import LOCAL_RUN, was_started
from argosy.jobs.record import (
    PLAN,
    SCRIPT,
    SUBMITTED,
    Run,
    damaged_files,
    find_record,
    is_cancelled,
    last_run,
    read_first,
    read_plan,
    read_runs,
    read_submission,
    time_of_record,
)
from argosy.jobs.scheduler import list_jobs
from argosy.slurm.queries import base_number
from argosy.slurm.sbatch import option_value
from argosy.slurm.states import ENDED, RUNNING, describe_state
from argosy.slurm.times import parse_minutes
from argosy.version import VERSION

LATEST = 200
"""Number of jobs that are searched for measurements."""


class PastJob(msgspec.Struct, frozen=True):
    """A job that was submitted, or a run on this machine."""

    id: str
    name: str
    site: str
    submitted: str
    """Time of submission in ISO 8601; empty if it was not recorded."""
    record: str
    run: Run | None
    """Its last run that ended; None if no end was recorded."""
    plan: LaunchPlan
    """The plan that it was submitted with, without its script; `NO_PLAN` if it cannot be read."""
    code: int = 0
    """Exit code of the last run: that of the rank that failed first, if it was recorded."""
    is_cancelled: bool = False
    """Whether ``argosy cancel`` cancelled it."""
    now: str = ""
    """Its state in the queue; empty if it has ended. A requeued job has ended runs, too."""
    end_of_slurm: str = ""
    """How it ended by Slurm, which knows this for some minutes; empty otherwise."""
    damaged: tuple[str, ...] = ()
    """Files of its record that cannot be read; without the file of the submission, the number may be empty."""

    @property
    def end(self) -> str:
        """How it ended, in a few words, or what it does now; and the damaged files of its record."""
        return "; ".join((self._how, *(f"{file} is damaged" for file in self.damaged)))

    @property
    def _how(self) -> str:
        if self.now:
            return self.now
        if self.run is None:
            return "was cancelled" if self.is_cancelled else self.end_of_slurm or "no end was recorded"
        took = self.run.ended - self.run.started if self.run.started and self.run.ended else 0
        how = "ended well" if self.code == 0 else f"ended with code {self.code}"
        if self.code and self.is_cancelled:
            how = "was cancelled"
        elif self.code and took >= self._limit - (UNTIL_LIMIT if self.code == TERMINATED else 0):
            how = "reached its time limit"
        return f"{how}{f' after {_duration(took)}' if took else ''} on {self.run.nodes}"

    @property
    def _limit(self) -> float:
        """Its time limit in seconds; infinite if it is unknown, or the record is damaged."""
        time = option_value(self.plan.directives, "--time")
        try:
            return parse_minutes(time) * 60 if time else math.inf
        except SiteError:
            return math.inf


TERMINATED = 128 + signal.SIGTERM
"""Exit code of a job that Slurm ended, for example at its time limit."""

UNTIL_LIMIT = 30
"""Seconds from the start of a job until its script records the start, at most."""


def kept_plan(session: Session, job: str) -> LaunchPlan:
    """Read the plan that a job was submitted with, including its script.

    Raises
    ------
    UsageError
        If there is no record of this job, or it cannot be read.
    """
    return read_kept_plan(_find_record(session, job), f"job {job}")


def _find_record(session: Session, job: str) -> Path:
    record, run = find_record(session, job), session.paths.runs / job
    if record is None and LOCAL_RUN.fullmatch(job) and was_started(run):
        return run
    if record is None:
        raise UsageError(
            f"there is no record of job {job}",
            evidence=f"searched in {session.paths.runs}",
            hint="see the jobs that were submitted from here: argosy jobs --past 20",
        )
    return record


def _other_format(record: Path, name: str, plan: Mapping[str, Any], message: str) -> UsageError:
    """Return the error for a record whose values have other types; the script in it is complete."""
    key = re.search(r"`\$\.(\w+)|field `(\w+)`", message)
    versions = plan.get("versions")
    writer = versions.get("argosy") if isinstance(versions, dict) else None
    is_other = writer not in {None, VERSION}
    which = f"Argosy {writer} wrote it, and this is {VERSION}" if is_other else f"this is Argosy {VERSION}"
    value = f"; the value {key[1] or key[2]!r} is missing or of another type" if key else ""
    return UsageError(
        f"cannot read the record of {name}: another version of Argosy wrote it, or it is damaged",
        evidence=f"{record / PLAN}: {which}{value}",
        hint=f"read the script of the job: {record / SCRIPT}; or repeat the options of the launch",
    )


def read_kept_plan(record: Path, name: str) -> LaunchPlan:
    """Read the plan in a record, including its script.

    Parameters
    ----------
    name
        The job or run, for errors.

    Raises
    ------
    UsageError
        If it cannot be read.
    """
    try:
        plan = parse_json((record / PLAN).read_text(encoding="utf-8"))
        script = (record / SCRIPT).read_text(encoding="utf-8")
        return msgspec.convert({**plan, "script": script}, LaunchPlan)
    except msgspec.ValidationError as error:
        raise _other_format(record, name, plan, str(error)) from error
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(
            f"cannot read the record of {name}",
            evidence=f"{record}: {error}",
            hint="repeat the options of the launch instead of the job number",
        ) from error


def past_jobs(session: Session, *, most: int) -> tuple[PastJob, ...]:
    """Return the jobs that were submitted from here and the runs on this machine, the newest first."""
    now, ends = _ask_slurm(session)
    return tuple(
        replace(job, now=now.get(job.id, job.now), end_of_slurm=ends.get(job.id, ""))
        for job in _recorded_jobs(session, most)
    )


def _ask_slurm(session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """Return what each waiting or running job does, and how others ended; empty if Slurm does not answer."""
    now: dict[str, str] = {}
    ends: dict[str, str] = {}
    try:
        # Of an array, a task that runs comes after those that wait: the last one counts.
        for row in sorted(list_jobs(session, ended=True), key=lambda row: describe_state(row.state)[0] == RUNNING):
            kind, meaning = describe_state(row.state)
            (ends if kind == ENDED else now)[base_number(row.id)] = meaning
    except ArgosyError:
        return {}, {}
    return now, ends


def _recorded_jobs(session: Session, most: int) -> tuple[PastJob, ...]:
    """Read the newest records, until there are `most` jobs and runs; older records are not read."""
    newest_first = sorted(session.paths.runs.glob("*"), reverse=True)
    found = (_read_record(record, session) for record in newest_first)
    return tuple(islice((job for job in found if job is not None), most))


def _read_record(record: Path, session: Session) -> PastJob | None:
    """Read the record of a job, or of a run on this machine; None for a launch that was not started."""
    if not (record / SUBMITTED).is_file():
        return _read_run(record, session) if was_started(record) else None
    job = read_submission(record).job
    # Slurm may have a job whose number is lost with a damaged file, so the list names this file.
    return _read(job, record) if job or damaged_files(record) else None


def read_job(session: Session, job: str) -> PastJob:
    """Return one job that was submitted from here, or one run on this machine.

    Raises
    ------
    UsageError
        If there is no record of it.
    """
    record = _find_record(session, job)
    return _read_run(record, session) if record.name == job else _read(job, record)


def diff_jobs(first: PastJob, second: PastJob) -> tuple[tuple[str, str, str], ...]:
    """Compare the plans of two jobs; return rows of setting, first value and second value."""
    one, other = _settings(first.plan), _settings(second.plan)
    rows = ((key, one.get(key, ""), other.get(key, "")) for key in dict.fromkeys((*one, *other)))
    return tuple(row for row in rows if row[1] != row[2])


def _settings(plan: LaunchPlan) -> dict[str, str]:
    """Return the settings of a plan by name; several values of one name are joined."""
    values = [("image", plan.image), ("digest", plan.digest), ("site", plan.site), ("scheduler", plan.scheduler)]
    if plan is not NO_PLAN:
        values += [(f"shape {key}", str(value)) for key, value in asdict(plan.shape).items()]
    values += [(f"versions {key}", value) for key, value in plan.versions.items()]
    values.append(("command", join(plan.command)))
    values += [(choice.label, choice.value) for choice in plan.choices]
    found: dict[str, str] = {}
    for key, value in values:
        found[key] = f"{found[key]}, {value}" if found.get(key) else value
    for option in plan.directives:
        key, _, value = option.partition("=")
        found.setdefault(key, value or "yes")
    return found


def _read(job: str, record: Path) -> PastJob:
    submission, runs = read_submission(record), read_runs(record)
    plan = read_plan(record)
    last = last_run(runs)
    first = read_first(record) if last and last.code else None
    code = first.code if first else last.code if last else 0
    made = time_of_record(record)
    name, time = plan.name, submission.time or (f"{made:%Y-%m-%dT%H:%M:%S}" if made else "")
    damaged = tuple(map(str, damaged_files(record)))
    cancelled = is_cancelled(record, job)
    job = job or (last.job if last else "")
    return PastJob(job, name, submission.site, time, str(record), last, plan, code, cancelled, damaged=damaged)


def _read_run(record: Path, session: Session) -> PastJob:
    """Read the record of a run on this machine."""
    found = _read(record.name, record)
    meaning = read_local_run(record, session.host.hostname).meaning
    return replace(found, site=found.plan.site, now=meaning)


def _duration(seconds: int) -> str:
    hours, rest = divmod(max(0, seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
