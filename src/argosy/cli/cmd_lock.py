"""`argosy lock` and `bundle`: options to a request, and the report to text or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from argosy.builder.bundle import BundleReport
from argosy.builder.bundle import bundle as write_bundle
from argosy.builder.inputs import LOCK_FILE
from argosy.builder.lock import LockReport, LockRequest, check_lock
from argosy.builder.lock import lock as write_lock
from argosy.builder.request import apply_project_file, make_build_request
from argosy.cli.common import open_session
from argosy.cli.options import GroupedCommand, force_option, option, report_options, table_options
from argosy.cli.output import print_report
from argosy.cli.parameters import FILE, NAMED_TEXT, NEW_FILE
from argosy.core.records import replace
from argosy.core.render import render_packages, render_size
from argosy.core.shell import quote
from argosy.recipes.build_options import BuildOptions, InstallOptions
from argosy.recipes.project_file import find_project


@click.command(cls=GroupedCommand)
@click.argument("sources", nargs=-1, type=NAMED_TEXT)
@table_options(InstallOptions)
@option(
    "-o", "--output", default=LOCK_FILE, type=NEW_FILE, metavar="FILE",
    help=f"Lock file to write. Default: {LOCK_FILE}.",
)  # fmt: skip
@option("--check", is_flag=True, help="Only check that the lock belongs to these files and this base.")
@option("--upgrade", multiple=True, metavar="NAME", help="Resolve this package again and keep the others; repeatable.")
@report_options
def lock(
    sources: tuple[str, ...], *, output: Path, upgrade: tuple[str, ...], check: bool,
    as_json: bool, verbose: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Resolve versions once and write them to a lock file, each package with its hash, and the digest of the base.

    All packages are downloaded and installed into a work folder, because the lock also has the digest of the contents.
    They stay in the cache for the build.

    Without SOURCES, Argosy locks the project file argosy.toml of this folder, including its steps. 'argosy build
    --locked' builds from a lock: the same lock and base give the same contents.

    \b
    argosy lock environment.yml --base debian:bookworm
    argosy lock environment.yml --base debian:bookworm --upgrade numpy
    argosy build --locked -o my.sif
    """
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    asked = make_build_request(sources, output, given, session.host.environment)
    has_no_files = check and not sources and find_project(Path(session.host.cwd)) is None
    if not has_no_files:
        asked = apply_project_file(asked, session.host, "argosy lock {}")
    request = LockRequest(asked, upgrade)
    if check:
        found = check_lock(request, session)
        facts = {"output": str(output), "base_digest": found.base.digest, "digest": found.content, "fits": True}
        text = f"{output} fits: {render_packages(len(found.packages))} over {found.base.reference}"
        print_report(facts, text, as_json=as_json, quiet=quiet)
        return
    report = write_lock(request, session)
    print_report(report, _render_lock_report(report, output), as_json=as_json, quiet=quiet)


def _render_lock_report(report: LockReport, shown: Path) -> str:
    unchanged = "" if report.first or report.changes else ", unchanged"
    return "\n".join(
        (
            *report.notes,
            *map(str, report.changes),
            f"{shown}: {render_packages(report.packages)} over {report.base}{unchanged}",
            f"build it: argosy build --locked {quote(str(shown))} -o IMAGE",
        )
    )


@click.command(cls=GroupedCommand)
@click.argument("sources", nargs=-1, type=FILE)
@table_options(InstallOptions)
@table_options(BuildOptions, "locked")
@option("-o", "--output", required=True, type=NEW_FILE, metavar="FILE", help="Archive to write.")
@force_option
@report_options
def bundle(
    sources: tuple[str, ...], *, locked: str, output: Path, force: bool,
    as_json: bool, verbose: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Pack base, packages and lock into one archive, from which an image is built without a network.

    The archive also contains wheels of packages that publish only sources, the files that steps copy and download, and
    the bases of stages.

    \b
    argosy bundle environment.yml --base vendor-pytorch.sif -o mine.tar
    argosy bundle -o mine.tar                    (the argosy.toml of this folder)
    argosy build --bundle mine.tar -o mine.sif   (elsewhere, without a network)
    """
    session = open_session(verbose=verbose, quiet=quiet, work=given["work_dir"])
    asked = make_build_request(sources, output, given, session.host.environment)
    asked = replace(asked, force=force, locked=locked)
    request = apply_project_file(asked, session.host, "argosy bundle {} -o my.tar")
    report = write_bundle(request, session)
    print_report(report, _render_bundle_report(report, output), as_json=as_json, quiet=quiet)


def _render_bundle_report(report: BundleReport, shown: Path) -> str:
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {render_packages(report.packages)} over {report.base}, {render_size(report.size)}",
            f"build without a network: argosy build --bundle {quote(shown.name)} -o IMAGE",
        )
    )
