"""`argosy bundle`: words to a `BuildRequest`, its report to text or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from argosy.build.asking import request_here
from argosy.build.bundling import BundleReport
from argosy.build.bundling import bundle as write_bundle
from argosy.build.order import LOCK_FILE
from argosy.build.report import BuildRequest
from argosy.carriers import CARRIERS
from argosy.cli.common import open_session, print_json


@click.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--base", default="", metavar="BASE", help="As for argosy build.")
@click.option(
    "--locked", is_flag=False, flag_value=LOCK_FILE, default="", metavar="[LOCK]", help="Bundle what a lock names."
)
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The archive to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--carrier", type=click.Choice(CARRIERS), default=None, help="How programs run in the base.")
@click.option("--cuda", default="", metavar="VERSION", help="CUDA of the nodes' driver: conda chooses its GPU builds.")
@click.option("--site", default="", metavar="NAME", help="The site it is for: torch comes with its GPUs' back end.")
@click.option("--torch-backend", default="", metavar="NAME", help="As for argosy build.  [default: the site's]")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def bundle(
    sources: tuple[Path, ...], base: str, locked: str, output: Path, work_dir: str, *,
    carrier: str | None, cuda: str, site: str, torch_backend: str,
    force: bool, as_json: bool, verbose: bool, quiet: bool,
) -> None:  # fmt: skip
    """Put base, packages and lock into one archive, from which an image is built without a network.

    With it go wheels of packages that have none, what steps copy and fetch, and the bases of stages.

    \b
    argosy bundle environment.yml --base docker://nvcr.io/nvidia/pytorch:25.06-py3 -o mine.tar
    argosy bundle -o mine.tar                           (what argosy.toml here says)
    argosy build --bundle mine.tar -o mine.sif          (elsewhere, without a network)
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=work_dir)
    request = BuildRequest(
        sources,
        base,
        output.absolute(),
        force=force,
        carrier=carrier or "",
        cuda=cuda,
        locked=locked,
        site=site,
        torch_backend=torch_backend,
    )
    request = request if sources or locked else request_here(request, session.host)
    report = write_bundle(request, session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output))


def render_report(report: BundleReport, shown: Path) -> str:
    """Say what is in the archive, and what to do with it."""
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {report.packages} packages over {report.base}, {report.size / 1e6:.0f} MB",
            f"build it where there is no network: argosy build --bundle {shown.name} -o IMAGE",
        )
    )
