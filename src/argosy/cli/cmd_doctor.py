"""`argosy doctor`: this machine against what Argosy needs, and against its site."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session, print_json
from argosy.core.errors import CheckFailed
from argosy.core.records import asdict


@click.command()
@click.option(
    "--site", type=SITE, default="", metavar="NAME", help="Its profile.  [default: the one that fits this machine]"
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def doctor(ctx: click.Context, /, site: str, *, as_json: bool) -> None:
    """Look at this machine: programs, kernel, folders, Slurm, GPUs, variables; say what to do about each fault.

    The exit code is 7 where something that Argosy needs is missing.
    """
    from argosy.diagnostics.doctor.rules import examine  # noqa: PLC0415 - only where it is asked for

    found = examine(open_session(quiet=True), site)
    missing = [each for each in found if each.state == "missing"]
    if as_json:
        print_json({"good": not missing, "findings": [asdict(each) for each in found]})
    else:
        for each in found:
            click.echo(f"{each.state:<8} {each.name:<19} {each.said}")
            if each.hint:
                click.echo(f"{'':<28} -> {each.hint}")
    ctx.exit(CheckFailed.code if missing else 0)
