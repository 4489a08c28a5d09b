"""Say what to do about a job that waits for the user, or that failed: by its reason, its output and its record."""

from __future__ import annotations

from pathlib import Path

from argosy.core.session import Session
from argosy.jobs.first_failure import advise_end, find_checkpoint, no_output
from argosy.jobs.record import SCRIPT, find_record, is_cancelled, last_run, read_command_line, read_plan, read_runs
from argosy.slurm.sbatch import option_value
from argosy.slurm.states import WAITING, advise_waiting, describe_state


def advise(job: str, facts: dict[str, str], output: str, state: str, record: Path | None) -> str:
    """Return what to change after a failure, or what to do if the job waits for the user; empty for other jobs."""
    if describe_state(state)[0] == WAITING:
        return advise_waiting(facts.get("Reason", ""), job)
    return no_output(facts, output) or _advise_from_record(state, record)


def _advise_from_record(state: str, record: Path | None) -> str:
    """Return the line of project file or script that requests too little, and how to continue from a checkpoint."""
    try:
        script = (record / SCRIPT).read_text(encoding="utf-8") if record else ""
        sources = {choice.key: choice.source for choice in read_plan(record).choices}
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    checkpoint = find_checkpoint(script)
    again = (
        f"to continue from {checkpoint}, if the program wrote it, launch the job again with the same --checkpoint"
        if checkpoint
        else ""
    )
    return "; ".join(filter(None, (advise_end(state, script, sources), again)))


def advise_after_smoke(session: Session, record: str) -> str:
    """Name the smoke run of a job that never started, because Slurm removes the job if that run fails."""
    if "--smoke-first" not in read_command_line(record):
        return ""
    directives = read_plan(record).directives
    dependency = option_value(directives, "--dependency") or ""
    is_removed = "--kill-on-invalid-dep=yes" in directives  # the smoke run itself does not have it
    smoke = dependency.rpartition("afterok:")[2] if is_removed else ""
    smoke_record = find_record(session, smoke) if smoke.isdigit() else None
    last = last_run(read_runs(smoke_record))
    if smoke_record is None or (last and last.code == 0):
        return ""
    if is_cancelled(smoke_record, smoke):
        return f"its smoke run {smoke} was cancelled"
    failed = f"its smoke run {smoke} failed: argosy why {smoke}"
    return failed if last else f"it waited for its smoke run {smoke}: argosy jobs show {smoke}"
