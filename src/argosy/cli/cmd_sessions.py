"""`argosy sessions`: list and stop detached sessions; `argosy shell --detach` starts one."""

from __future__ import annotations

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option
from argosy.cli.output import fit_table, print_report
from argosy.core.records import asdict


@click.group(cls=WholeLines)
def sessions() -> None:
    """List and stop the detached sessions that 'argosy shell --detach NAME' started."""


@sessions.command("ls")
@json_option
def list_all(*, as_json: bool) -> None:
    """List your sessions: name, state, machine and image."""
    from argosy.runtimes.sessions import list_sessions

    found = list_sessions(open_session(quiet=True))
    rows = [(each.name, each.state, each.owner.host, each.runtime, each.image) for each in found]
    table = fit_table([("name", "state", "machine", "runtime", "image"), *rows])
    report = [asdict(each) | {"state": each.state} for each in found]
    print_report(report, table if found else "no sessions", as_json=as_json)


@sessions.command("stop")
@click.argument("name")
def stop(name: str) -> None:
    """End the session NAME."""
    from argosy.runtimes.sessions import stop_session

    click.echo(f"stopped {stop_session(name, open_session(quiet=True)).name}")
