"""`argosy why`: known errors in a log, their causes and what to do."""

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
    """Explain why a job failed: known errors in LOGS, each with its cause and what to do.

    A log is a file, the number of a job, or - for standard input.  The exit code is 7 where no known error is found.
    Errors of your own stand in ~/.config/argosy/signatures.toml.
    """
    from argosy.diagnostics.why.rules import explain_log, render_findings  # noqa: PLC0415 - only where it is asked for

    session = open_session(quiet=True)
    found = [explain_log(session, log) for log in logs]
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        for each in found:
            click.echo(each.end, nl=bool(each.end))
            click.echo(render_findings(each.findings, each.log) if each.findings else f"{each.log}: no known error")
    ctx.exit(0 if any(each.findings for each in found) else CheckFailed.code)
