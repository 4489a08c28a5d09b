"""`argosy run` and `argosy shell`: words to a `RunRequest`; the exit code is the program's own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from argosy.cli.common import NAMED_TEXT, Decorated, open_session
from argosy.cli.options import RUN_MODE, GroupedCommand, RunCommand, option, table_options, with_option
from argosy.core.errors import UsageError
from argosy.recipes.launch_options import ContainerOptions
from argosy.recipes.option_row import CONTAINER, PROJECT_FILE
from argosy.runtimes.container_plan import parse_bind, parse_container
from argosy.runtimes.run import RunRequest, plan_run, render_run
from argosy.runtimes.run import run as run_story

if TYPE_CHECKING:
    from argosy.core.session import Session

FROM_PROJECT = ("bind", "env", "workdir", "contain", "signed_by")
"""Keys of ``[launch]`` in a project file that hold for containers started here, too."""

DOCKER_MOUNT = re.compile(r"[^:]+:/(?!/)")
"""``SRC:/DST`` of docker's -v, which means --verbose here."""


def _dev_options(command: Decorated) -> Decorated:
    """Add the options that let the image be written into."""
    dev = option(
        "--dev",
        group=CONTAINER,
        is_flag=True,
        help="Make the image writable; the changes stay in .argosy/dev of this folder. [Apptainer: --overlay]",
    )
    folder = option(
        "--dev-dir", "dev_folder", group=CONTAINER, type=NAMED_TEXT, metavar="DIR", help="As --dev, with your folder."
    )
    return dev(folder(command))


@click.command(cls=RunCommand)
@click.argument("image")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@table_options(ContainerOptions)
@with_option
@_dev_options
@option(
    "--dry-run", group=RUN_MODE, is_flag=True, help="Print the script and the reason for each choice; start nothing."
)
@option("-v", "--verbose", is_flag=True, help="Show the command that Argosy starts.")
@click.pass_context
def run(ctx: click.Context, /, image: str, command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND in IMAGE. Options of Argosy come before COMMAND.

    \b
    argosy run my.sif python -c 'import torch; print(torch.__version__)'
    argosy run --with rich my.sif -- python -m rich
    """  # noqa: D301
    ctx.exit(_start(image, command, **options))


@click.command(cls=GroupedCommand)
@click.argument("image")
@table_options(ContainerOptions)
@with_option
@_dev_options
@option(
    "--dry-run", group=RUN_MODE, is_flag=True, help="Print the script and the reason for each choice; start nothing."
)
@option("-v", "--verbose", is_flag=True, help="Show the command that Argosy starts.")
@click.pass_context
def shell(ctx: click.Context, /, image: str, **options: Any) -> None:
    """Open a shell in IMAGE."""
    ctx.exit(_start(image, (), **options))


def _start(
    image: str,
    command: tuple[str, ...],
    *,
    dry_run: bool,
    verbose: bool,
    dev: bool,
    dev_folder: str | None,
    packages: tuple[str, ...],
    **container: Any,
) -> int:
    for name, argument in (("an image", image), ("a command", "".join(command[:1]))):
        if DOCKER_MOUNT.match(argument):
            raise UsageError(f"{argument} is not {name}", hint=f"for a bind mount, use --bind {argument}")
    session = open_session(verbose=verbose)
    wanted = parse_container(_with_project(session, **container), session.host.environment)
    if packages:
        from argosy.builder.one_off import add_packages  # noqa: PLC0415 - most runs build nothing

        image = add_packages(image, packages, session, runtime=wanted.runtime, dry=dry_run)
    request = RunRequest(image, command, wanted, dev or dev_folder is not None, dev_folder or "")
    if not dry_run:
        return run_story(request, session)
    plan, planned = plan_run(request, session, dry=True)
    click.echo(render_run(plan, planned))
    for choice in plan.choices:
        click.echo(f"# {choice.label} = {choice.value}: {choice.why} [{choice.source}]", err=True)
    return 0


def _with_project(session: Session, bind: tuple[str, ...], env: tuple[str, ...], **options: Any) -> dict[str, Any]:
    """Add what the project file of this folder says of containers; options win, and what is not here is left out.

    How GPUs enter and which runtime starts containers are the nodes' matter there.
    """
    said = {name: value for name, value in options.items() if value} | {"bind": bind, "env": env}
    path = Path(session.host.cwd, PROJECT_FILE)
    if not path.is_file():
        return said
    from argosy.launch.request import with_defaults  # noqa: PLC0415 - most folders have no project file
    from argosy.recipes.project_file import read_project  # noqa: PLC0415 - likewise

    usual = read_project(path)
    words = with_defaults(usual, said)
    kept = [word for word in words["bind"] if word in bind or os.path.lexists(parse_bind(word).source)]
    for word in words["bind"]:
        if word not in kept:
            session.reporter.note(f"{usual.where('launch', 'bind')}: no {parse_bind(word).source} is here to bind")
    return said | {key: words[key] for key in FROM_PROJECT if key in words} | {"bind": tuple(kept)}
