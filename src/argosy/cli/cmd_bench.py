"""`argosy bench`: collectives and nodes, by the words of `argosy launch` with a measurement as command; and starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from argosy.bench.collectives import OPERATIONS, benchmark_command
from argosy.bench.nodes import as_node_test, node_test_command
from argosy.bench.startup.model import CASES
from argosy.cli import cmd_launch
from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option, quiet_option
from argosy.cli.output import print_json
from argosy.cli.parameters import NAMED, SITE
from argosy.core.errors import UsageError
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import asdict, replace
from argosy.launch.model import LaunchRequest

if TYPE_CHECKING:
    from argosy.bench.variants.compare import Compared

NOT_MEASURED = ("command", "interactive", "smoke", "smoke_first", "resume", "checkpoint", "array", "elastic", "before")
"""Parameters of launch that a measurement has no use for."""
NOT_COMPARED = ("ssh", *NOT_MEASURED[1:])
"""And those that several runs in one job have none for."""
NOT_TRIED = ("ranks", "cpus_per_rank", "launcher", "torchrun_arg", "mpi", "label", "log_dir", "debug")
"""And those that nodes which are tried each alone have none for."""


@click.group(cls=WholeLines)
def bench() -> None:
    """Measure what a job gets: numbers, and what to expect there."""


def _collectives(ctx: click.Context, /, *, operation: str, most: str, **options: Any) -> None:
    options["command"] = benchmark_command(operation, most)
    name = f"bench-{operation}"
    _measure(ctx, options, lambda request: replace(request, name=request.name or name, needs_torch=True))


def _nodes(ctx: click.Context, /, **options: Any) -> None:
    options["command"] = node_test_command()
    _measure(ctx, options, as_node_test)


def _measure(ctx: click.Context, options: dict[str, Any], change: Callable[[LaunchRequest], LaunchRequest]) -> None:
    """Launch a measurement; with --follow it ends with what the run proved."""
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
        from argosy.cli.cmd_diagnose import verify  # noqa: PLC0415 - where there is something to judge

        ctx.invoke(verify, runs=(launched.job,), site="", nodes=0, as_json=False)
    ctx.exit(code)


def _settings(
    ctx: click.Context, /, *, tries: tuple[str, ...], rounds: int, phrase: str, of: str, **options: Any
) -> None:
    """Compare ways to run a program: submit the job, or report one that ran."""
    dry_run, script, in_allocation, follow, as_json, verbose = (
        options.pop(name) for name in ("dry_run", "script", "in_allocation", "follow", "as_json", "verbose")
    )
    from argosy.bench.variants.launch import launch_variants, read_report, report_of  # noqa: PLC0415 - this command alone
    from argosy.bench.variants.plan import parse_variants  # noqa: PLC0415 - this command alone

    session = open_session(verbose=verbose)
    if of:
        _print_variants(*report_of(of, session), as_json=as_json)
        return
    if dry_run or script is not None:
        raise UsageError("several scripts run in turns here", hint="see each with: argosy launch --dry-run --env …")
    wanted = parse_variants(tries, session.host.environment)
    request = replace(cmd_launch.read_request(session, **options), in_allocation=in_allocation)
    launched = launch_variants(request, wanted, session, rounds=rounds, phrase=phrase)
    code = cmd_launch.report_submitted(launched, session, follow=follow) if launched.job else launched.code
    if follow or not launched.job:
        _print_variants(*read_report(Path(launched.record)), as_json=as_json)
    ctx.exit(code)


def _print_variants(rows: Sequence[Compared], what: str, *, as_json: bool) -> None:
    from argosy.bench.variants.compare import render_table  # noqa: PLC0415 - this command alone

    if as_json:
        print_json({"compared": what, "ways": [asdict(row) for row in rows]})
    else:
        click.echo(render_table(rows, what))


QUICK = ((1, 3), (4, 1))


@bench.command("startup")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option("--code", default="pass", show_default=True, metavar="PYTHON", help="What is run, as 'import torch'.")
@click.option("--only", default="", metavar="WAY[,WAY…]", help=f"Ways to start it: {', '.join(CASES)}.  [default: all]")
@click.option("--at-once", default="1,8,64", show_default=True, metavar="N[,N…]", help="Starts at the same moment.")
@click.option(
    "--times", default=30, show_default=True, metavar="N", help="Starts of each way; fewer where many at once."
)
@click.option("--quick", is_flag=True, help="A few starts, one and four at once.")
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.svg", help="Also write a plot.")
@quiet_option
@json_option
def startup(prefix: Path, code: str, only: str, at_once: str, times: int, plot: Path | None, *,
            quick: bool, quiet: bool, as_json: bool) -> None:  # fmt: skip
    """Measure what a start of the python of DIR costs, which 'argosy wrap' made.

    Beside it the program itself, the runtime's plain line, and a wrapper of many small programs; warm and cold, one and
    many at once; and the file-system calls of one start.
    """
    from argosy.bench.startup.measure import measure_startup  # noqa: PLC0415 - this command alone
    from argosy.bench.startup.model import StartupRequest  # noqa: PLC0415 - this command alone
    from argosy.bench.startup.report import render_picture, render_table  # noqa: PLC0415 - likewise

    batches = QUICK if quick else tuple((n, max(3, times // n)) for n in _numbers(at_once))
    request = StartupRequest(prefix.absolute(), code, _ways(only), batches, cold=1 if quick else max(3, times // 6))
    report = measure_startup(request, open_session(quiet=quiet))
    if plot is not None:
        with translate_os_errors(plot.parent):
            plot.write_text(render_picture(report), encoding="utf-8")
    if as_json:
        print_json(asdict(report))
    else:
        click.echo(render_table(report))


@bench.command("history")
@click.option("--site", type=SITE, default="", metavar="NAME", help="Only jobs of this site.")
@json_option
def history(site: str, *, as_json: bool) -> None:
    """List what your last jobs measured of the network, the newest first, each beside the best of its kind.

    Read from what the last 200 jobs left: 'argosy bench collectives', nccl-tests, rccl-tests.  A job of the same site,
    nodes, ranks and operation is of the same kind.
    """
    from argosy.diagnostics.verify.earlier import list_earlier, render_history  # noqa: PLC0415 - this command alone

    rows = list_earlier(open_session(quiet=True), site)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        click.echo(render_history(rows) if rows else "no job that was submitted from here measured a bandwidth")


def _numbers(text: str) -> tuple[int, ...]:
    if not all(part.isdigit() and int(part) for part in text.split(",")):
        raise UsageError(f"{text!r} are no numbers of starts", hint="as in --at-once 1,8,64")
    return tuple(dict.fromkeys(map(int, text.split(","))))


def _ways(text: str) -> tuple[str, ...]:
    ways = tuple(part for part in text.split(",") if part)
    for variant in ways:
        if variant not in CASES:
            raise UsageError(f"there is no way {variant!r} to start it", hint=f"choose among {', '.join(CASES)}")
    return ways


bench.add_command(
    click.Command(
        "collectives",
        params=[
            click.Option(
                ["--op", "operation"], type=click.Choice(OPERATIONS), default=OPERATIONS[0], show_default=True,
                help="What the ranks do together.",
            ),
            click.Option(
                ["--max-size", "most"], default="", metavar="SIZE",
                help="Largest message of a rank, as 4G.  [default: 1G on GPUs, 64M else]",
            ),
            *(option for option in cmd_launch.launch.params if option.name not in NOT_MEASURED),
        ],
        callback=click.pass_context(_collectives),
        help="Measure the network between ranks in IMAGE, which has torch: sizes, times, bandwidths.\n\n"
        "Takes the options of 'argosy launch'.  With --follow it ends with what the run proved, against what was "
        "measured at the site; the exit code is 7 where it is slower.\n\n"
        "\b\nargosy bench collectives my.sif --ranks 2\n"
        "argosy bench collectives my.sif --site my-site --nodes 2 --gpus-per-node 4 --max-size 4G --follow",
    )
)  # fmt: skip


bench.add_command(
    click.Command(
        "nodes",
        params=[option for option in cmd_launch.launch.params if option.name not in (*NOT_MEASURED, *NOT_TRIED)],
        callback=click.pass_context(_nodes),
        help="Try each node alone, and name those to leave out: GPUs that fail, give wrong results, or are slow.\n\n"
        "Takes the options of 'argosy launch'; IMAGE must have torch.  Nodes do not speak to each other, so that a bad "
        "one stops no other.  With --follow it ends with the nodes to leave out; the exit code is 7 where there are "
        "some.  'argosy launch --exclude @JOB' leaves them out.\n\n"
        "\b\nargosy bench nodes my.sif --site my-site --nodes 16 --gpus-per-node 4 --time 10:00 --follow",
    )
)


bench.add_command(
    click.Command(
        "settings",
        params=[
            click.Option(
                ["--try", "tries"], multiple=True, metavar="'NAME=VALUE …'", help="A way to run it; repeatable."
            ),
            click.Option(
                ["--rounds"], type=click.IntRange(min=1), default=6, show_default=True, help="Runs of each way."
            ),
            click.Option(
                ["--metric", "phrase"], default="", metavar="TEXT",
                help="Compare the number that follows TEXT in the output.  [default: the seconds of a run]",
            ),
            click.Option(["--of"], default="", metavar="JOB", help="Report a job that was submitted before."),
            *(option for option in cmd_launch.launch.params if option.name not in NOT_COMPARED),
        ],
        callback=click.pass_context(_settings),
        help="Find out whether a setting makes your own program faster: run COMMAND with and without it, in turns.\n\n"
        "All runs are steps of one job, on the same nodes; --time is for all of them.  Each way is held against the "
        "plan as it is, round by round, with an interval that holds 95 %.\n\n"
        "\b\nargosy bench settings my.sif --site my-site --nodes 2 --gpus-per-node 4 --time 1:00:00 --follow "
        "--try NCCL_PROTO=LL \\\n    --try 'NCCL_ALGO=Ring NCCL_PROTO=Simple' --metric 'training:' -- python train.py",
    )
)  # fmt: skip
