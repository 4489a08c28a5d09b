"""`argosy launch`: words to a `LaunchRequest`; a dry run prints the very script that a real run starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import click

from argosy.cli.common import container_options, container_request, open_session, print_json
from argosy.launch import LaunchRequest, Wanted, find_site, plan_here, write_script
from argosy.launch import launch as launch_story
from argosy.schedulers.slurm import JobOptions
from argosy.session import Session

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

SHAPE = tuple(field.name for field in fields(Wanted))
JOB = tuple(field.name for field in fields(JobOptions))


def number(name: str, text: str) -> Decorator:
    """Make one option of the shape."""
    return click.option(name, type=click.IntRange(min=1), default=None, metavar="N", help=text)


def word(name: str, text: str, metavar: str = "WORD") -> Decorator:
    """Make one option that is passed to the scheduler."""
    return click.option(name, default="", metavar=metavar, help=text)


@click.command()
@click.argument("image")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--site", default="local", show_default=True, help="Site profile: a name ('argosy sites ls') or a .toml file."
)
@number("--nodes", "Nodes.  [default: 1]")
@number("--gpus", "GPUs in all.")
@number("--gpus-per-node", "GPUs on each node.")
@number("--ranks", "Ranks in all.  [default: one per GPU, or one per node]")
@number("--cpus-per-rank", "Cores of each rank.")
@click.option("--launcher", default="", metavar="NAME", help="torchrun, srun, mpi or none.  [default: by the image]")
@click.option("--torchrun-arg", "torchrun_args", multiple=True, metavar="WORD", help="Passed to torchrun, repeatable.")
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
@word("--exclude", "Nodes not to use.", "NODES")
@word("--mail-type", "When to send mail, as END,FAIL.")
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
    flag_value=10,
    default=0,
    metavar="[N]",
    help="Go back into the queue at the time limit, at most N times (10).",
)
@word("--checkpoint", "What the program writes; --resume goes on only after a new one.", "PATH")
@click.option(
    "--debug",
    is_flag=False,
    flag_value="net,torch",
    default="",
    metavar="[TOPICS]",
    help="Let libraries tell what they do: net, torch or both.",
)
@word("--log-dir", "A file for each rank, in a folder of the job there.", "DIR")
@click.option("--exclusive", is_flag=True, help="Whole nodes.")
@click.option("--requeue", is_flag=True, help="Start again after a node failure.")
@click.option("--sbatch-arg", "extra", multiple=True, metavar="WORD", help="Any other option of sbatch, repeatable.")
@container_options
@click.option("--dry-run", is_flag=True, help="Print the script, and start nothing.")
@click.option("--script", type=click.Path(path_type=Path), default=None, help="Write the script there; start nothing.")
@click.option("--here", is_flag=True, help="Inside an allocation: as steps of it, not as a new job.")
@click.option("--follow", is_flag=True, help="Wait, print what the job writes, and leave with its exit code.")
@click.option("--json", "as_json", is_flag=True, help="With --dry-run: the whole plan as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Show the commands that are started.")
@click.pass_context
def launch(ctx: click.Context, /, **options: Any) -> None:
    """Launch COMMAND in IMAGE, with as many nodes and ranks as asked; write -- before it.

    \b
    argosy launch my.sif --ranks 2 -- python train.py --epochs 20
    argosy launch my.sif --site my-site.toml --nodes 2 --gpus-per-node 8 --time 1:00:00 -- python train.py
    argosy launch my.sif --ranks 2 --dry-run -- python train.py     # the exact script
    """  # noqa: D301
    ctx.exit(_launch(**options))


def _launch(
    *, dry_run: bool, script: Path | None, here: bool, follow: bool, as_json: bool, verbose: bool, **options: Any,
) -> int:  # fmt: skip
    session = open_session(verbose=verbose)
    request = _request(session, **options)
    if dry_run or script is not None:
        plan = plan_here(request, session, dry=dry_run, kept=script is not None)
        if script is not None and not dry_run:
            write_script(plan, script)
            click.echo(f"{script}: start it with '{'sbatch' if plan.scheduler == 'slurm' else 'sh'} {script}'")
        elif as_json:
            print_json(asdict(plan))
        else:
            click.echo(plan.script, nl=False)
        return 0
    launched = launch_story(request, session, here=here)
    if not launched.job:
        return launched.code
    if not follow:
        click.echo(launched.job)
        click.echo(f"job {launched.job} is submitted; watch it with: argosy logs -f {launched.job}", err=True)
        return 0
    return _follow(session, launched.job, request)


def _follow(session: Session, job: str, request: LaunchRequest) -> int:
    from argosy.cli.cmd_jobs import follow_to_end  # noqa: PLC0415 - only where it is asked for

    return follow_to_end(session, job, every=find_site(request.site, session.host).slurm.polling_seconds)


def _request(
    session: Session, *, image: str, command: tuple[str, ...], site: str, launcher: str, torchrun_args: tuple[str, ...],
    mpi: str, mode: str, name: str, after: str, restarts: int, checkpoint: str, debug: str, log_dir: str,
    extra: tuple[str, ...], **rest: Any,
) -> LaunchRequest:  # fmt: skip
    wanted = Wanted(**{key: rest.pop(key) or 0 for key in SHAPE})
    job = {key: rest.pop(key) for key in JOB if key != "dependency"}
    for key in ("output", "error", "chdir"):
        job[key] = job[key] and str(Path(session.host.cwd, job[key]))
    return LaunchRequest(
        image=image,
        command=command,
        site=site,
        wanted=wanted,
        launcher=launcher,
        launcher_arguments=torchrun_args,
        mpi=mpi,
        mode=mode,
        name=name,
        options=JobOptions(**job, dependency=f"afterok:{after}" if after else ""),
        extra=extra,
        restarts=restarts,
        debug=tuple(filter(None, debug.split(","))),
        logs=log_dir and str(Path(session.host.cwd, log_dir)),
        checkpoint=checkpoint and str(Path(session.host.cwd, checkpoint)),
        container=container_request(**rest, environment=dict(session.host.environment)),
    )
