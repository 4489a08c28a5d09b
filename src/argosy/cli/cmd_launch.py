"""`argosy launch`: options to a `LaunchRequest`, and its plan as a script or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from argosy.cli.common import open_session
from argosy.cli.options import RUN_MODE, GroupedCommand, option, table_options, verbose_option, with_option
from argosy.cli.output import print_json
from argosy.cli.parameters import COMMAND, IMAGE
from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import join
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest, Purpose
from argosy.launch.notes import note_local
from argosy.launch.option_checks import doubtful_choices, refuse_with_ssh, replacing_profiles
from argosy.launch.request import read_request
from argosy.launch.resolve import prepare_launch
from argosy.recipes.launch_options import LaunchOptions
from argosy.recipes.option_row import option_name

if TYPE_CHECKING:
    from argosy.launch.submit import Launched


@click.command(cls=GroupedCommand)
@click.argument("image", type=IMAGE)
@click.argument("command", nargs=-1, type=COMMAND)
@table_options(LaunchOptions)
@with_option
@option("--dry-run", group=RUN_MODE, is_flag=True, help="Print the job script and start nothing.")
@option(
    "--script", group=RUN_MODE, type=click.Path(path_type=Path), default=None, metavar="FILE",
    help="Write the job script to FILE and start nothing.",
)  # fmt: skip
@option(
    "--ssh", group=RUN_MODE, default="", metavar="HOST[:DIR]",
    help="Submit on HOST by ssh, from DIR; HOST does not need Argosy.",
)  # fmt: skip
@option("--in-allocation", group=RUN_MODE, is_flag=True, help="Start in the current allocation, not as a new job.")
@option(
    "--interactive", group=RUN_MODE, is_flag=True,
    help="Allocate the nodes and open a shell in the image on the first one. [Slurm: salloc]",
)  # fmt: skip
@option(
    "--smoke", group=RUN_MODE, is_flag=True,
    help="Run a short test: at most 2 nodes for 3 minutes, in the site's partition for short tests.",
)  # fmt: skip
@option("--smoke-first", group=RUN_MODE, is_flag=True, help="Run a short test, and the job itself if the test passes.")
@option(
    "--follow", group=RUN_MODE, is_flag=True,
    help="Wait for the job, print its output, and exit with its exit code. [Slurm: sbatch --wait]",
)  # fmt: skip
@option("--json", "as_json", group=RUN_MODE, is_flag=True, help="With --dry-run: print the whole plan as JSON.")
@verbose_option
@click.pass_context
def launch(ctx: click.Context, /, **options: Any) -> None:
    """Launch COMMAND in IMAGE on the nodes and ranks that the options describe; write -- before COMMAND.

    Instead of IMAGE and COMMAND, you can give the name of a job in the project file argosy.toml. 'argosy config' shows
    the defaults of options.

    \b
    argosy launch my.sif --ranks 2 -- python train.py --epochs 20
    argosy launch my.sif --site lumi-g --nodes 2 --time 1h -- python train.py
    argosy launch my.sif --ranks 2 --dry-run -- python train.py    # the script
    argosy launch train --nodes 4          # [job.train] of argosy.toml, 4 nodes
    """
    ctx.exit(_launch(ctx, **options))


def _launch(
    context: click.Context, /, *, dry_run: bool, script: Path | None, in_allocation: bool, follow: bool, as_json: bool,
    verbose: bool, interactive: bool, smoke: bool, smoke_first: bool, ssh: str, packages: tuple[str, ...],
    **options: Any,
) -> int:  # fmt: skip
    _refuse_several(in_allocation=in_allocation, interactive=interactive, smoke=smoke, smoke_first=smoke_first)
    refuse_contradicting_modes(dry_run=dry_run, script=script is not None, as_json=as_json)
    session = open_session(verbose=verbose)
    request = replace(request_of_options(context, session, **options), in_allocation=in_allocation, smoke=smoke)
    if ssh:
        writes, adds = script is not None, bool(packages)
        refuse_with_ssh(ssh, in_allocation=in_allocation, interactive=interactive, script=writes, packages=adds)
    if packages:
        from argosy.builder.one_off import extend_launch

        request = extend_launch(request, packages, session, dry=dry_run)
    if dry_run or script is not None:
        plan = prepare_dry_run(request, session, ssh=ssh, interactive=interactive)
        note_local(session, plan)
        for line in (*replacing_profiles(plan.choices), *doubtful_choices(plan.choices)):
            session.reporter.note(line)
        if smoke_first:
            session.reporter.note("this is the job; its smoke run comes first: see it with --smoke --dry-run")
        return show_plan(plan, script, as_json=as_json)
    if not request.image.startswith(BARE_PREFIX):
        from argosy.runtimes.run import note_dropped

        note_dropped(request.container, session)
    if interactive:
        from argosy.launch.interactive import launch_interactive

        return launch_interactive(request, session).code
    if smoke_first:
        return _smoke_first(request, session, ssh, follow=follow)
    launched = start(request, session, ssh)
    if not launched.job:
        return launched.code
    return report_submitted(launched, session, follow=follow)


def start(request: LaunchRequest, session: Session, ssh: str) -> Launched:
    """Launch from this machine, or from the machine that ssh reaches."""
    if not ssh:
        from argosy.launch.submit import launch as launch_here

        return launch_here(request, session)
    from argosy.core.ssh import parse_remote
    from argosy.launch.submit_ssh import launch_by_ssh

    return launch_by_ssh(request, session, parse_remote(ssh))


def refuse_contradicting_modes(*, dry_run: bool, script: bool, as_json: bool) -> None:
    """Refuse contradicting options.

    Raises
    ------
    UsageError
        If a dry run would also write the script to a file, or if JSON is requested for a job that starts.
    """
    _refuse_several(dry_run=dry_run, script=script)
    if as_json and not dry_run:
        raise UsageError("--json needs --dry-run", hint="for a submitted job, use: argosy jobs show JOB --json")


def _refuse_several(**flags: bool) -> None:
    several = [option_name(name) for name, given in flags.items() if given]
    if len(several) > 1:
        raise UsageError(f"{' and '.join(several)} cannot be used together", hint="use one of these options")


def prepare_dry_run(request: LaunchRequest, session: Session, *, ssh: str, interactive: bool = False) -> LaunchPlan:
    """Return the plan of a launch that is not started."""
    if ssh:
        from argosy.core.ssh import parse_remote
        from argosy.launch.submit_ssh import preview

        return preview(request, session, parse_remote(ssh))
    if interactive:
        from argosy.launch.interactive import prepare_interactive

        return prepare_interactive(request, session, purpose=Purpose.SHOW)
    return prepare_launch(request, session, purpose=Purpose.SHOW)


def show_plan(plan: LaunchPlan, script: Path | None, *, as_json: bool) -> int:
    """Print a plan, or write its script to a file; return the exit code."""
    if script is not None:
        from argosy.launch.submit import write_script

        write_script(script, plan.script, private=bool(plan.private))
        program = plan.submit[0]
        how = " the command in its head, salloc" if program == "salloc" else f": {join((program, str(script)))}"
        click.echo(f"{script}: start it with{how}")
    elif as_json:
        print_json(plan)
    else:
        click.echo(plan.script, nl=False)
    return 0


def _smoke_first(request: LaunchRequest, session: Session, ssh: str, *, follow: bool) -> int:
    from argosy.core.ssh import parse_remote
    from argosy.launch.smoke_first import launch_after_smoke

    smoke, launched = launch_after_smoke(request, session, parse_remote(ssh) if ssh else None)
    if follow:
        code = _follow(session, smoke)
        if code:
            return code
    return report_submitted(launched, session, follow=follow)


def report_submitted(launched: Launched, session: Session, *, follow: bool) -> int:
    """Print the number of a job, or follow the job to its end; return the exit code."""
    if follow:
        return _follow(session, launched)
    click.echo(launched.job)
    click.echo(f"job {launched.job} is submitted; watch it with: argosy logs -f {launched.job}", err=True)
    return 0


def _follow(session: Session, launched: Launched) -> int:
    from argosy.cli.cmd_jobs import follow_to_end

    return follow_to_end(session, launched.job, every=launched.polling_seconds)


def request_of_options(context: click.Context, session: Session, /, **options: Any) -> LaunchRequest:
    """Return the request of the options on the command line, completed by files and variables.

    Parameters
    ----------
    context
        The context of the command: it knows which options the user typed, and which have their default.

    Raises
    ------
    UsageError
        If there is neither a command nor a job of that name.
    """
    default = click.core.ParameterSource.DEFAULT
    typed = {
        name: value for name, value in options.items() if value and context.get_parameter_source(name) is not default
    }
    request = read_request(typed, session.host)
    if "@" not in request.options.exclude:
        return request
    from argosy.diagnostics.verify.verify import exclude_bad_nodes_of

    return exclude_bad_nodes_of(request, session)
