"""Render a report as one self-contained HTML page; pure."""

from __future__ import annotations

import datetime as dt
import re
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.bench.result import BUS, BenchResult, Kind
from argosy.bench.show import compact_table, plots_of
from argosy.core.errors import ToolMissing
from argosy.core.findings import State, has_failed
from argosy.core.model import Choice
from argosy.core.pages import page_templates
from argosy.core.parse import parse_cpulist
from argosy.core.plots import draw, size_label
from argosy.core.redact import hide, redact
from argosy.core.render import count, render_duration
from argosy.diagnostics.report.compare import NODES
from argosy.diagnostics.report.model import Moment, Phase, RankRow, Report
from argosy.diagnostics.report.node_view import MOST_NODES, describe_marks, draw_job_node
from argosy.diagnostics.report.summary import capitalise, describe_writer, fill_names, join_names
from argosy.diagnostics.report.timeline import draw_timeline, sum_phases
from argosy.diagnostics.verify.logs import NetFacts
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.slurm.text import ENDED

SIGNALLED = 128
"""An exit code above this is 128 and the number of a signal."""

SECONDS_OF_HOUR = 3600

OTHERS = "ended-with-others"
"""Name of the known error that reports the end of the other ranks."""

HELPERS = re.compile(r"^# --- Helpers", re.MULTILINE)
"""The line of a job script after which it is the same in every script."""

LABELS = {"ranks": "ranks started"}
"""Subject of a finding -> its label on the page, if it is another one."""

EVIDENCE = {"network": "network-lines", "GPUs": "ranks", "cores": "ranks", "bandwidth": "measured", "ranks": "ranks"}
"""Subject of a finding -> the part of the page that has its evidence."""

NO_LIMIT = {"UNLIMITED": "none", "365-00:00:00": "none"}
"""Forms in which Slurm shows a job without a time limit: before and after it starts."""

TEMPLATES = Path(__file__).with_name("templates")


def render_page(report: Report) -> str:
    """Render the page.  Every text of the job is escaped; the page loads nothing from anywhere."""
    environment = page_templates(TEMPLATES)
    secrets = report.case.secrets
    environment.finalize = partial(_without_secrets, secrets=secrets)
    environment.filters["time"] = _time
    environment.filters["sentence"] = capitalise
    environment.filters["duration"] = render_duration
    environment.filters["names"] = join_names
    environment.filters["filled"] = lambda text: fill_names(text, report.case.facts)
    environment.filters["consequence"] = lambda error: _consequence(error, report.case.facts)
    environment.globals["count"] = count
    by_host = sorted(report.ranks, key=lambda each: (each.host, each.local))
    nodes = [(host, tuple(ranks)) for host, ranks in groupby(by_host, key=lambda each: each.host)]
    cards = report.case.compared.cards if NODES in report.case.compared.same else ()
    pictures = [
        draw_job_node(host, ranks, report.node, report.networks.get(host, NetFacts()), cards)
        for host, ranks in nodes[:MOST_NODES]
    ]
    return environment.get_template("report.html").render(
        argosy=report.argosy,
        report=report,
        case=report.case,
        facts=report.case.facts,
        is_local=report.case.facts.is_local,
        plan=report.case.plan,
        told=" ".join((report.cause, *(step.text for step in report.steps))),
        state=_state(report),
        badge=_badge(report),
        labels=LABELS,
        evidence_of=EVIDENCE,
        choices=_choices(report.case.plan),
        script=HELPERS.split(report.case.plan.script)[0] if report.case.plan else "",
        pictures=[Markup(each) for each in pictures],  # noqa: S704 - drawings escape their texts
        legend=describe_marks(pictures),
        last_lines=describe_writer(report.case),
        marked=lambda line, before: mark_words(hide(line, secrets), hide(before, secrets)),
        shown_lines={number for number, _, _ in report.case.excerpt.lines} if report.case.excerpt else set(),
        phases=_phases(report.timeline),
        first_time="Since submission" if report.case.facts.submitted else "Since start",
        hidden_nodes=max(0, len(nodes) - MOST_NODES),
        shows_ranks=len(nodes) > MOST_NODES or any(_is_misplaced(each) for each in report.ranks),
        timeline=Markup(draw_timeline(report.timeline)),  # noqa: S704
        outline=tuple(_outline(report)),
        plots=_plots(report),
        values=tabulate_results(report.case.results) if report.case.results else (),
    )


def _plots(report: Report) -> list[Markup]:
    """Draw what the job measured; nothing without matplotlib, because the table has the same values."""
    try:
        results = report.case.results
        return [Markup(draw(plot)) for plot in plots_of(results)] if results else []  # noqa: S704
    except ToolMissing:
        return []


