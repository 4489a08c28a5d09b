"""`argosy lock`: words to a `LockRequest`, its report to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.builder.bundle import BundleReport
from argosy.builder.bundle import bundle as write_bundle
from argosy.builder.inputs import LOCK_FILE
from argosy.builder.lock import LockReport, LockRequest, check_lock
from argosy.builder.lock import lock as lock_files
from argosy.builder.resolve import apply_project_file, make_build_request
from argosy.cli.building import building_options
from argosy.cli.common import NAMED, NAMED_TEXT, open_session, print_json
from argosy.core.progress import render_packages
from argosy.core.records import asdict, replace
from argosy.core.shell import quote
from argosy.images.identify import render_size
from argosy.recipes.project_file import find_project


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
    request = LockRequest(build if alone else apply_project_file(build, session.host), upgrade)
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


@click.command()
@click.argument("sources", nargs=-1)
@building_options
@click.option(
    "--locked", is_flag=False, flag_value=LOCK_FILE, default="", metavar="[LOCK]", help="Bundle what a lock names."
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The archive to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def bundle(
    sources: tuple[str, ...], *, locked: str, output: Path, force: bool,
    as_json: bool, verbose: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Put base, packages and lock into one archive, from which an image is built without a network.

    With it go wheels of packages that have none, what steps copy and fetch, and the bases of stages.

    \b
    argosy bundle environment.yml --base docker://nvcr.io/nvidia/pytorch:25.06-py3 -o mine.tar
    argosy bundle -o mine.tar                           (what argosy.toml here says)
    argosy build --bundle mine.tar -o mine.sif          (elsewhere, without a network)
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    request = replace(make_build_request(sources, output, given), force=force, locked=locked)
    report = write_bundle(apply_project_file(request, session.host), session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(_render_bundle_report(report, output))


def _render_bundle_report(report: BundleReport, shown: Path) -> str:
    """Say what is in the archive, and what to do with it."""
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {render_packages(report.packages)} over {report.base}, {render_size(report.size)}",
            f"build it where there is no network: argosy build --bundle {quote(shown.name)} -o IMAGE",
        )
    )
