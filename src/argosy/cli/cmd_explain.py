"""`argosy explain`: the plan of a launch as a table or JSON, every value with its reason, source and date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from argosy.cli.cmd_launch import launch, request_of_options
from argosy.cli.common import open_session
from argosy.cli.options import GroupedCommand, json_option, option
from argosy.cli.output import LEAST_TEXT, output_width, print_json, wrap_text
from argosy.core.render import count
from argosy.core.session import Session
from argosy.jobs.history import kept_plan
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.explain import GROUPS, Explained, explain_plan
from argosy.launch.model import Purpose
from argosy.launch.resolve import prepare_launch


def _explain(*, as_json: bool, verbose: bool, **options: Any) -> None:
    plan = _prepare_to_explain(open_session(), options)
    rows = explain_plan(plan)
    if as_json:
        print_json(rows)
        return
    shape = plan.shape
    click.echo(f"{plan.name}: {count(shape.ranks, 'rank')} on {count(shape.nodes, 'node')}, site {plan.site}")
    for group in GROUPS:
        chosen = [row for row in rows if row.group == group]
        if chosen:
            click.secho(group, bold=True)
            click.echo("\n".join(render_explained(chosen, output_width(), evidence=verbose)))


def _prepare_to_explain(session: Session, options: dict[str, Any]) -> LaunchPlan:
    """Return the plan of a submitted job, by its number, or of a launch with these options."""
    image = options["image"]
    if re.fullmatch(r"\d+(_\d+)?", image) and not options["command"] and not Path(image).exists():
        return kept_plan(session, image)
    return prepare_launch(request_of_options(session, **options), session, purpose=Purpose.SHOW)


WHAT, VALUE, SOURCE = 26, 30, 21
"""Columns of name, value and source, in characters; longer texts stay whole and move the rest of their line."""


def render_explained(rows: Sequence[Explained], width: int, *, evidence: bool) -> list[str]:
    """Render values with source and reason: in columns if the terminal is wide enough, else with the reason below.

    Parameters
    ----------
    width
        Columns of the terminal.
    evidence
        Whether the URLs of the sources are added.
    """
    lines: list[str] = []
    for row in rows:
        source = f"{row.proof} {row.checked}" if row.proof else row.source
        head = f"  {row.what:<{WHAT}} {row.value:<{VALUE}} {source:<{SOURCE}} "
        left = 2 + WHAT + VALUE + SOURCE + 3
        if len(head) + len(row.why) <= width:
            lines.append((head + row.why).rstrip())
        elif len(head) == left and width - left >= LEAST_TEXT:
            first, *more = wrap_text(row.why, width - left)
            lines += [head + first, *(" " * left + line for line in more)]
        else:
            lines += [
                f"  {row.what} = {row.value}",
                *(f"      {each}" for each in wrap_text(f"{row.why} [{source}]", width - 6)),
            ]
        lines += [f"      {url}" for url in row.evidence.split("; ") if evidence and url]
    return lines


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
            callback=_explain,
            help="Explain a launch: every option, variable, bind mount and mask with its reason, source and date.\n\n"
            "Takes the arguments of 'argosy launch', or the number of a submitted job; starts nothing.",
        )
    )
)
