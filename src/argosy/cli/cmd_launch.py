"""`argosy launch`: words to a `LaunchRequest`; a dry run prints the very script that a real run starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from argosy.cli.common import PROJECT_FILE, SITE, container_options, open_session, print_json
from argosy.core.errors import UsageError
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.launch.names import option
from argosy.launch.request import RESTARTS, STAGE, TOPICS, make_request, with_defaults, with_job
from argosy.launch.resolve import find_site, plan_here
from argosy.launch.submit import Launched, write_script
from argosy.launch.submit import launch as launch_story

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

FROM_CLICK = {"binds": "bind", "variables": "env", "restarts": "resume"}
"""Parameters of options that are shared with other commands -> the option's own name."""


def number(name: str, text: str) -> Decorator:
    """Make one option of the shape."""
    return click.option(name, type=click.IntRange(min=1), default=None, metavar="N", help=text)


def word(name: str, text: str, metavar: str = "WORD") -> Decorator:
    """Make one option that is passed to the scheduler."""
    return click.option(name, default="", metavar=metavar, help=text)


@click.command()
@click.argument("image")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option(
    "--site",
    type=SITE,
    default="local",
    show_default=True,
    help="Site profile: a name ('argosy sites ls') or a .toml file.",
)
@number("--nodes", "Nodes.  [default: 1]")
@number("--gpus", "GPUs in all.")
@number("--gpus-per-node", "GPUs on each node.  [default: with --nodes all that a node has, else one per rank]")
@number("--ranks", "Ranks in all.  [default: one per GPU, or one per node]")
@number("--cpus-per-rank", "Cores of each rank.")
@word("--gpu-type", "Kind of GPU, where nodes have several: Slurm's name for it.", "NAME")
@word("--elastic", "Go on with MIN to MAX nodes when some are lost; rank 0 may then be on any.", "MIN:MAX")
@click.option("--launcher", default="", metavar="NAME", help="torchrun, srun, mpi, ray, none.  [default: by the image]")
@click.option("--torchrun-arg", "torchrun_arg", multiple=True, metavar="WORD", help="Passed to torchrun, repeatable.")
@click.option(
    "--mpi", default="", metavar="NAME", help="Wire-up for --launcher mpi: pmix or pmi2.  [default: the site's]"
)
@word("--mode", "A named way to use the site; see 'argosy sites show'.")
@word("--name", "Name of the job.  [default: the program's]")
@word("--account", "Account to charge.")
@word("--partition", "Partition.")
@word("--qos", "Quality of service.")
@word("--time", "Time limit, as 1:30:00.", "TIME")
@word("--mem", "Memory per node, as 60G.", "SIZE")
@word("--mem-per-gpu", "Memory per GPU.", "SIZE")
@word("--constraint", "Features that nodes must have.")
@word("--reservation", "Reservation.")
@word("--nodelist", "Nodes to use.", "NODES")
@word("--exclude", "Nodes not to use; @JOB for those that 'argosy bench nodes' found bad.", "NODES")
@click.option("--mail-type", "--mail", default="", metavar="WORD", help="When to send mail, as END,FAIL.")
@word("--output", "File for the output; %j is the job id, %x its name.", "FILE")
@word("--error", "File for the error stream.  [default: with the output]", "FILE")
@word("--chdir", "Folder in which the job runs.", "DIR")
@word("--array", "Job array, as 0-9%2.", "LIST")
@word("--after", "Start when these jobs ended well, as 123:124.", "JOBS")
@word("--signal", "Warn the job before its time limit, as USR1@60 or B:USR1@60.", "SPEC")
@click.option(
    "--resume",
    "restarts",
    type=int,
    is_flag=False,
    flag_value=RESTARTS,
    default=0,
    metavar="[N]",
    help="Go back into the queue at the time limit, at most N times (10).",
)
@word("--checkpoint", "What the program writes; --resume goes on only after a new one.", "PATH")
@word("--image-has", "What an image that is not here holds, as torch=2.7,rocm=6.2.", "VERSIONS")
@click.option(
    "--debug",
    is_flag=False,
    flag_value=TOPICS,
    default="",
    metavar="[TOPICS]",
    help="Let libraries tell what they do: net, torch or both.",
)
@word("--log-dir", "A file for each rank, in a folder of the job there.", "DIR")
@click.option("--label", is_flag=True, help="Begin each line of the output with its rank, as srun --label does.")
@click.option("--before", multiple=True, metavar="CMD", help="Run once in the image before the ranks; repeatable.")
@click.option(
    "--stage-to",
    is_flag=False,
    flag_value=STAGE,
    default="",
    metavar="[DIR]",
    help="Copy the image to each node's own disk first (/tmp).",
)
@click.option("--no-check", is_flag=True, help="Launch an image whose torch cannot use the GPUs of the site, too.")
@click.option("--exclusive", is_flag=True, help="Whole nodes.")
@click.option("--requeue", is_flag=True, help="Start again after a node failure.")
@click.option(
    "--sbatch-arg", "sbatch_arg", multiple=True, metavar="WORD", help="Any other option of sbatch, repeatable."
)
@container_options
@click.option("--dry-run", is_flag=True, help="Print the script, and start nothing.")
@click.option("--script", type=click.Path(path_type=Path), default=None, help="Write the script there; start nothing.")
@word("--ssh", "Submit there, from here; the folder here stands for DIR, and needs no Argosy.", "HOST[:DIR]")
@click.option("--in-allocation", is_flag=True, help="Inside an allocation: as steps of it, not as a new job.")
@click.option("--interactive", is_flag=True, help="Get the nodes and open a shell in the image on the first.")
@click.option("--smoke", is_flag=True, help="The same on at most 2 nodes for 3 minutes, in the queue for short tests.")
@click.option("--smoke-first", is_flag=True, help="A smoke run, and the job itself only if that went well.")
@click.option("--follow", is_flag=True, help="Wait, print what the job writes, and leave with its exit code.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: the whole plan as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show the commands that are started.")
@click.pass_context
def launch(ctx: click.Context, /, **options: Any) -> None:
    """Launch COMMAND in IMAGE, with as many nodes and ranks as asked; write -- before it.

    In place of IMAGE and COMMAND the name of a job of the project file argosy.toml will do.

    \b
    argosy launch my.sif --ranks 2 -- python train.py --epochs 20
    argosy launch my.sif --site my-site.toml --nodes 2 --gpus-per-node 8 --time 1:00:00 -- python train.py
    argosy launch my.sif --ranks 2 --dry-run -- python train.py     # the exact script
    argosy launch train --nodes 4                                   # [job.train] of argosy.toml, on 4 nodes
    """  # noqa: D301
    ctx.exit(_launch(**options))


