"""`argosy images`: the catalog, and what is in an image."""

from __future__ import annotations

from dataclasses import asdict

import click

from argosy.cli.common import open_session, print_json
from argosy.images.describing import describe_image, render_description
from argosy.images.finding import catalog, find_image
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
    description = describe_image(open_image(find_image(image, session)))
    if as_json:
        print_json(asdict(description))
    else:
        click.echo(render_description(description))
