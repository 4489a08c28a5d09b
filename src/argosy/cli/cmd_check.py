"""`argosy check`: whether an image will work at a site."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session
from argosy.cli.findings import print_findings


@click.command()
@click.argument("image")
@click.option("--site", type=SITE, required=True, metavar="NAME", help="The site's profile: a name or a .toml file.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def check(ctx: click.Context, /, image: str, site: str, *, as_json: bool) -> None:
    """Check whether an image will work at a site, without a GPU and before you submit a job.

    The checks cover architecture, C library, PyTorch's GPU backend, MPI, network plugin, container runtime, layer,
    compression and, if the site requires one, the signature. The exit code is 7 if something cannot work.
    """
    from argosy.diagnostics.check.rules import check_image  # noqa: PLC0415 - only where it is asked for

    found = check_image(open_session(), image, site)
    ctx.exit(print_findings(found, as_json=as_json, site=site, image=image))