def _launch(
    *, dry_run: bool, script: Path | None, in_allocation: bool, follow: bool, as_json: bool, verbose: bool,
    interactive: bool, smoke_first: bool, ssh: str, **options: Any,
) -> int:  # fmt: skip
    _refuse_several(
        in_allocation=in_allocation, interactive=interactive, smoke=options["smoke"], smoke_first=smoke_first
    )
    if as_json and not dry_run:
        raise UsageError(
            "--json needs --dry-run", hint="of a job that was submitted tells: argosy jobs show JOB --json"
        )
    session = open_session(verbose=verbose)
    request = replace(read_request(session, **options), in_allocation=in_allocation)
    if ssh:
        refuse_with_ssh(ssh, in_allocation=in_allocation, interactive=interactive, script=script is not None)
    if dry_run or script is not None:
        kept = script is not None
        return show_plan(request, session, script if not dry_run else None, as_json=as_json, kept=kept, ssh=ssh)
    if interactive:
        from argosy.launch.interactive import launch_interactive  # noqa: PLC0415 - only where it is asked for

        return launch_interactive(request, session).code
    if smoke_first:
        return _smoke_first(request, session, ssh, follow=follow)
    launched = start(request, session, ssh)
    if not launched.job:
        return launched.code
    return submitted(launched.job, request, session, follow=follow)


def start(request: LaunchRequest, session: Session, ssh: str) -> Launched:
    """Launch from this machine, or at the one that ssh reaches."""
    if not ssh:
        return launch_story(request, session)
    from argosy.core.ssh import parse_remote  # noqa: PLC0415 - likewise
    from argosy.launch.submit_ssh import launch_by_ssh  # noqa: PLC0415 - only where it is asked for

    return launch_by_ssh(request, session, parse_remote(ssh))


def _preview(request: LaunchRequest, session: Session, ssh: str) -> LaunchPlan:
    from argosy.core.ssh import parse_remote  # noqa: PLC0415 - likewise
    from argosy.launch.submit_ssh import preview  # noqa: PLC0415 - only where it is asked for

    return preview(request, session, parse_remote(ssh))


