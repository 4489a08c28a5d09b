"""`argosy why`: find known errors in a log, with cause and fix."""

from __future__ import annotations

import click

from argosy.cli.common import open_session, print_json
from argosy.core.errors import CheckFailed
from argosy.core.records import asdict


@click.command()
@click.argument("logs", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def why(ctx: click.Context, /, logs: tuple[str, ...], *, as_json: bool) -> None:
    """Explain why a job failed: find known errors in LOGS, with cause and fix.

    A log is a file, a job number, or - for standard input. The exit code is 7 if no known error is found. Add your own
    errors in ~/.config/argosy/signatures.toml.
    """
    from argosy.diagnostics.why.rules import explain_log, render_errors  # noqa: PLC0415 - only where it is asked for

    session = open_session(quiet=True)
    found = [explain_log(session, log) for log in logs]
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            click.echo(each.end, nl=bool(each.end))
            click.echo(render_errors(each.errors, each.log) if each.errors else f"{each.log}: no known error")
    ctx.exit(0 if any(each.errors for each in found) else CheckFailed.code)
