"""`argosy check`: whether an image will work at a site."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session, print_json
from argosy.core.errors import CheckFailed
from argosy.core.records import asdict


@click.command()
@click.argument("image")
@click.option("--site", type=SITE, required=True, metavar="NAME", help="The site's profile: a name or a .toml file.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def check(ctx: click.Context, /, image: str, site: str, *, as_json: bool) -> None:
    """Tell whether an image will work at a site: before the queue, without a GPU.

    Looks at architecture, C library, torch's GPU back end, MPI and network plugin, the runtime, how the layer attaches
    there, whether its compressor can be mounted, and who signed it, where the site asks for that.  The exit code is 7
    where something cannot work.
    """
    from argosy.diagnostics.check.rules import check_image  # noqa: PLC0415 - only where it is asked for

    found = check_image(open_session(), image, site)
    good = all(each.state != "bad" for each in found)
    if as_json:
        print_json({"good": good, "site": site, "image": image, "findings": [asdict(each) for each in found]})
    else:
        for each in found:
            click.echo(f"{each.state:<10} {each.name:<15} {each.said}")
            if each.hint:
                click.echo(f"{'':<26} -> {each.hint}")
    ctx.exit(0 if good else CheckFailed.code)
