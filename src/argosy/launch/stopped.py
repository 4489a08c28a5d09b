"""Say what became of a job that was being submitted when we were asked to stop."""

from __future__ import annotations

from pathlib import Path

from argosy.errors import Interrupted, Stopped, ToolMissing
from argosy.launch.records import LaunchPlan
from argosy.launch.story import note_job
from argosy.process import Command
from argosy.session import Session

PATIENCE_S = "10"
"""For one question: who asked us to stop waits for the answer."""


def explain_stop(session: Session, plan: LaunchPlan, folder: Path, stopped: Interrupted, *, profile: str) -> Stopped:
    """Ask whether Slurm has the job already, note its number where it has, and say it."""
    job = _find_job(session, folder)
    if not job:
        return Stopped(
            stopped.signal_number,
            "stopped while the job was submitted; no such job is seen",
            hint="look with 'argosy jobs' before you launch it again",
        )
    note_job(plan, folder, job, profile=profile)
    return Stopped(
        stopped.signal_number, f"stopped; job {job} is submitted, and goes on", hint=f"to end it: argosy cancel {job}"
    )


def _find_job(session: Session, folder: Path) -> str:
    """Give the number of the job that runs the script of a record; empty where none is known."""
    asked = ("squeue", "--noheader", "--states=all", "--format=%F|%o", "--user", session.host.person.name)
    try:
        reply = session.runner.run(Command(("timeout", PATIENCE_S, *asked)))
    except ToolMissing:
        return ""
    script = str(folder / "job.sh")
    rows = (line.partition("|") for line in reply.stdout.splitlines())
    return next((number for number, _, command in rows if command.strip() == script), "")
