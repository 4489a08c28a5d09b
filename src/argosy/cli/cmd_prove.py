"""`argosy prove`: one small job that tries what plans assume of a site."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from argosy.cli.common import SITE, open_session, print_json
from argosy.core.shell import quote


@click.command()
@click.argument("site", type=SITE, default="")
@click.option("--image", default="", metavar="IMAGE", help="Also try how this image is entered; best one with torch.")
@click.option("--script", type=click.Path(), default=None, help="Only write the job there, for 'sbatch FILE'.")
@click.option(
    "--gpus-per-node", type=click.IntRange(min=0), default=None, metavar="N", help="[default: all of a node's]"
)
@click.option("--account", default="", metavar="WORD", help="Account to charge.")
@click.option("--partition", default="", metavar="WORD", help="Partition.  [default: the site's for short tests]")
@click.option("--qos", default="", metavar="WORD", help="Quality of service.")
@click.option("--time", default="", metavar="TIME", help="Time limit.  [default: 00:05:00]")
@click.option("--json", "as_json", is_flag=True, help="Print what it found as JSON.")
def prove(
    site: str, image: str, script: str | None, gpus_per_node: int | None, *, as_json: bool, **options: str
) -> None:
    """Try what plans assume of a site: a job of 2 nodes and 5 minutes, which needs no Argosy where it runs.

    SITE is a profile's name or file; without it, the site that this machine belongs to.  The job writes
    argosy-prove-JOB.json into this folder, and 'argosy sites merge' puts that into the profile.
    """
    from argosy.diagnostics.validate.validate import (  # noqa: PLC0415 - only where it is asked for
        plan_validation_here,
        site_here,
    )
    from argosy.diagnostics.validate.validate import prove as validate_story  # noqa: PLC0415 - likewise
    from argosy.slurm.text import JobOptions  # noqa: PLC0415 - likewise

    session = open_session()
    name, asked = site_here(session, site), JobOptions(**options)  # type: ignore[arg-type]  # those of text
    gpus = -1 if gpus_per_node is None else gpus_per_node
    if script is not None:
        from argosy.core.os_errors import translate_os_errors  # noqa: PLC0415 - likewise
        from argosy.core.store import write_text  # noqa: PLC0415 - likewise

        plan = plan_validation_here(session, name, image=image, options=asked, gpus=gpus, kept=True)
        path = Path(script)
        with translate_os_errors(path.parent):
            write_text(path, plan.script)
            path.chmod(0o755)
        click.echo(f"{path}: submit it with: sbatch {path}", err=True)
        return
    stream = sys.stderr.buffer if as_json else None
    proved = validate_story(session, name, image=image, options=asked, gpus=gpus, stream=stream)
    if as_json:
        from msgspec import to_builtins  # noqa: PLC0415 - likewise

        print_json({"file": proved.file, **to_builtins(proved.result)})
    click.echo(f"put it into the profile: argosy sites merge {quote(str(proved.file))}", err=True)
