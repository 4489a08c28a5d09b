"""Find runs on this machine: launches without Slurm, whose records have no job number."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.session import Session
from argosy.jobs.history import past_jobs
from argosy.jobs.query import JobFacts
from argosy.jobs.record import END, Run, read_submitted
from argosy.slurm.text import ENDED, RUNNING

LAST = "last"
"""The word for the newest job or run."""

HERE = "this machine"
STAMP = re.compile(r"\d{8}-\d{6}")
"""The local time at the beginning of a record's name."""


def find_local_run(session: Session, name: str) -> JobFacts | None:
    """Return the facts of a run on this machine, by the folder of its record or ``last``; None for a job."""
    runs = session.paths.state / "runs"
    if name == LAST:
        record = max((file.parent for file in runs.glob("*/job.json")), default=None, key=lambda each: each.name)
    else:
        record = next((each for each in (Path(name), runs / name) if (each / "job.json").is_file()), None)
    return None if record is None or read_submitted(record) else _read_facts(record)


def last_job(session: Session) -> str:
    """Return the number of the job that was submitted last.

    Raises
    ------
    UsageError
        If there is none.
    """
    jobs = past_jobs(session, most=1)
    if not jobs:
        raise UsageError("nothing was launched from this machine yet", hint="give the number of a job")
    return jobs[0].id


def _read_facts(record: Path) -> JobFacts:
    end = record / END
    stamp = STAMP.match(record.name)
    started = dt.datetime.strptime(stamp[0], "%Y%m%d-%H%M%S").astimezone() if stamp else None
    begun = int(started.timestamp()) if started else 0
    if not end.is_file():
        return JobFacts(
            id=record.name, state="RUNNING", kind=RUNNING, meaning="runs, or was interrupted", reason="", nodes=HERE,
            output="", code=0, restarts=0, record=str(record), runs=(Run(record.name, 0, 0, HERE, begun),),
        )  # fmt: skip
    code = int(json.loads(end.read_text(encoding="utf-8"))["code"])
    return JobFacts(
        id=record.name, state="FAILED" if code else "COMPLETED", kind=ENDED,
        meaning="ended with an error" if code else "ended well", reason="", nodes=HERE, output="", code=code,
        restarts=0, record=str(record), runs=(Run(record.name, 0, code, HERE, begun, int(end.stat().st_mtime)),),
        advice=f"its output was printed on the terminal; run it again: sh {record}/job.sh > run.log 2>&1, and explain "
        "the log: argosy why run.log" if code else "",
    )  # fmt: skip
