"""Render a report as one self-contained HTML page, and pack it with the records of the job for a support ticket."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from argosy.bench.result import BUS, BenchKind, BenchResult
from argosy.bench.show import compact_table, plots_of
from argosy.core.errors import ToolMissing
from argosy.core.pages import page_templates
from argosy.core.plots import draw, size_label
from argosy.core.redact import hide, redact
from argosy.core.render import count
from argosy.core.store import atomic_file
from argosy.diagnostics.report.compare import NODES
from argosy.diagnostics.report.model import Report
from argosy.diagnostics.report.node_view import MOST_NODES, describe_marks, draw_job_node
from argosy.diagnostics.report.sections import (
    describe_equal,
    describe_excerpt,
    describe_state,
    has_misplaced_rank,
    list_changes,
    list_choices,
    list_errors,
    list_facts,
    list_findings,
    list_moments,
    list_plan,
    list_ranks,
    list_step_texts,
    name_state,
    show_command,
    title_changes,
    title_last_lines,
)
from argosy.diagnostics.report.summary import capitalise
from argosy.diagnostics.report.timeline import list_bars, sum_phases
from argosy.diagnostics.verify.logs import NetFacts
from argosy.jobs.outputs import can_read, read_ends_of

HELPERS = re.compile(r"^# --- Helpers", re.MULTILINE)
"""The line of a job script after which it is the same in every script."""

TEMPLATES = Path(__file__).with_name("templates")

MOST_FILES = 200
"""Files of the record that are packed; a large job has one network log for each node."""


def render_page(report: Report) -> str:
    """Render the page.  Every text of the job is escaped; the page loads nothing from anywhere."""
    environment = page_templates(TEMPLATES)
    environment.finalize = partial(_without_secrets, secrets=report.case.secrets)
    case, plan = report.case, report.case.plan
    subject = capitalise(case.facts.subject)
    return environment.get_template("report.html").render(
        argosy=report.argosy,
        report=report,
        case=case,
        facts=case.facts,
        plan=plan,
        title=f"{subject} (name: {plan.name})" if plan else subject,
        state=name_state(report),
        badge=describe_state(report),
        typed=show_command(case, case.typed) if case.typed else None,
        cited_lines={number for number, _, _ in case.excerpt.lines} if case.excerpt else set(),
        steps=list_step_texts(report),
        outline=list(list_facts(report)),
        causes=list_errors(report, ("cause", "maybe")),
        symptoms=list_errors(report, ("symptom",)),
        last_lines=title_last_lines(case),
        excerpt_caption=describe_excerpt(case),
        excerpt=case.excerpt.lines if case.excerpt else (),
        commands=[(purpose, show_command(case, line)) for purpose, line in report.commands],
        changes_title=title_changes(case),
        changes=list_changes(case),
        equal=describe_equal(report),
        findings=list_findings(report),
        ranks=list(list_ranks(report)),
        moments=list(list_moments(report)),
        bars=list(list_bars(report.timeline)),
        phases=sum_phases(report.timeline),
        plan_rows=list(list_plan(plan)) if plan else [],
        choices=list(list_choices(plan)) if plan else [],
        script=HELPERS.split(plan.script)[0] if plan else "",
        plots=_plots(case.results),
        values=tabulate_results(case.results) if case.results else (),
        **_draw_nodes(report),
    )


def _draw_nodes(report: Report) -> dict[str, object]:
    """Draw the first nodes; return the pictures with their legend, and what the page says about the other nodes."""
    case = report.case
    by_host = sorted(report.ranks, key=lambda each: (each.host, each.local))
    nodes = [(host, tuple(ranks)) for host, ranks in groupby(by_host, key=lambda each: each.host)]
    cards = case.compared.cards if NODES in case.compared.same else ()
    pictures = [
        draw_job_node(host, ranks, report.node, report.networks.get(host, NetFacts()), cards)
        for host, ranks in nodes[:MOST_NODES]
    ]
    hidden = len(nodes) - len(pictures)
    return {
        "pictures": [Markup(each) for each in pictures],  # noqa: S704
        "legend": describe_marks(pictures),
        "hidden_nodes": f"{count(hidden, 'more node')} of the job: see the table." if hidden else "",
        "shows_ranks": bool(hidden) or has_misplaced_rank(report.ranks),
    }


def _plots(results: Sequence[BenchResult]) -> list[Markup]:
    """Draw what the job measured; nothing without matplotlib, because the table has the same values."""
    try:
        return [Markup(draw(plot)) for plot in plots_of(results)] if results else []  # noqa: S704
    except ToolMissing:
        return []


def tabulate_results(results: Sequence[BenchResult]) -> tuple[tuple[str, ...], ...]:
    """Return the results as a table, the head first: for bandwidths one column for each job, and their ratio."""
    if results[0].kind is not BenchKind.COLLECTIVES:
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


def _without_secrets(value: object, secrets: tuple[str, ...]) -> object:
    """Return a value of the page without secrets and credentials of URLs; drawings and the template are unchanged."""
    return hide(redact(value), secrets) if isinstance(value, str) and not isinstance(value, Markup) else value


def write_bundle(path: Path, report: Report) -> None:
    """Write a tar.gz archive: ``report.html``, the files of the record, and the ends of the outputs.

    Credentials of URLs, and the secrets of `Case.secrets`, are removed from each file.

    Raises
    ------
    OSError
        When the archive cannot be written; nothing is left then.
    """
    facts = report.case.facts
    folder = f"job-{facts.id}"
    secrets = report.case.secrets
    with atomic_file(path, force=True) as beside, tarfile.open(beside, "w:gz") as archive:
        _add(archive, f"{folder}/report.html", render_page(report))
        record = Path(facts.record) if facts.record else None
        for file in sorted(record.iterdir())[:MOST_FILES] if record else ():
            if file.is_file():
                _add(archive, f"{folder}/record/{file.name}", hide(redact(read_ends_of(str(file))), secrets))
        for output in facts.outputs or (facts.output,):
            if output and can_read(output):
                _add(archive, f"{folder}/output/{Path(output).name}", hide(redact(read_ends_of(output)), secrets))


def _add(archive: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode(errors="surrogateescape")
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), 0o600
    archive.addfile(entry, io.BytesIO(data))
