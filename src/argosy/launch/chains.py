"""Refuse a second chain of jobs (``--resume``) that writes the checkpoint of another one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.session import Session
from argosy.jobs.first_failure import find_checkpoint
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.names import Launch, list_launches
from argosy.jobs.record import SCRIPT, read_plan, read_submission
from argosy.jobs.scheduler import list_jobs
from argosy.slurm.queries import JobRow, base_number
from argosy.slurm.states import ENDED, describe_state

AFTER_END = frozenset({"afterany", "afterok", "afternotok"})
"""Dependencies of Slurm that are met when the other job has ended, so that it does not run any more."""


def refuse_shared_checkpoint(plan: LaunchPlan, session: Session, *, ssh: str = "") -> None:
    """Refuse a job that resumes from the checkpoint of another waiting or running job that resumes.

    Both would replace each other's checkpoint, and each would take the other's progress for its own.  The other job is
    found by its record.  A job that starts after the end of the other one is allowed.

    Parameters
    ----------
    session
        Its runner reaches the cluster.
    ssh
        Destination of a submission by ssh; empty for the Slurm of this machine.
    """
    own = find_checkpoint(plan.script)
    if not own:
        return
    launches = [each for each in list_launches(session) if read_submission(each.record).ssh == ssh]
    others = [each for each in launches if _overlaps(own, _checkpoint_of(each), is_here=not ssh)]
    before = _jobs_before(plan.directives, launches)
    others = [each for each in others if each.id not in before]
    if not others:
        return
    try:
        rows = list_jobs(session)
    except ArgosyError:  # sbatch will report it
        return
    alive = {base_number(row.id): row for row in rows if describe_state(row.state)[0] != ENDED}
    for each in others:
        row = alive.get(each.id)
        # A cluster may give a number again.
        if row and row.name == each.name and not _takes_turns(plan, row):
            raise _shared(own, each, row)


def _shared(own: str, other: Launch, row: JobRow) -> UsageError:
    theirs = _checkpoint_of(other)
    same = f"; it writes {theirs}" if theirs != own else ""
    return UsageError(
        f"job {other.id} writes the same checkpoint: {own}",
        evidence=f"job {other.id} ({row.name}) {describe_state(row.state)[1]}, with --resume{same}",
        hint=f"use another --checkpoint, start after its success with --after {other.id}, or cancel it: "
        f"argosy cancel {other.id}; --no-check submits the job anyway",
    )


def _checkpoint_of(launch: Launch) -> str:
    """Return the checkpoint of a recorded job with ``--resume``; empty for any other job."""
    try:
        return find_checkpoint((launch.record / SCRIPT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""


def _overlaps(own: str, other: str, *, is_here: bool) -> bool:
    """Return whether two checkpoints are one file or folder, or one is inside the other."""
    if not other:
        return False
    resolve = os.path.realpath if is_here else os.path.normpath
    one, two = PurePosixPath(resolve(own)), PurePosixPath(resolve(other))
    return one.is_relative_to(two) or two.is_relative_to(one)


def _jobs_before(directives: Iterable[str], launches: Iterable[Launch]) -> frozenset[str]:
    """Return the jobs that end before a job with these options starts, also those that its dependencies wait for."""
    records = {each.id: each.record for each in launches}
    found: set[str] = set()
    left = list(_dependencies(directives))
    while left:
        job = left.pop()
        if job not in found:
            found.add(job)
            left += _dependencies(read_plan(records.get(job)).directives)
    return frozenset(found)


def _dependencies(directives: Iterable[str]) -> Iterator[str]:
    """Yield the jobs that must have ended before a job starts."""
    for option in directives:
        name, _, value = option.partition("=")
        if name == "--dependency" and "?" not in value:  # with a question mark, one of them is enough
            for part in value.split(","):
                kind, *jobs = part.split(":")
                yield from (found[0] for job in jobs if kind in AFTER_END and (found := re.match(r"\d+", job)))


def _takes_turns(plan: LaunchPlan, row: JobRow) -> bool:
    """Return whether Slurm starts a job only after the end of all other jobs with its name."""
    options = (option.partition("=")[::2] for option in plan.directives)
    return plan.name == row.name and any(
        name == "--dependency" and "singleton" in value.split(",") for name, value in options
    )
