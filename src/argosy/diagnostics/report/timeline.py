"""Collect the events of a job, from its records, its output and Slurm; one without evidence stays unknown."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from argosy.core.render import count, render_duration
from argosy.diagnostics.report.model import Event, Phase
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.jobs.record import Run, read_first_output, read_submission
from argosy.slurm.messages import STEPD
from argosy.slurm.sbatch import option_value

WARNED = re.compile(r"^argosy: (\d{4}-\d\d-\d\dT[\d:]+[+-]\d{4}): the time limit is near: (\w+)", re.MULTILINE)
"""The line of the job script that passes the warning of Slurm on to the ranks."""

STOPPED = re.compile(rf"^{STEPD}\*\*\* STEP [^\n]* CANCELLED AT (\d{{4}}-\d\d-\d\dT[\d:]+)", re.MULTILINE)
"""The message of Slurm when it ends the ranks of a step."""

ORDER = tuple(Phase)
"""Order of events within a second."""


def plan_timeline(facts: JobFacts, output: str) -> tuple[Event, ...]:
    """Return the events in their order; those of one second are in the order of a run."""
    return tuple(sorted(_moments(facts, output), key=lambda each: (each.seconds, ORDER.index(each.phase))))


def unknown_times(facts: JobFacts, plan: LaunchPlan | None, output: str) -> Iterator[tuple[str, str]]:
    """Yield events that happened, or were requested, but whose time nothing shows: event and reason."""
    record = Path(facts.record) if facts.record else None
    if not facts.submitted and plan is not None and plan.is_job:
        yield "submitted", "the record of the submission has no time"
    if facts.ranks and not _knows_rank_times(facts):
        yield "last rank started", "the record is a copy by ssh, whose files have other times"
    if facts.ranks and not read_first_output(record):
        own = "each rank writes to a file of its own" if plan and plan.logs else "nothing recorded it"
        yield "first output", own
    warning = option_value(plan.directives, "--signal") if plan else ""
    if warning and not WARNED.search(output):
        yield "warning signal", f"--signal={warning} was requested, but no record shows that it was sent"
    missing = facts.restarts + 1 - len({run.restart for run in facts.runs})
    if facts.runs and facts.restarts and missing > 0 and facts.ended:
        yield f"end of {count(missing, 'earlier run')}", "Slurm ended them from outside, so the script recorded nothing"


def _knows_rank_times(facts: JobFacts) -> bool:
    return bool(facts.record) and not read_submission(facts.record).ssh


def _moments(facts: JobFacts, output: str) -> Iterator[Event]:
    if facts.submitted:
        yield Event(_seconds(facts.submitted), "submitted", Phase.QUEUE)
    for run in facts.runs:
        yield from _run_moments(run, facts.runs)
    first = read_first_output(Path(facts.record)) if facts.record else {}
    if facts.ranks and _knows_rank_times(facts):
        times = (file.stat().st_mtime for file in Path(facts.record).glob("ranks-*"))
        phase = Phase.START if first else Phase.RUN
        yield Event(int(max(times)), "last rank started", phase)
    for (job, restart), seconds in first.items():
        yield Event(seconds, f"{_name(job, restart, facts.runs)}first output", Phase.RUN)
    for time, signal in WARNED.findall(output):
        yield Event(_seconds(time), f"warning signal {signal}: the time limit is near", Phase.STOP)
    if facts.first:
        rank = f"Slurm stopped the other ranks after rank {facts.first.rank} had failed"
        yield from (Event(_seconds(time), rank, Phase.STOP) for time in STOPPED.findall(output)[-1:])
    if not facts.runs:  # the script records the end of a run, but not if it is killed or fails early
        for text, time, phase in (("started", facts.began, Phase.START), ("ended", facts.ended, Phase.END)):
            if time:
                yield Event(_seconds(time), text, phase)


def _run_moments(run: Run, runs: Sequence[Run]) -> Iterator[Event]:
    name = _name(run.job, run.restart, runs)
    if run.started:
        yield Event(run.started, f"{name}started", Phase.START)
    if run.ended:
        again = any(each.job == run.job and each.restart > run.restart for each in runs)
        end = ", then requeued" if again else ""
        phase = Phase.QUEUE if again else Phase.END
        yield Event(run.ended, f"{name}ended, exit code {run.code}{end}", phase)


def _name(job: str, restart: int, runs: Sequence[Run]) -> str:
    """Return which run an event belongs to if there are several: the restart, or the job of an array's task."""
    if len({each.job for each in runs}) > 1:
        return f"job {next((each.name for each in runs if each.job == job), job)} "
    return f"run {restart + 1} " if restart or len(runs) > 1 else ""


def _seconds(time: str) -> float:
    """Return seconds since 1970; a time without a zone is local."""
    return dt.datetime.fromisoformat(time).timestamp()


def render_time(seconds: float) -> str:
    """Render a time since 1970 in UTC, for example ``2026-05-01 10:00:00 UTC``."""
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def list_bars(moments: Sequence[Event]) -> Iterator[tuple[Phase, float, str]]:
    """Yield the parts of the timeline: phase, seconds, and name with duration."""
    start = _name_start(moments)
    changes = [each for number, each in enumerate(moments) if not number or each.phase != moments[number - 1].phase]
    for before, after in pairwise([*changes, *moments[-1:]]):
        seconds = after.seconds - before.seconds
        name = start if before.phase is Phase.START else before.phase
        yield before.phase, seconds, f"{name} {render_duration(seconds)}"


def _name_start(moments: Sequence[Event]) -> str:
    """Name the phase between the start and the first output, or the last start of a rank."""
    wrote = any(each.phase is Phase.RUN and each.text.endswith("first output") for each in moments)
    return "until the first output" if wrote else Phase.START


def sum_phases(moments: Sequence[Event]) -> list[tuple[Phase, str]]:
    """Return the phases in their order, each with its name and how long it took in all."""
    start = _name_start(moments)
    took: dict[Phase, float] = {}
    for before, after in pairwise(moments):
        took[before.phase] = took.get(before.phase, 0.0) + after.seconds - before.seconds
    names = {phase: start if phase is Phase.START else phase for phase in took}
    return [(phase, f"{names[phase]} {render_duration(took[phase])}") for phase in took if phase is not Phase.END]
