"""`argosy doctor`: this machine against what Argosy needs, and against its site."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session
from argosy.cli.findings import print_findings


@click.command()
@click.option(
    "--site", type=SITE, default="", metavar="NAME", help="Its profile.  [default: the one that fits this machine]"
)
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def doctor(ctx: click.Context, /, site: str, *, as_json: bool) -> None:
    """Check this machine: programs, kernel, folders, Slurm, GPUs and environment variables.

    Each problem comes with a hint. The exit code is 7 if something that Argosy needs is missing.
    """
    from argosy.diagnostics.doctor.rules import examine  # noqa: PLC0415 - only where it is asked for

    ctx.exit(print_findings(examine(open_session(quiet=True), site), as_json=as_json))
