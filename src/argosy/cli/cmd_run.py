"""`argosy run`, `argosy shell` and `argosy sessions`; the exit code of the first two is the program's own."""

from __future__ import annotations

import re
from typing import Any

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import (
    RUN_MODE,
    Decorated,
    GroupedCommand,
    RunCommand,
    add_options,
    json_option,
    option,
    table_options,
    verbose_option,
    with_option,
)
from argosy.cli.output import fit_table, print_report
from argosy.cli.parameters import COMMAND, IMAGE, NAMED_TEXT
from argosy.core.errors import UsageError
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.core.shell import join
from argosy.recipes.launch_options import ContainerOptions
from argosy.recipes.option_row import CONTAINER
from argosy.runtimes import run as runner

DOCKER_MOUNT = re.compile(r"[^:]+:/(?!/)")
"""``SRC:/DST`` of docker's -v, which means --verbose here."""

_run_options: Decorated = add_options(
    table_options(ContainerOptions),
    with_option,
    option(
        "--dev",
        group=CONTAINER,
        is_flag=True,
        help="Make the image writable; the changes stay in .argosy/dev of this folder. [Apptainer: --overlay]",
    ),
    option(
        "--dev-dir", "dev_folder", group=CONTAINER, type=NAMED_TEXT, metavar="DIR",
        help="Make the image writable; the changes stay in DIR.",
    ),
    option(
        "--fakeroot", group=CONTAINER, is_flag=True,
        help="With --dev: be root in the container, for example to use apt-get or dnf. [Apptainer: --fakeroot]",
    ),
    option(
        "--save-recipe", group=CONTAINER, type=NAMED_TEXT, metavar="DIR",
        help="With --dev: at the end, write what pip and apt have installed as a project in DIR.",
    ),
    option(
        "--dry-run", group=RUN_MODE, is_flag=True,
        help="Print the script and the reason for each choice; start nothing.",
    ),
    verbose_option,
)  # fmt: skip


@click.command(cls=RunCommand)
@click.argument("image", type=IMAGE)
@click.argument("command", nargs=-1, type=COMMAND)
@_run_options
@click.pass_context
def run(ctx: click.Context, /, image: str, command: tuple[str, ...], **options: Any) -> None:
    """Run COMMAND in IMAGE. Options of Argosy come before COMMAND.

    \b
    argosy run my.sif python -c 'import torch; print(torch.__version__)'
    argosy run --with rich my.sif -- python -m rich
    argosy run --enter run my.sif        # the image's own program
    """
    if not command and options["enter"] != "run":
        raise click.MissingParameter(ctx=ctx, param=next(each for each in ctx.command.params if each.name == "command"))
    ctx.exit(_start(image, command, start_script=not command, **options))


@click.command(cls=GroupedCommand)
@click.argument("image", type=IMAGE)
@_run_options
@option(
    "--detach", group=RUN_MODE, type=NAMED_TEXT, metavar="NAME",
    help="Keep the container when you log out; 'argosy attach NAME' opens a shell in it.",
)  # fmt: skip
@click.pass_context
def shell(ctx: click.Context, /, image: str, detach: str | None, **options: Any) -> None:
    """Open a shell in IMAGE."""
    ctx.exit(_start(image, (), detach=detach or "", **options))


def _start(
    image: str, command: tuple[str, ...], *, dry_run: bool, verbose: bool, dev: bool, dev_folder: str | None,
    fakeroot: bool, save_recipe: str | None, packages: tuple[str, ...], detach: str = "",
    start_script: bool = False, **container: Any,
) -> int:  # fmt: skip
    for name, argument in (("an image", image), ("a command", "".join(command[:1]))):
        if DOCKER_MOUNT.match(argument):
            raise UsageError(f"{argument} is not {name}", hint=f"for a bind mount, use --bind {argument}")
    is_writable = dev or dev_folder is not None
    if detach and is_writable:
        raise UsageError("--detach and --dev cannot be used together", hint="start with --dev in tmux or screen")
    if packages and is_writable:
        instead = join((image, "--dev", "--", "pip", "install", *packages))
        raise UsageError(
            "--with and --dev cannot be used together",
            evidence="--with builds another image, which would not have the changes that --dev keeps for this one",
            hint=f"install it in the writable image: argosy run {instead}",
        )
    session = open_session(verbose=verbose)
    wanted = runner.read_container_request(container, session)
    if packages:
        from argosy.builder.one_off import add_packages

        image = add_packages(image, packages, session, runtime=wanted.runtime, dry=dry_run)
    request = runner.RunRequest(
        image, command, wanted, is_writable, dev_folder or "", fakeroot, save_recipe or "", start_script
    )
    if detach and not dry_run:
        return _detach(detach, request, session)
    if not dry_run:
        return runner.run(request, session)
    plan, planned = runner.prepare_run(request, session, dry=True)
    click.echo(runner.render_run(plan, planned))
    for choice in plan.choices:
        click.echo(f"# {choice.label} = {choice.value}: {choice.why} [{choice.source}]", err=True)
    return 0


def _detach(name: str, request: runner.RunRequest, session: Session) -> int:
    from argosy.runtimes.sessions import start_session

    made = start_session(name, request, session)
    click.echo(f"{name} runs on {made.owner.host}; enter it: argosy attach {name}; end it: argosy sessions stop {name}")
    return 0


@click.group(cls=WholeLines)
def sessions() -> None:
    """List and stop the detached sessions that 'argosy shell --detach NAME' started."""


@sessions.command("ls")
@json_option
def list_all(*, as_json: bool) -> None:
    """List your sessions: name, state, machine and image."""
    from argosy.runtimes.sessions import list_sessions

    found = list_sessions(open_session(quiet=True))
    rows = [(each.name, each.state, each.owner.host, each.runtime, each.image) for each in found]
    table = fit_table([("name", "state", "machine", "runtime", "image"), *rows])
    report = [asdict(each) | {"state": each.state} for each in found]
    print_report(report, table if found else "no sessions", as_json=as_json)


@sessions.command("stop")
@click.argument("name")
def stop(name: str) -> None:
    """End the session NAME."""
    from argosy.runtimes.sessions import stop_session

    click.echo(f"stopped {stop_session(name, open_session(quiet=True)).name}")
