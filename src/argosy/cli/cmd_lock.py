"""`argosy lock`: words to a `LockRequest`, its report to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.build.asking import request_asked
from argosy.build.locking import LockReport, LockRequest, check_lock
from argosy.build.locking import lock as lock_files
from argosy.build.order import LOCK_FILE
from argosy.cli.building import building_options, make_build_request
from argosy.cli.common import NAMED, NAMED_TEXT, open_session, print_json
from argosy.progress import render_packages
from argosy.project import find_project
from argosy.records import asdict
from argosy.shell import quote


@click.command()
@click.argument("sources", nargs=-1, type=NAMED_TEXT)
@building_options
@click.option("-o", "--output", default=LOCK_FILE, type=NAMED, help="The lock file.", show_default=True)
@click.option("--check", is_flag=True, help="Only check that the lock is of these files and this base.")
@click.option(
    "--upgrade", multiple=True, metavar="NAME", help="Choose this package anew, leave all others; repeatable."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def lock(
    sources: tuple[str, ...], *, output: Path, upgrade: tuple[str, ...], check: bool,
    as_json: bool, verbose: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Choose versions once and write them to a lock file, each package with its hash, and the digest of the base.

    Without SOURCES the project file argosy.toml of this folder says what is locked, its steps too.
    A lock is rebuilt by argosy build --locked: same lock and base, same content.

    \b
    argosy lock environment.yml --base debian:bookworm
    argosy lock environment.yml --base debian:bookworm --upgrade numpy
    argosy build --locked -o my.sif
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    build = make_build_request(sources, output, given)
    alone = check and not sources and find_project(Path(session.host.cwd)) is None
    request = LockRequest(build if alone else request_asked(build, session.host), upgrade)
    if check:
        found = check_lock(request, session)
        if as_json:
            print_json({"output": str(output), "base_digest": found.base.digest, "digest": found.content, "fits": True})
        elif not quiet:
            click.echo(f"{output} fits: {render_packages(len(found.packages))} over {found.base.reference}")
        return
    report = lock_files(request, session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output))


def render_report(report: LockReport, shown: Path) -> str:
    """Say what changed, what the lock holds and how it is built."""
    return "\n".join(
        (
            *report.notes,
            *map(str, report.changes),
            f"{shown}: {render_packages(report.packages)} over {report.base}{_told(report)}",
            f"build it: argosy build --locked {quote(str(shown))} -o IMAGE",
        )
    )


def _told(report: LockReport) -> str:
    if report.first:
        return ""
    return "" if report.changes else ", as before"
