"""Jobs that were submitted, from their records alone: which there were, how they ended, in what two of them differ."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import choice_label
from argosy.core.session import Session
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import Run, find_record, last_run, read_first, read_runs, read_submitted

PLAIN = ("image", "digest", "site", "scheduler")
"""What a plan says in one word each."""

GROUPS = ("shape", "versions")
"""What a plan says in several named words."""


class PastJob(msgspec.Struct, frozen=True):
    """A job that was submitted.

    Attributes
    ----------
    submitted
        When, as ISO 8601 writes it; empty where it was not noted.
    run
        Its last run that ended; None where none did, or none could note it.
    plan
        What it was submitted with; empty where that cannot be read.
    code
        Exit code of the last run: that of the rank that failed first, where it was noted.
    """

    id: str
    name: str
    site: str
    submitted: str
    record: str
    run: Run | None
    plan: dict[str, Any]
    code: int = 0

    @property
    def end(self) -> str:
        """Say in a few words how it ended."""
        if self.run is None:
            return "no end is noted"
        how = "ended well" if self.code == 0 else f"ended with code {self.code}"
        took = f" after {_duration(self.run.ended - self.run.started)}" if self.run.started and self.run.ended else ""
        return f"{how}{took} on {self.run.nodes}"


def kept_plan(session: Session, job: str) -> LaunchPlan:
    """Read the whole plan that a job was submitted with, its script too.

    Raises
    ------
    UsageError
        When there is no record of such a job, or it cannot be read.
    """
    record = find_record(session, job)
    if record is None:
        raise UsageError(
            f"there is no record of a job {job}",
            evidence=f"looked for in {session.paths.state / 'runs'}",
            hint="see your jobs with 'argosy jobs --past 20'; or name an image and its command",
        )
    try:
        told = json.loads((record / "job.json").read_text(encoding="utf-8"))
        script = (record / "job.sh").read_text(encoding="utf-8")
        return msgspec.convert({**told, "script": script}, LaunchPlan)
    except (OSError, ValueError, TypeError) as error:
        raise UsageError(f"the record of job {job} cannot be read", evidence=f"{record}: {error}") from error


def past_jobs(session: Session, *, most: int) -> tuple[PastJob, ...]:
    """Return the jobs that were submitted from here, the newest first."""
    found: list[PastJob] = []
    for file in sorted((session.paths.state / "runs").glob("*/submitted.json"), reverse=True):
        job = read_submitted(file.parent).get("job")
        if job and len(found) < most:
            found.append(_read(job, file.parent))
    return tuple(found)


def read_job(session: Session, job: str) -> PastJob:
    """Return one job that was submitted from here.

    Raises
    ------
    UsageError
        When there is no record of it.
    """
    record = find_record(session, job)
    if record is None:
        raise UsageError(f"there is no record of job {job}", hint="see those there are with: argosy jobs --past 20")
    return _read(job, record)


def diff_jobs(first: PastJob, second: PastJob) -> tuple[tuple[str, str, str], ...]:
    """Compare what two jobs were submitted with: rows of what, the first's value, the second's."""
    one, other = _settings(first.plan), _settings(second.plan)
    rows = ((key, one.get(key, ""), other.get(key, "")) for key in dict.fromkeys((*one, *other)))
    return tuple(row for row in rows if row[1] != row[2])


def _settings(plan: dict[str, Any]) -> dict[str, str]:
    """Return all that a plan says as named words; what is said twice under one name is joined."""
    said = [(key, str(plan.get(key, ""))) for key in PLAIN]
    for group in GROUPS:
        said += [(f"{group} {key}", str(value)) for key, value in (plan.get(group) or {}).items()]
    said += [(choice_label(str(row.get("key", ""))), str(row.get("value", ""))) for row in plan.get("choices") or ()]
    found: dict[str, str] = {}
    for key, value in said:
        found[key] = f"{found[key]}, {value}" if found.get(key) else value
    for word in plan.get("directives") or ():
        key, _, value = str(word).partition("=")
        found.setdefault(key, value or "yes")
    return found


def _read(job: str, record: Path) -> PastJob:
    submitted, runs = read_submitted(record), read_runs(record)
    try:
        plan = json.loads((record / "job.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        plan = {}
    plan = plan if isinstance(plan, dict) else {}
    last = last_run(runs)
    first = read_first(record) if last and last.code else None
    code = first.code if first else last.code if last else 0
    name, site, time = str(plan.get("name", "")), submitted.get("site", ""), submitted.get("time") or _made(record)
    return PastJob(job, name, site, time, str(record), last, plan, code)


def _made(record: Path) -> str:
    """Return the time by which a record is named; empty where it is named otherwise."""
    found = re.match(r"(\d{4})(\d\d)(\d\d)-(\d\d)(\d\d)(\d\d)-", record.name)
    return "{}-{}-{}T{}:{}:{}".format(*found.groups()) if found else ""


def _duration(seconds: int) -> str:
    hours, rest = divmod(max(0, seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"
