"""Render a report as one self-contained HTML page; pure."""

from __future__ import annotations

import datetime as dt
import signal
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.bench.result import BUS, BenchResult, Kind
from argosy.bench.show import compact_table, plots_of
from argosy.core.errors import ToolMissing
from argosy.core.findings import State
from argosy.core.pages import page_templates
from argosy.core.plots import draw, size_label
from argosy.core.plural import count
from argosy.diagnostics.report.advice import fill_names, join_names
from argosy.diagnostics.report.drawings import describe_phases, draw_timeline, render_seconds
from argosy.diagnostics.report.model import Phase, Report
from argosy.diagnostics.report.node_view import MOST_NODES, describe_marks, draw_job_node
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.jobs.record import names_ranks
from argosy.slurm.text import ENDED

SIGNALLED = 128
"""An exit code above this is 128 and the number of a signal."""

TEMPLATES = Path(__file__).with_name("templates")


def render_page(report: Report) -> str:
    """Render the page.  Every text of the job is escaped; the page loads nothing from anywhere."""
    environment = page_templates(TEMPLATES)
    environment.filters["time"] = _time
    environment.filters["sentence"] = _sentence
    environment.filters["duration"] = render_seconds
    environment.filters["names"] = join_names
    environment.filters["filled"] = lambda text: fill_names(text, report.facts)
    environment.globals["count"] = count
    by_host = sorted(report.ranks, key=lambda each: (each.host, each.local))
    nodes = [(host, tuple(ranks)) for host, ranks in groupby(by_host, key=lambda each: each.host)]
    pictures = [
        draw_job_node(host, ranks, report.node, report.networks.get(host, NetFacts()))
        for host, ranks in nodes[:MOST_NODES]
    ]
    return environment.get_template("report.html").render(
        argosy=report.argosy,
        report=report,
        facts=report.facts,
        plan=report.plan,
        state=_state(report),
        choices=_choices(report.plan),
        pictures=[Markup(each) for each in pictures],  # noqa: S704 - drawings escape their texts
        legend=describe_marks(pictures),
        last_lines=_last_lines(report),
        hidden_nodes=max(0, len(nodes) - MOST_NODES),
        timeline=Markup(draw_timeline(report.timeline)),  # noqa: S704
        phases=describe_phases(report.timeline),
        outline=tuple(_outline(report)),
        plots=_plots(report),
        values=tabulate_results(report.results) if report.results else (),
    )


def _plots(report: Report) -> list[Markup]:
    """Draw what the job measured; nothing without matplotlib, because the table has the same values."""
    try:
        return [Markup(draw(plot)) for plot in plots_of(report.results)] if report.results else []  # noqa: S704
    except ToolMissing:
        return []


def _outline(report: Report) -> Iterator[tuple[str, str]]:
    """Yield the facts below the heading: name and value."""
    facts, plan = report.facts, report.plan
    if plan:
        yield "Site", plan.site
        shape = plan.shape
        gpus = f" and {count(shape.gpus_per_node, 'GPU')}" if shape.gpus_per_node else ""
        yield "Asked for", f"{count(shape.nodes, 'node')}, {count(shape.ranks_per_node, 'rank')}{gpus} on each"
    if facts.nodes:
        yield "Nodes", facts.nodes
    if report.timeline:
        yield "Submitted" if facts.submitted else "Started", _time(report.timeline[0].seconds)
    started = [each.seconds for each in report.timeline if each.phase is Phase.START]
    if started and facts.kind == ENDED:
        yield "Ran for", render_seconds(report.timeline[-1].seconds - started[0])
    if facts.kind == ENDED:
        yield "Exit code", _exit_codes(facts)


def _exit_codes(facts: JobFacts) -> str:
    """Return the exit code; that of the rank that failed first, and of the job if the other ranks changed it."""
    job = facts.runs[-1].code if facts.runs else facts.code
    if facts.first is None or job == facts.code:
        return str(facts.code)
    ended = f" (the launcher ended the other ranks by {_signal(job - SIGNALLED)})" if job > SIGNALLED else ""
    return f"{facts.code} of rank {facts.first.rank}, which failed first; {job} of the job{ended}"


def _signal(number: int) -> str:
    """Return the name of a signal, for example ``SIGTERM``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_lines(report: Report) -> str:
    """Return the heading of the last lines: whose lines they are."""
    first, plan = report.facts.first, report.plan
    if first and ((plan and plan.logs) or names_ranks(report.facts.last_lines)):
        return f"rank {first.rank}, which failed first"
    return "the output"


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
    return (("nodes", "message", *labels, *ratio), *rows)


def _state(report: Report) -> str:
    """Return ``ok``, ``warn`` if a check failed, ``fail`` or ``running``."""
    facts = report.facts
    if facts.kind != ENDED:
        return "running"
    if facts.code:
        return "fail"
    return "warn" if any(each.state is State.FAIL for each in report.findings) else "ok"


def _choices(plan: LaunchPlan | None) -> list[tuple[str, str, str, str]]:
    """Return the choices of a plan as rows: name, value, reason, source."""
    if plan is None:
        return []
    return [
        (each.key, each.value, each.why, "; ".join(filter(None, (each.source, each.evidence, each.checked))))
        for each in plan.choices
    ]


def _time(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
