"""`argosy explain`: the words of `argosy launch`; instead of the script, why each line of it is as it is."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import click

from argosy.cli import cmd_launch
from argosy.cli.common import open_session, print_json
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.explain import GROUPS, Explained, explain_plan
from argosy.launch.resolve import prepare_launch

NOT_HERE = ("dry_run", "script", "ssh", "in_allocation", "follow", "interactive", "smoke_first")
"""Options of launch that start or write something."""

WHAT, VALUE, SOURCE, LEAST = 26, 30, 21, 30
"""Columns, in characters: name, value, source, and the least that the reason gets."""


def _explain(*, as_json: bool, verbose: bool, **options: Any) -> None:
    session = open_session()
    plan = _plan(session, options)
    rows = explain_plan(plan)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    shape = plan.shape
    click.echo(f"{plan.name}: {shape.ranks} rank(s) on {shape.nodes} node(s), site {plan.site}")
    width = shutil.get_terminal_size((120, 24)).columns
    for group in GROUPS:
        chosen = [row for row in rows if row.group == group]
        if chosen:
            click.secho(group, bold=True)
        for row in chosen:
            for line in _whole_lines(row) if verbose else [short_line(row, width)]:
                click.echo(line)
    if not verbose and any("…" in short_line(row, width) for row in rows):
        click.echo("what ends in … stands in full with --verbose", err=True)


def _plan(session: Session, options: dict[str, Any]) -> LaunchPlan:
    """Give the plan of a job that was submitted, by its number; else of a launch in these words."""
    word = options["image"]
    if re.fullmatch(r"\d+(_\d+)?", word) and not options["command"] and not Path(word).exists():
        from argosy.jobs.history import kept_plan  # noqa: PLC0415 - where it is asked for

        return kept_plan(session, word)
    return prepare_launch(cmd_launch.read_request(session, **options), session, dry=True)


def short_line(row: Explained, width: int) -> str:
    """Say a value in one line: name, value, who chose it and when it was checked, and as much of the reason as fits."""
    source = f"{row.proof} {row.checked}" if row.proof else row.source
    head = f"  {_cut(row.what, WHAT):<{WHAT}} {_cut(row.value, VALUE):<{VALUE}} {source:<{SOURCE}} "
    return (head + _cut(row.why, max(LEAST, width - len(head)))).rstrip()


def _whole_lines(row: Explained) -> list[str]:
    """Say a value with everything that is known of it."""
    proof = f", {row.proof}, looked at on {row.checked}" if row.proof else ""
    lines = [f"  {row.what} = {row.value}", f"      {row.why} [{row.source}{proof}]"]
    return [*lines, *(f"      {address}" for address in row.evidence.split("; ") if address)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


OWN = (
    click.Option(["--json", "as_json"], is_flag=True, help="Print as JSON."),
    click.Option(["-v", "--verbose"], is_flag=True, help="Show whole reasons, and the addresses of their sources."),
)
NOT_LAUNCHS = {*NOT_HERE, *(option.name for option in OWN)}

explain = click.Command(
    "explain",
    params=[*(option for option in cmd_launch.launch.params if option.name not in NOT_LAUNCHS), *OWN],
    callback=_explain,
    help="Explain a launch: every option, variable, bind mount and mask with its reason, source and date.\n\n"
    "Takes the words of 'argosy launch', or the number of a job that was submitted; starts nothing.",
)
