"""`argosy explain`: the plan of a launch as a table or JSON, every value with its reason, source and date."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from argosy.cli.cmd_launch import launch, request_of_options
from argosy.cli.common import open_session
from argosy.cli.options import GroupedCommand, json_option, option
from argosy.cli.output import (
    LEAST_TEXT,
    column_widths,
    output_width,
    print_json,
    table_left,
    table_lines,
    use_colour,
    wrap_text,
)
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.jobs.history import kept_plan
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.names import names_run, resolve_name
from argosy.launch.explain import GROUPS, ExplainedValue, explain_plan
from argosy.launch.model import Purpose
from argosy.launch.resolve import prepare_launch
from argosy.recipes.option_row import PROJECT_FILE
from argosy.slurm.queries import is_job_id


def _explain(context: click.Context, /, *, as_json: bool, verbose: bool, **options: Any) -> None:
    plan = _prepare_to_explain(context, open_session(), options)
    rows = explain_plan(plan)
    if as_json:
        print_json(rows)
        return
    shape = plan.shape
    click.echo(f"{plan.name}: {count(shape.ranks, 'rank')} on {count(shape.nodes, 'node')}, site {plan.site}")
    rendered = list(zip(rows, render_explained(rows, output_width(), evidence=verbose), strict=True))
    for group in GROUPS:
        chosen = [line for row, lines in rendered if row.group == group for line in lines]
        if chosen:
            click.echo(click.style(group, bold=True) if use_colour() else group)
            click.echo("\n".join(chosen))


def _prepare_to_explain(context: click.Context, session: Session, options: dict[str, Any]) -> LaunchPlan:
    """Return the plan of a submitted job, or of a launch with these options."""
    name = options["image"]
    if not options["command"] and not Path(name).exists() and _means_submitted(session, name):
        return kept_plan(session, resolve_name(session, name))
    smoke = options.pop("smoke")
    request = replace(request_of_options(context, session, **options), smoke=smoke)
    return prepare_launch(request, session, purpose=Purpose.SHOW)


def _means_submitted(session: Session, name: str) -> bool:
    """Return whether a text means a submitted job; a job of the project file precedes one with its name."""
    project = Path(session.host.cwd, PROJECT_FILE)
    if is_job_id(name) or not project.is_file():
        return names_run(session, name)
    from argosy.recipes.project_file import read_project_here

    return name not in read_project_here(project).table.job and names_run(session, name)


def render_explained(rows: Sequence[ExplainedValue], width: int, *, evidence: bool) -> list[list[str]]:
    """Return the lines of each value: in columns if the terminal is wide enough, else with source and reason below.

    Parameters
    ----------
    width
        Columns of the terminal.
    evidence
        Whether the URLs of the sources are added.
    """
    sources = [f"{row.proof} {row.checked}" if row.proof else row.source for row in rows]
    cells = [(f"  {row.what}", row.value, source, row.why) for row, source in zip(rows, sources, strict=True)]
    if width - table_left(column_widths(cells, width)) >= LEAST_TEXT:
        found = table_lines(cells, width)
    else:
        found = [_render_below(row, source, width) for row, source in zip(rows, sources, strict=True)]
    for row, lines in zip(rows, found, strict=True):
        lines += [f"      {url}" for url in row.evidence.split("; ") if evidence and url]
    return found


def _render_below(row: ExplainedValue, source: str, width: int) -> list[str]:
    reason = wrap_text(f"{row.why} [{source}]", width - 6)
    return [f"  {row.what} = {row.value}", *(f"      {line}" for line in reason)]


NOT_IN_EXPLAIN = {
    "dry_run",
    "script",
    "ssh",
    "in_allocation",
    "follow",
    "interactive",
    "smoke_first",
    "as_json",
    "verbose",
    "packages",
}
"""Parameters of launch that start or write something, or have another meaning here."""

explain = json_option(
    option("-v", "--verbose", is_flag=True, help="Add the URLs of the sources.")(
        GroupedCommand(
            "explain",
            params=[each for each in launch.params if each.name not in NOT_IN_EXPLAIN],
            callback=click.pass_context(_explain),
            help="Explain a launch: every option, variable, bind mount and mask with its reason, source and date.\n\n"
            "Takes the arguments of 'argosy launch', or a submitted job (number, name or 'last'); starts nothing.",
        )
    )
)
