"""Find runs on this machine: launches without Slurm, whose records have no job number."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.locks import is_alive, is_of_this_boot, read_owner
from argosy.core.os_errors import time_of_change
from argosy.core.parse import parse_int, read_json_object
from argosy.core.render import DAY
from argosy.core.session import Session
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.names import LOCAL_RUN, resolve_name, was_started
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import (
    END,
    STARTED,
    SUBMITTED,
    Run,
    read_first,
    read_plan,
    read_submission,
    recording_command,
    time_of_record,
)
from argosy.slurm.states import ENDED, RUNNING

HERE = "this machine"
"""The node of a run on this machine."""


def find_run(session: Session, name: str) -> JobFacts:
    """Return the facts of a job or of a run on this machine.

    Parameters
    ----------
    name
        A number or name of a job, the name or the folder of a run's record, or ``last`` for the newest job or run.

    Raises
    ------
    UsageError
        When neither Slurm nor a record knows it.
    """
    known = resolve_name(session, name)
    return _find_local_run(session, known) or find_job(session, known, or_record=True)


def refuse_unrecorded_output(facts: JobFacts) -> None:
    """Refuse a run on this machine without --log-dir, whose output was not recorded as that of a job is."""
    if facts.is_local and not facts.output:
        raise UsageError(
            f"the output of {facts.subject} was not recorded",
            evidence=f"it {facts.meaning}",
            hint=f"run it again: {recording_command(Path(facts.record), 'why' if facts.code else '')}",
        )


def _find_local_run(session: Session, name: str) -> JobFacts | None:
    """Return the facts of a run on this machine, by the name or the folder of its record; None for a job."""
    if not LOCAL_RUN.fullmatch(Path(name).name):
        return None
    record = next(filter(was_started, (Path(name), session.paths.runs / name)), None)
    return None if record is None or read_submission(record).is_known else read_local_run(record, session.host.hostname)


class _RunState(msgspec.Struct, frozen=True):
    """Whether a run on this machine has ended, and how."""

    kind: str
    meaning: str
    code: int = 0
    ended: int = 0
    """Time of its end in seconds since 1970; 0 if it is unknown."""
    is_alive: bool = False
    """Whether its process certainly exists."""


def _read_state(record: Path, hostname: str) -> _RunState:
    end = record / END
    if end.is_file():
        code = parse_int(str(read_json_object(end).get("code")), 1)
        meaning = "ended with an error" if code else "ended well"
        return _RunState(ENDED, meaning, code, int(end.stat().st_mtime))
    owner, _ = read_owner(record / STARTED)
    alive = is_alive(owner) if owner and owner.host == hostname else None
    if alive:
        return _RunState(RUNNING, f"runs on {HERE}", is_alive=True)
    if owner and owner.host == hostname and (alive is False or not is_of_this_boot(owner)):
        return _RunState(ENDED, "was killed", 1)
    # In another pid namespace or machine, or its record is damaged.
    return _RunState(RUNNING, "runs, or was interrupted")


OPEN_SECONDS = 30 * DAY
"""Seconds after its launch for which a job is taken for one that may wait or run, if only Slurm knows its end."""


def may_run(record: Path, launched: float, hostname: str, now: float) -> bool:
    """Return whether the job or run of a record may still wait or run, without asking Slurm.

    Parameters
    ----------
    launched, now
        Seconds since 1970.
    """
    if was_started(record) and not (record / SUBMITTED).is_file():
        state = _read_state(record, hostname)
        if state.is_alive or state.kind == ENDED:
            return state.is_alive
    return launched >= now - OPEN_SECONDS


def read_local_run(record: Path, hostname: str) -> JobFacts:
    """Return the facts of a run by its record: its exit code, or whether its process still exists."""
    made = time_of_record(record)
    begun = int(made.timestamp()) if made else 0
    state = _read_state(record, hostname)
    kind, code = state.kind, state.code
    first = read_first(record) if code else None  # torchrun's own code is 1, whatever the rank's was
    files = _logs_of_ranks(record)
    advice = f"its output was not recorded; run it again: {recording_command(record)}"
    return JobFacts(
        id=record.name, state="RUNNING" if kind == RUNNING else "FAILED" if code else "COMPLETED", kind=kind,
        meaning=state.meaning, reason="", nodes=HERE, is_local=True, code=first.code if first else code,
        output=_choose_log(files, first), outputs=files, first=first, restarts=0, record=str(record),
        runs=(Run(record.name, 0, code, HERE, begun, state.ended),),
        advice=advice if code and not files else "",
    )  # fmt: skip


def _logs_of_ranks(record: Path) -> tuple[str, ...]:
    """Return the files of the ranks of a run with --log-dir, which are in a folder with the name of its record."""
    logs = read_plan(record).logs
    return tuple(map(str, sorted(Path(logs, record.name).glob("rank-*.log")))) if logs else ()


def _choose_log(files: tuple[str, ...], first: RankEnd | None) -> str:
    """Return the log of the rank that failed first; if the record does not name it, it stopped writing first."""
    named = (file for file in files if first and Path(file).name == f"rank-{first.rank}.log")
    return next(named, "") or min(files, key=lambda file: time_of_change(Path(file)), default="")
