"""List the facts below the heading of a report: what was requested, where and when the job ran, how it ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from argosy.core.render import HOUR, count, render_duration
from argosy.diagnostics.report.model import Phase, Report
from argosy.diagnostics.report.timeline import render_time
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.slurm.sbatch import option_value
from argosy.slurm.states import ENDED

SIGNALLED = 128
"""An exit code above this is 128 and the number of a signal."""

NO_LIMIT = {"UNLIMITED": "none", "365-00:00:00": "none"}
"""Forms in which Slurm shows a job without a time limit: before and after it starts."""


def list_facts(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the facts below the heading: name and value."""
    facts, plan = report.case.facts, report.case.plan
    if plan:
        shape = plan.shape
        gpus = f" and {count(shape.gpus_per_node, 'GPU')}" if shape.gpus_per_node else ""
        each = " on each" if shape.nodes > 1 else ""
        yield "Requested", f"{count(shape.nodes, 'node')}, {count(shape.ranks_per_node, 'rank')}{gpus}{each}"
        yield "Site profile", plan.site
    values = (
        ("GPU model", report.node.gpu_model if plan and plan.shape.gpus_per_node else ""),
        ("Partition", facts.partition or _option(plan, "partition")),
        ("Account", facts.account or _option(plan, "account")),
        ("Time limit", NO_LIMIT.get(facts.time_limit, facts.time_limit) or _option(plan, "time")),
        ("Nodes", facts.nodes),
    )
    yield from ((name, value) for name, value in values if value)
    if report.timeline:
        yield "Submitted" if facts.submitted else "Started", render_time(report.timeline[0].seconds)
    started = [each.seconds for each in report.timeline if each.phase is Phase.START]
    if started and facts.kind == ENDED:
        yield "Ran for", render_duration(report.timeline[-1].seconds - started[0])
    if facts.kind == ENDED:
        used = _resources(facts, plan)
        yield from [("Used", used)] if used else []
        yield "Exit code", _exit_codes(facts)
    yield "Report written", f"{render_time(report.written)} by {report.user}"
    yield from [("Output", facts.output)] if facts.output else []
    yield from [("Record", facts.record)] if facts.record else []


def _option(plan: LaunchPlan | None, name: str) -> str:
    """Return the value of an option of sbatch that the plan has; empty without it."""
    return option_value(plan.directives, f"--{name}") if plan else ""


def _resources(facts: JobFacts, plan: LaunchPlan | None) -> str:
    """Return the hours of nodes and GPUs that all runs of a job used; empty if their times are unknown."""
    seconds = sum(run.ended - run.started for run in facts.runs if run.started and run.ended)
    if not seconds or _has_tasks(facts) or plan is None or not plan.is_job:
        return ""
    hours = seconds * plan.shape.nodes / HOUR
    gpus = hours * plan.shape.gpus_per_node
    return f"{hours:.2g} node hours" + (f", {gpus:.2g} GPU hours" if gpus else "")


def _has_tasks(facts: JobFacts) -> bool:
    """Return whether the runs are those of several tasks of an array."""
    return len({run.job for run in facts.runs}) > 1


def _exit_codes(facts: JobFacts) -> str:
    """Return the exit code; that of the rank that failed first, and of the job if the other ranks changed it."""
    job = facts.runs[-1].code if facts.runs and not _has_tasks(facts) else facts.code
    if facts.first is None or job == facts.code:
        return str(facts.code)
    stopped = f" (the other ranks were stopped by {_signal(job - SIGNALLED)})" if job > SIGNALLED else ""
    return f"rank {facts.first.rank}: {facts.code} (failed first); job: {job}{stopped}"


def _signal(number: int) -> str:
    """Return the name of a signal, for example ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