def _refuse_several(**wishes: bool) -> None:
    """Refuse options that say different things of the same."""
    several = [option(name) for name, wished in wishes.items() if wished]
    if len(several) > 1:
        raise UsageError(f"{' and '.join(several)} exclude each other", hint="say one of them")


NOT_BY_SSH = MappingProxyType(
    {
        "in_allocation": "log in there, and in the allocation carry out what --dry-run prints: sh job.sh",
        "interactive": "submit '-- sleep 1h', and open a shell in that job: argosy attach JOB",
        "script": "--dry-run prints the script as it would stand there: send its output to a file",
    }
)
"""Options that mean a machine which one works on -> what to do instead."""


def refuse_with_ssh(ssh: str, **wishes: bool) -> None:
    """Refuse the options that need Argosy there, each with its alternative."""
    for name in (name for name, wished in wishes.items() if wished):
        raise UsageError(
            f"{option(name)} cannot be used with --ssh",
            evidence=f"--ssh {ssh} submits a job there, where no Argosy need be",
            hint=NOT_BY_SSH[name],
        )


def show_plan(
    request: LaunchRequest, session: Session, script: Path | None, *, as_json: bool, kept: bool, ssh: str = ""
) -> int:
    """Print a plan, or write its script; give the exit code."""
    plan = _preview(request, session, ssh) if ssh else plan_here(request, session, dry=True, kept=kept)
    if script is not None:
        write_script(plan, script)
        click.echo(f"{script}: start it with '{'sbatch' if plan.scheduler == 'slurm' else 'sh'} {script}'")
    elif as_json:
        print_json(asdict(plan))
    else:
        click.echo(plan.script, nl=False)
    return 0


def _smoke_first(request: LaunchRequest, session: Session, ssh: str, *, follow: bool) -> int:
    from argosy.core.ssh import parse_remote  # noqa: PLC0415 - likewise
    from argosy.launch.submit import launch_after_smoke  # noqa: PLC0415 - only where it is asked for

    smoke, launched = launch_after_smoke(request, session, parse_remote(ssh) if ssh else None)
    if follow:
        code = _follow(session, smoke.job, request)
        if code:
            return code
    return submitted(launched.job, request, session, follow=follow)


def submitted(job: str, request: LaunchRequest, session: Session, *, follow: bool) -> int:
    """Say the number of a job, or follow it to its end; give the exit code."""
    if follow:
        return _follow(session, job, request)
    click.echo(job)
    click.echo(f"job {job} is submitted; watch it with: argosy logs -f {job}", err=True)
    return 0


def _follow(session: Session, job: str, request: LaunchRequest) -> int:
    from argosy.cli.cmd_jobs import follow_to_end  # noqa: PLC0415 - only where it is asked for

    return follow_to_end(session, job, every=find_site(request.site, session.host).slurm.polling_seconds)


def read_request(session: Session, *, smoke: bool = False, **options: Any) -> LaunchRequest:
    """Make the request of the options, and of the project file in this folder where there is one.

    Raises
    ------
    UsageError
        When there is neither a command nor a job of that name.
    """
    words = {FROM_CLICK.get(name, name): value for name, value in options.items() if _is_given(name, value)}
    path = Path(session.host.cwd, PROJECT_FILE)
    if path.is_file():
        from argosy.recipes.project_file import read_project  # noqa: PLC0415 - most folders have none

        project, name = read_project(path), str(words["image"])
        if name in project.table.job or not (words.get("command") or "/" in name or Path(name).exists()):
            del words["image"]
            words = with_job(project, name, words)
        else:
            words = with_defaults(project, words)
    request = replace(make_request(words, session.host), smoke=smoke)
    return _without_bad_nodes(request, session) if "@" in request.options.exclude else request


def _without_bad_nodes(request: LaunchRequest, session: Session) -> LaunchRequest:
    from argosy.bench.nodes import leave_out  # noqa: PLC0415 - only where it is asked for
    from argosy.diagnostics.verify.verify import find_bad_nodes_of  # noqa: PLC0415 - likewise

    return leave_out(request, lambda job: find_bad_nodes_of(session, job))


def _is_given(name: str, value: object) -> bool:
    context = click.get_current_context(silent=True)
    source = context.get_parameter_source(name) if context else None
    return bool(value) and source is not click.core.ParameterSource.DEFAULT
