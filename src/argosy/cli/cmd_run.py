"""`argosy run` and `argosy shell`: words to a `RunRequest`; the exit code is the program's own."""

from __future__ import annotations

from typing import Any

import click

from argosy.cli.common import Decorated, container_options, container_request, open_session
from argosy.running import RunRequest, plan_run, render_run
from argosy.running import run as run_story


def dev_options(command: Decorated) -> Decorated:
    """Add the options that let the image be written into."""
    dev = click.option("--dev", is_flag=True, help="Let the image be written into: it stays in .argosy/dev here.")
    folder = click.option("--dev-dir", "dev_folder", default="", metavar="DIR", help="--dev, with a folder of yours.")
    return dev(folder(command))


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("image")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@container_options
@dev_options
@click.option("--dry-run", is_flag=True, help="Print what would be run, as a script, with the reason of each choice.")
@click.option("-v", "--verbose", is_flag=True, help="Show the command that is started.")
@click.pass_context
def run(ctx: click.Context, /, image: str, command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND in IMAGE; write -- before it.

    \b
    argosy run my.sif -- python -c 'import torch; print(torch.__version__)'
    """  # noqa: D301
    ctx.exit(_start(image, command, **options))


@click.command()
@click.argument("image")
@container_options
@dev_options
@click.option("--dry-run", is_flag=True, help="Print what would be run, as a script, with the reason of each choice.")
@click.option("-v", "--verbose", is_flag=True, help="Show the command that is started.")
@click.pass_context
def shell(ctx: click.Context, /, image: str, **options: Any) -> None:
    """Open a shell in IMAGE."""
    ctx.exit(_start(image, (), **options))


def _start(
    image: str, command: tuple[str, ...], *, dry_run: bool, verbose: bool, dev: bool, dev_folder: str, **container: Any
) -> int:
    session = open_session(verbose=verbose)
    wanted = container_request(**container, environment=dict(session.host.environment))
    request = RunRequest(image, command, wanted, dev or bool(dev_folder), dev_folder)
    if not dry_run:
        return run_story(request, session)
    plan, planned = plan_run(request, session, dry=True)
    click.echo(render_run(plan, planned))
    for choice in plan.choices:
        click.echo(f"# {choice.what} = {choice.value}: {choice.why} [{choice.source}]", err=True)
    return 0
