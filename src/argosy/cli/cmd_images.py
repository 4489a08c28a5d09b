"""`argosy images`: the catalog, and what is in an image."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from argosy.cli.common import open_session, print_json
from argosy.formats import FORMATS, OutputFormat
from argosy.images.describing import describe_image, render_description
from argosy.images.finding import catalog, find_image, refined
from argosy.images.opening import open_image


@click.group()
def images() -> None:
    """List images, and tell what is in one."""


@images.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def list_images(*, as_json: bool) -> None:
    """List the images of the catalog: files in ARGOSY_IMAGES, else in the user's own folder."""
    session = open_session(quiet=True)
    found = catalog(session)
    if as_json:
        print_json([{"name": path.stem, "path": str(path), "bytes": path.stat().st_size} for path in found])
        return
    for path in found:
        click.echo(f"{path.stem:<24} {path.stat().st_size / 1e6:>8.0f} MB  {path}")
    if not found:
        click.echo(f"no images in {', '.join(map(str, session.places.images))}")


@images.command("info")
@click.argument("image")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def info(image: str, *, as_json: bool) -> None:
    """Tell what IMAGE is: base and its digest, layers, sizes, packages, how to run it."""
    session = open_session(quiet=True)
    description = describe_image(refined(open_image(find_image(image, session)), session))
    if as_json:
        print_json(asdict(description))
    else:
        click.echo(render_description(description))


@images.command("freeze")
@click.argument("image")
@click.option(
    "--format",
    "form",
    type=click.Choice(("lock", "requirements", "explicit")),
    default="lock",
    show_default=True,
    help="A lock, a requirements.txt of the pip packages, or an @EXPLICIT list of the conda packages.",
)
def freeze(image: str, form: str) -> None:
    """Tell what is in IMAGE, whoever made it, as a lock: packages of conda, pip, dpkg and rpm."""
    from argosy.build import freezing  # noqa: PLC0415 - info and ls need none of it
    from argosy.lock import render_lock  # noqa: PLC0415 - likewise

    render = {"requirements": freezing.render_requirements, "explicit": freezing.render_explicit}.get(form, render_lock)
    click.echo(render(freezing.freeze(image, open_session(quiet=True))), nl=False)


@images.command("sbom")
@click.argument("image")
def sbom(image: str) -> None:
    """Print the bill of materials of IMAGE as CycloneDX 1.6."""
    from argosy.build.freezing import freeze as freeze_image  # noqa: PLC0415 - info and ls need none of it
    from argosy.sbom import render_sbom  # noqa: PLC0415 - likewise

    click.echo(render_sbom(freeze_image(image, open_session(quiet=True))), nl=False)


@images.command("diff")
@click.argument("one")
@click.argument("other")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def diff(one: str, other: str, *, as_json: bool) -> None:
    """Tell what differs between two images: packages, settings, and the files of their layers."""
    from argosy.build.comparing import compare_images  # noqa: PLC0415 - info and ls need none of it

    found = compare_images(one, other, open_session(quiet=True))
    if as_json:
        print_json(asdict(found))
        return
    for line in (*found.notes, *found.changes, *(f"{change.sign} {change.path}" for change in found.files)):
        click.echo(str(line))
    if not found.changes and not found.files:
        click.echo("the same content over the same base")


@images.command("export")
@click.argument("image")
@click.option("--format", "form", required=True, type=click.Choice(FORMATS), help="What to write.")
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="The file to make.")
@click.option("--force", is_flag=True, help="Replace the output if it exists.")
@click.option("--work-dir", default="", metavar="DIR", help="Folder for work files.  [default: TMPDIR or the cache]")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show each command.")
def export(
    image: str, form: str, output: Path, work_dir: str, *, force: bool, as_json: bool, verbose: bool
) -> None:  # fmt: skip
    """Write IMAGE in another form; a sif is written flat, as 'apptainer build' wants it.

    \b
    argosy images export my.sif --format sqsh -o my.sqsh
    argosy images export my.sif --format docker-archive -o my.tar
    """  # noqa: D301
    from argosy.build.exporting import ExportRequest, export_image  # noqa: PLC0415 - most commands here only read

    session = open_session(verbose=verbose, work=work_dir)
    report = export_image(ExportRequest(image, OutputFormat(form), output.absolute(), force=force), session)
    if as_json:
        print_json(asdict(report))
        return
    for line in report.use:
        click.echo(line.replace(report.output, str(output)))
