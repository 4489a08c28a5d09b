"""`argosy bundle`: words to a `BuildRequest`, its report to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.build.asking import request_asked
from argosy.build.bundling import BundleReport
from argosy.build.bundling import bundle as write_bundle
from argosy.build.order import LOCK_FILE
from argosy.cli.building import building_options, make_build_request
from argosy.cli.common import open_session, print_json
from argosy.images.identify import render_size
from argosy.progress import render_packages
from argosy.records import asdict, replace
from argosy.shell import quote


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
    report = write_bundle(request_asked(request, session.host), session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output))


def render_report(report: BundleReport, shown: Path) -> str:
    """Say what is in the archive, and what to do with it."""
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {render_packages(report.packages)} over {report.base}, {render_size(report.size)}",
            f"build it where there is no network: argosy build --bundle {quote(shown.name)} -o IMAGE",
        )
    )
