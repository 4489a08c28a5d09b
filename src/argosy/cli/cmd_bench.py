"""`argosy bench`: measure networks, nodes, settings and start-up times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from argosy.bench.collectives import OPERATIONS, benchmark_command
from argosy.bench.nodes import as_node_test, node_test_command
from argosy.bench.startup_cases import CASES, StartupRequest
from argosy.bench.statistics import Comparison
from argosy.cli import cmd_launch
from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import GroupedCommand, add_options, json_option, option, quiet_option
from argosy.cli.output import print_json
from argosy.cli.parameters import JOB, NAMED, SITE
from argosy.core.errors import UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict, replace
from argosy.launch.model import LaunchRequest

NOT_MEASURED = ("command", "interactive", "smoke", "smoke_first", "resume", "checkpoint", "array", "elastic", "before",
                "packages")  # fmt: skip
"""Parameters of launch that make no sense for a measurement."""

NOT_COMPARED = ("ssh", *NOT_MEASURED[1:])
"""Parameters of launch that make no sense for several runs in one job."""

NOT_TESTED = ("ranks", "cpus_per_rank", "launcher", "torchrun_arg", "mpi", "label", "log_dir", "debug")
"""Parameters of launch that make no sense for nodes that are tested one by one."""

QUICK = ((1, 3), (4, 1))
"""Simultaneous starts and repetitions with --quick."""


@click.group(cls=WholeLines)
def bench() -> None:
    """Measure networks, nodes, settings and start-up times."""


def _launch_command(
    name: str, callback: Callable[..., None], description: str, omitted: Sequence[str], *own: Callable[[Any], Any]
) -> None:
    """Add a command that takes the options of `argosy launch`, except some, and its own."""
    params = [each for each in cmd_launch.launch.params if each.name not in omitted]
    command = GroupedCommand(name, params=[], callback=click.pass_context(callback), help=description)
    add_options(*own)(command)
    command.params += params
    bench.add_command(command)


def _collectives(ctx: click.Context, /, *, operation: str, most: str, **options: Any) -> None:
    options["command"] = benchmark_command(operation, most)
    name = f"bench-{operation}"
    _measure(ctx, options, lambda request: replace(request, name=request.name or name, needs_torch=True))


def _nodes(ctx: click.Context, /, **options: Any) -> None:
    options["command"] = node_test_command()
    _measure(ctx, options, as_node_test)


def _measure(ctx: click.Context, options: dict[str, Any], change: Callable[[LaunchRequest], LaunchRequest]) -> None:
    """Launch a measurement; with --follow, verify the run at the end."""
    dry_run, script, in_allocation, follow, as_json, verbose, ssh = (
        options.pop(name) for name in ("dry_run", "script", "in_allocation", "follow", "as_json", "verbose", "ssh")
    )
    session = open_session(verbose=verbose)
    request = replace(change(cmd_launch.read_request(session, **options)), in_allocation=in_allocation)
    if ssh:
        cmd_launch.refuse_with_ssh(ssh, in_allocation=in_allocation, script=script is not None)
    if dry_run or script is not None:
        plan = cmd_launch.plan_dry(request, session, script_only=script is not None, ssh=ssh)
        ctx.exit(cmd_launch.show_plan(plan, None if dry_run else script, as_json=as_json))
    launched = cmd_launch.start(request, session, ssh)
    if not launched.job:
        ctx.exit(launched.code)
    code = cmd_launch.report_submitted(launched, session, follow=follow)
    if follow and (code == 0 or request.apart):
        from argosy.cli.cmd_diagnose import verify  # noqa: PLC0415 - only with --follow

        ctx.invoke(verify, runs=(launched.job,), site="", nodes=0, as_json=False)
    ctx.exit(code)


def _settings(
    ctx: click.Context, /, *, tries: tuple[str, ...], rounds: int, phrase: str, of: str, **options: Any
) -> None:
    """Compare settings of a program: submit the job, or report one that was submitted."""
    from argosy.bench import settings  # noqa: PLC0415 - only this command

    dry_run, script, in_allocation, follow, as_json, verbose = (
        options.pop(name) for name in ("dry_run", "script", "in_allocation", "follow", "as_json", "verbose")
    )
    session = open_session(verbose=verbose)
    if of:
        _print_comparison(*settings.report_of(of, session), as_json=as_json)
        return
    if dry_run or script is not None:
        raise UsageError(
            "--dry-run and --script cannot show the several scripts of this job",
            hint="show one with: argosy launch --dry-run --env NAME=VALUE …",
        )
    variants = settings.parse_variants(tries, session.host.environment)
    request = replace(cmd_launch.read_request(session, **options), in_allocation=in_allocation)
    launched = settings.launch_variants(request, variants, session, rounds=rounds, phrase=phrase)
    code = cmd_launch.report_submitted(launched, session, follow=follow) if launched.job else launched.code
    if follow or not launched.job:
        _print_comparison(*settings.read_report(Path(launched.record)), as_json=as_json)
    ctx.exit(code)


def _print_comparison(rows: Sequence[Comparison], what: str, *, as_json: bool) -> None:
    from argosy.bench.settings import render_comparison  # noqa: PLC0415 - only this command

    if as_json:
        print_json({"compared": what, "ways": [asdict(row) for row in rows]})
    else:
        click.echo(render_comparison(rows, what))


@bench.command("startup")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option(
    "--code", default="pass", show_default=True, metavar="PYTHON", help="Code to run, for example 'import torch'."
)
@click.option(
    "--only", default="", metavar="CASE[,CASE…]", help=f"Cases to measure: {', '.join(CASES)}.  [default: all]"
)
@click.option(
    "--at-once", default="1,8,64", show_default=True, metavar="N[,N…]", help="Numbers of simultaneous starts."
)
@click.option(
    "--times",
    default=30,
    show_default=True,
    metavar="N",
    help="Number of starts of each case; fewer for many simultaneous starts.",
)
@click.option("--quick", is_flag=True, help="Measure a few starts only, one and four at once.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Also write a plot.")
@quiet_option
@json_option
def startup(prefix: Path, code: str, only: str, at_once: str, times: int, plot: Path | None, *,
            quick: bool, quiet: bool, as_json: bool) -> None:  # fmt: skip
    """Measure how long the Python of DIR, a folder of 'argosy wrap', takes to start.

    The report compares the wrapped command with the program without a container and with the runtime's plain command
    line: warm and cold, one start and many at once. It also counts the file-system calls of one start.
    """
    from argosy.bench.startup import measure_startup, render_plot, render_table  # noqa: PLC0415 - only this command

    batches = QUICK if quick else tuple((n, max(3, times // n)) for n in _parse_numbers(at_once))
    request = StartupRequest(prefix.absolute(), code, _parse_cases(only), batches, 1 if quick else max(3, times // 6))
    report = measure_startup(request, open_session(quiet=quiet))
    if plot is not None:
        with translate_os_errors(plot.parent):
            plot.write_text(render_plot(report), encoding="utf-8")
    if as_json:
        print_json(asdict(report))
    else:
        click.echo(render_table(report))


@bench.command("history")
@click.option("--site", type=SITE, default="", metavar="NAME", help="List only jobs of this site.")
@json_option
def history(site: str, *, as_json: bool) -> None:
    """List the network bandwidths that your last jobs measured, newest first, and the best of comparable jobs.

    The list comes from the output of your last 200 jobs: 'argosy bench collectives', nccl-tests and rccl-tests. Jobs
    are comparable if site, nodes, ranks and operation are the same.
    """
    from argosy.diagnostics.verify.earlier import list_earlier, render_history  # noqa: PLC0415 - only this command

    rows = list_earlier(open_session(quiet=True), site)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        click.echo(render_history(rows) if rows else "no job that was submitted from this machine measured a bandwidth")


def _parse_numbers(text: str) -> tuple[int, ...]:
    if not all(part.isdigit() and int(part) for part in text.split(",")):
        raise UsageError(f"invalid --at-once {text!r}", hint="give numbers of starts, for example --at-once 1,8,64")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def _parse_cases(text: str) -> tuple[str, ...]:
    cases = tuple(part for part in text.split(",") if part)
    for name in cases:
        if name not in CASES:
            raise UsageError(f"invalid --only {name!r}", hint=f"choose from: {', '.join(CASES)}")
    return cases


_launch_command(
    "collectives",
    _collectives,
    "Measure the network between ranks in IMAGE, which must contain PyTorch: sizes, times and bandwidths.\n\n"
    "Takes the options of 'argosy launch'. With --follow, it verifies the run at the end, and the exit code is 7 if "
    "the network is slower than measured before at the site.\n\n"
    "\b\nargosy bench collectives my.sif --ranks 2\n"
    "argosy bench collectives my.sif --site my-site --nodes 2 --gpus-per-node 4 --max-size 4G --follow",
    NOT_MEASURED,
    option(
        "--op", "operation", type=click.Choice(OPERATIONS), default=OPERATIONS[0], show_default=True,
        help="Collective operation to measure.",
    ),
    option(
        "--max-size", "most", default="", metavar="SIZE",
        help="Largest message of a rank, for example 4G.  [default: 1G on GPUs, else 64M]",
    ),
)  # fmt: skip
_launch_command(
    "nodes",
    _nodes,
    "Test each node alone, and list the nodes to exclude: GPUs that fail, compute wrong results, or are slow.\n\n"
    "Takes the options of 'argosy launch'; IMAGE must contain PyTorch. Nodes do not communicate, so a bad node "
    "does not stop the others. With --follow, the nodes to exclude are listed at the end, and the exit code is 7 if "
    "there are any. 'argosy launch --exclude @JOB' excludes them.\n\n"
    "\b\nargosy bench nodes my.sif --site my-site --nodes 16 --gpus-per-node 4 --time 10:00 --follow",
    (*NOT_MEASURED, *NOT_TESTED),
)
_launch_command(
    "settings",
    _settings,
    "Compare settings of your own program: run COMMAND alternately with and without them.\n\n"
    "All runs are steps of one job, on the same nodes; --time is the limit for all of them. Each setting is compared "
    "with the unchanged plan, round by round, with a confidence interval of 95 %.\n\n"
    "\b\nargosy bench settings my.sif --site my-site --nodes 2 --gpus-per-node 4 --time 1:00:00 --follow "
    "--try NCCL_PROTO=LL \\\n    --try 'NCCL_ALGO=Ring NCCL_PROTO=Simple' --metric 'training:' -- python train.py",
    NOT_COMPARED,
    option("--try", "tries", multiple=True, metavar="'NAME=VALUE …'", help="Setting to compare; repeatable."),
    option("--rounds", type=click.IntRange(min=1), default=6, show_default=True, help="Number of runs per setting."),
    option(
        "--metric", "phrase", default="", metavar="TEXT",
        help="Compare the number after TEXT in the output.  [default: the duration of a run]",
    ),
    option("--of", type=JOB, default="", metavar="JOB", help="Report on a job that was submitted earlier."),
)  # fmt: skip
