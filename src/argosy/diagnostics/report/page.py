"""Render a report as one self-contained HTML page; pure."""

from __future__ import annotations

import datetime as dt
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.bench.show import compact_table, plots_of
from argosy.core.errors import ToolMissing
from argosy.core.findings import State
from argosy.core.pages import page_templates
from argosy.core.plots import draw
from argosy.diagnostics.report.drawings import MOST_NODES, draw_node, draw_timeline
from argosy.diagnostics.report.model import Report
from argosy.jobs.launch_plan import LaunchPlan
from argosy.slurm.text import ENDED

TEMPLATES = Path(__file__).with_name("templates")


def render_page(report: Report) -> str:
    """Render the page.  Every text of the job is escaped; the page loads nothing from anywhere."""
    environment = page_templates(TEMPLATES)
    environment.filters["time"] = _time
    environment.filters["sentence"] = _sentence
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
            Markup(draw_node(host, ranks, report.cores, report.gpus))  # noqa: S704 - drawings escape their texts
            for host, ranks in nodes[:MOST_NODES]
        ],
        hidden_nodes=max(0, len(nodes) - MOST_NODES),
        timeline=Markup(draw_timeline(report.timeline)),  # noqa: S704
        plots=_plots(report),
        values=compact_table(report.results) if report.results else (),
    )


def _plots(report: Report) -> list[Markup]:
    """Draw what the job measured; nothing without matplotlib, because the table has the same values."""
    try:
        return [Markup(draw(plot)) for plot in plots_of(report.results)] if report.results else []  # noqa: S704
    except ToolMissing:
        return []


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
