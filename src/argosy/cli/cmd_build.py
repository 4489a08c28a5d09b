"""`argosy build`: words to a `BuildRequest`, its report to text or JSON."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from argosy.build import BuildReport, BuildRequest
from argosy.build import build as build_image
from argosy.build.bundling import build_bundle
from argosy.build.order import LOCK_FILE
from argosy.carriers import CARRIERS
from argosy.cli.common import open_session, print_json
from argosy.formats import FORMATS, OutputFormat

STEPS_SHOWN = ("base", "packages", "pack")


@click.command()
@click.argument("sources", nargs=-1, type=click.Path(path_type=Path))
@click.option("--base", default="", metavar="BASE", help="SIF, squashfs, folder, tar, or debian:SUITE[+package…].")
@click.option(
    "--locked",
    is_flag=False,
    flag_value=LOCK_FILE,
    default="",
    metavar="[LOCK]",
    help="Install what a lock, or the lock of an image, names to the byte.",
)
@click.option("--bundle", type=click.Path(path_type=Path), help="Build what a bundle holds, without a network.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The image file to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--flatten", is_flag=True, help="One partition instead of base and layer.")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="sif",
    show_default=True,
    help="What to write.",
)
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--carrier", type=click.Choice(CARRIERS), default=None, help="How programs run in the base.")
@click.option("--cuda", default="", metavar="VERSION", help="CUDA of the nodes' driver: conda chooses its GPU builds.")
@click.option("--site", default="", metavar="NAME", help="The site it is for: torch must have its GPUs' back end.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON on standard output.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def build(
    sources: tuple[Path, ...], base: str, locked: str, bundle: Path | None, output: Path, form: str, work_dir: str, *,
    carrier: str | None, cuda: str, site: str,
    force: bool, flatten: bool, as_json: bool, verbose: bool, quiet: bool,
) -> None:  # fmt: skip
    """Build an image from environment files over a base.

    SOURCES are environment.yml and requirements.txt files.  The base is not rebuilt: the environment becomes one
    layer over it.

    \b
    argosy build environment.yml --base debian:bookworm -o my.sif
    argosy build requirements.txt --base vendor-pytorch.sif -o mine.sif
    argosy build --locked my.sif -o the-same-again.sif
    """  # noqa: D301
    session = open_session(verbose=verbose, quiet=quiet, work=work_dir)
    request = BuildRequest(
        sources,
        base,
        output.absolute(),
        force=force,
        flatten=flatten,
        form=OutputFormat(form),
        carrier=carrier or "",
        cuda=cuda,
        locked=locked,
        site=site,
    )
    report = build_bundle(bundle, request, session) if bundle else build_image(request, session)
    if as_json:
        print_json(asdict(report))
    elif not quiet:
        click.echo(render_report(report, output))


def render_report(report: BuildReport, shown: Path) -> str:
    """Say where the time went, what is in the image, and how to run it."""
    steps = {t.step: t.seconds for t in report.timings if t.step in STEPS_SHOWN}
    rest = report.seconds - sum(steps.values())
    if rest >= 1:
        steps["clean up"] = rest
    spent = ", ".join(f"{name} {seconds:.0f}" for name, seconds in steps.items())
    took = f" · {report.seconds:.0f} s ({spent})" if spent else ""
    inside = f"{report.packages} packages, Python {report.python}" if report.python else "no packages"
    return "\n".join(
        (
            *report.notes,
            f"{shown}: {inside}, over {report.base}{took}",
            *(line.replace(report.output, str(shown)) for line in report.use),
        )
    )
