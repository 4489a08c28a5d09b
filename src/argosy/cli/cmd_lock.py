"""`argosy lock`: words to a `LockRequest`, its report to text or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from argosy.build.asking import request_of_project
from argosy.build.locking import LockReport, LockRequest, check_lock
from argosy.build.locking import lock as lock_files
from argosy.build.order import LOCK_FILE
from argosy.build.report import BuildRequest
from argosy.carriers import CARRIERS
from argosy.cli.common import open_session, print_json
from argosy.project import find_project


@click.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--base", default="", metavar="BASE", help="As for argosy build.")
@click.option(
    "-o", "--output", default=LOCK_FILE, type=click.Path(path_type=Path), help="The lock file.", show_default=True
)
@click.option("--check", is_flag=True, help="Only check that the lock is of these files and this base.")
@click.option(
    "--upgrade", multiple=True, metavar="NAME", help="Choose this package anew, leave all others; repeatable."
)
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--carrier", type=click.Choice(CARRIERS), default=None, help="How programs run in the base.")
@click.option("--cuda", default="", metavar="VERSION", help="CUDA of the nodes' driver: conda chooses its GPU builds.")
@click.option("--site", default="", metavar="NAME", help="The site it is for: torch comes with its GPUs' back end.")
@click.option("--torch-backend", default="", metavar="NAME", help="As for argosy build.  [default: the site's]")
@click.option(
    "--no-build-isolation", "unisolated", multiple=True, metavar="NAME", help="Built last, against what is installed."
)
@click.option(
    "--allow-replace", "replaceable", multiple=True, metavar="NAME", help="A package of the base that may be replaced."
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def lock(
    sources: tuple[Path, ...], base: str, output: Path, upgrade: tuple[str, ...], work_dir: str, carrier: str | None,
    cuda: str, site: str, *, torch_backend: str, unisolated: tuple[str, ...], replaceable: tuple[str, ...],
    check: bool, as_json: bool, verbose: bool, quiet: bool,
) -> None:  # fmt: skip
    """Choose versions once and write them to a lock file, each package with its hash, and the digest of the base.

    Without SOURCES the project file argosy.toml of this folder says what is locked, its steps too.
    A lock is rebuilt by argosy build --locked: same lock and base, same content.

    \b
    argosy lock environment.yml --base debian:bookworm
    argosy lock environment.yml --base debian:bookworm --upgrade numpy
    argosy build --locked -o my.sif
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=work_dir)
    target, how = output.absolute(), carrier or ""
    build = BuildRequest(
        sources,
        base,
        target,
        carrier=how,
        cuda=cuda,
        site=site,
        torch_backend=torch_backend,
        unisolated=unisolated,
        replaceable=replaceable,
    )
    project = None if sources else find_project(Path(session.host.cwd))
    request = LockRequest(request_of_project(project, build) if project else build, upgrade)
    if check:
        found = check_lock(request, session)
        if as_json:
            print_json({"output": str(output), "base_digest": found.base.digest, "digest": found.content, "fits": True})
        elif not quiet:
            click.echo(f"{output} fits: {len(found.packages)} packages over {found.base.reference}")
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
            f"{shown}: {report.packages} packages over {report.base}{_told(report)}",
            f"build it: argosy build --locked {shown} -o IMAGE",
        )
    )


def _told(report: LockReport) -> str:
    if report.first:
        return ""
    return "" if report.changes else ", as before"