def _outline(report: Report) -> Iterator[tuple[str, str]]:
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
        yield "Submitted" if facts.submitted else "Started", _time(report.timeline[0].seconds)
    started = [each.seconds for each in report.timeline if each.phase is Phase.START]
    if started and facts.kind == ENDED:
        yield "Ran for", render_duration(report.timeline[-1].seconds - started[0])
    if facts.kind == ENDED:
        used = _resources(facts, plan)
        yield from [("Used", used)] if used else []
        yield "Exit code", _exit_codes(facts)
    yield "Report written", f"{_time(report.written)} by {report.user}"
    yield from [("Output", facts.output)] if facts.output else []
    yield from [("Record", facts.record)] if facts.record else []


def _option(plan: LaunchPlan | None, name: str) -> str:
    """Return the value of an option of sbatch that the plan has; empty without it."""
    options = plan.directives if plan else ()
    return next((each.partition("=")[2] for each in options if each.startswith(f"--{name}=")), "")


def _resources(facts: JobFacts, plan: LaunchPlan | None) -> str:
    """Return the hours of nodes and GPUs that all runs of a job used; empty if their times are unknown."""
    seconds = sum(run.ended - run.started for run in facts.runs if run.started and run.ended)
    if not seconds or _has_tasks(facts) or plan is None or not plan.is_job:
        return ""
    hours = seconds * plan.shape.nodes / SECONDS_OF_HOUR
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


def _consequence(error: KnownError, facts: JobFacts) -> str:
    """Return the cause of a symptom, which is certain if the rank that failed first is known."""
    if error.name == OTHERS and facts.first:
        return f"the other ranks were stopped because rank {facts.first.rank} had failed"
    return error.cause


def _signal(number: int) -> str:
    """Return the name of a signal, for example ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def mark_words(line: str, before: str) -> list[tuple[str, bool]]:
    """Return the words of a command line, and whether each is new; the name of a job is not marked."""
    words, known = line.split(" "), set(before.split(" "))
    names = {number + 1 for number, word in enumerate(words) if word == "--name"}
    return [
        (word, bool(before) and word not in known and number not in names and not word.startswith("--name="))
        for number, word in enumerate(words)
    ]


def _phases(moments: Sequence[Moment]) -> list[tuple[str, str]]:
    """Return the legend of the timeline: class of the style sheet, and name with duration."""
    return [(phase.name.lower(), text) for phase, text in sum_phases(moments)]


def tabulate_results(results: Sequence[BenchResult]) -> tuple[tuple[str, ...], ...]:
    """Return the results as a table, the head first: for bandwidths one column for each job, and their ratio."""
    if results[0].kind is not Kind.COLLECTIVES:
        return compact_table(results)
    values = [{(each.nodes, each.size): each.value for each in one.figures if each.quantity == BUS} for one in results]
    labels = [f"{each.label}, GB/s" for each in results]
    ratio = (f"{results[0].label} / {results[1].label}",) if len(results) > 1 else ()
    rows = []
    for nodes, size in sorted(values[0]):
        found = [each.get((nodes, size)) for each in values]
        cells = (f"{each:.4g}" if each else "" for each in found)
        share = [f"{found[0] / found[1]:.2f}" if found[0] and found[1] else ""] if ratio else []
        rows.append((str(nodes), size_label(size), *cells, *share))
    return (("nodes", "message size", *labels, *ratio), *rows)


def _state(report: Report) -> str:
    """Return ``ok``, ``warn`` if a check failed, ``fail`` or ``running``."""
    facts = report.case.facts
    if facts.kind != ENDED:
        return "running"
    if facts.code:
        return "fail"
    return "warn" if has_failed(report.case.findings) else "ok"


def _badge(report: Report) -> str:
    """Return the end of a job in a few words."""
    findings = report.case.findings
    failed = sum(each.state is State.FAIL for each in findings)
    passed = findings and all(each.state is State.OK for each in findings)
    return {
        "ok": "✓ finished, all checks passed" if passed else "✓ finished",
        "warn": f"! finished, but {count(failed, 'check')} failed",
        "fail": "✗ failed",
        "running": "… not ended",
    }[_state(report)]


def _is_misplaced(rank: RankRow) -> bool:
    """Return whether a rank had other cores than planned."""
    return bool(rank.planned) and parse_cpulist(rank.planned) != parse_cpulist(rank.cores)


def _choices(plan: LaunchPlan | None) -> list[tuple[str, str, str, str]]:
    """Return the choices of a plan as rows: name, value, reason, source."""
    if plan is None:
        return []
    return [
        (each.key, each.value, each.why, "; ".join(filter(None, (each.source, each.evidence, _checked(each)))))
        for each in plan.choices
    ]


def _checked(choice: Choice) -> str:
    """Say when a value of a profile was checked."""
    return f"checked on {choice.checked}" if choice.checked else ""


def _without_secrets(value: object, secrets: tuple[str, ...]) -> object:
    """Return a value of the page without secrets and credentials of URLs; drawings and the template are unchanged."""
    return hide(redact(value), secrets) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
