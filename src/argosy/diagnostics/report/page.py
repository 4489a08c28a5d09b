"""Render a report as one self-contained HTML page; pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.bench.show import compact_table, plots_of
from argosy.core.errors import ToolMissing
from argosy.core.findings import State
from argosy.core.pages import page_templates
from argosy.core.plots import draw
from argosy.diagnostics.report.drawings import describe_phases, draw_timeline, render_seconds
from argosy.diagnostics.report.model import Phase, Report
from argosy.diagnostics.report.node_view import MOST_NODES, draw_job_node
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.jobs.launch_plan import LaunchPlan
from argosy.slurm.text import ENDED

TEMPLATES = Path(__file__).with_name("templates")


def render_page(report: Report) -> str:
    """Render the page.  Every text of the job is escaped; the page loads nothing from anywhere."""
    environment = page_templates(TEMPLATES)
    environment.filters["time"] = _time
    environment.filters["sentence"] = _sentence
    environment.filters["duration"] = render_seconds
    by_host = sorted(report.ranks, key=lambda each: (each.host, each.local))
    nodes = [(host, tuple(ranks)) for host, ranks in groupby(by_host, key=lambda each: each.host)]
    return environment.get_template(
        "report.html"
    ).render(
        argosy=report.argosy,
        report=report,
        facts=report.facts,
        plan=report.plan,
        state=_state(report),
        choices=_choices(report.plan),
        pictures=[
            Markup(  # noqa: S704 - drawings escape their texts
                draw_job_node(host, ranks, report.node, report.networks.get(host, NetFacts()))
            )
            for host, ranks in nodes[:MOST_NODES]
        ],
        hidden_nodes=max(0, len(nodes) - MOST_NODES),
        timeline=Markup(draw_timeline(report.timeline)),  # noqa: S704
        phases=describe_phases(report.timeline),
        outline=tuple(_outline(report)),
        plots=_plots(report),
        values=compact_table(report.results) if report.results else (),
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
        gpus = f", {shape.gpus_per_node} GPU(s)" if shape.gpus_per_node else ""
        yield "Asked for", f"{shape.nodes} node(s), {shape.ranks_per_node} rank(s){gpus} on each"
    if facts.nodes:
        yield "Nodes", facts.nodes
    if report.timeline:
        yield "Submitted" if facts.submitted else "Started", _time(report.timeline[0].seconds)
    started = [each.seconds for each in report.timeline if each.phase is Phase.START]
    if started and facts.kind == ENDED:
        yield "Ran for", render_seconds(report.timeline[-1].seconds - started[0])
    if facts.kind == ENDED:
        yield "Exit code", str(facts.code)


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
