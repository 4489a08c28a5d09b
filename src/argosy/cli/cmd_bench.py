"""`argosy bench`: the words of `argosy launch` without a command; what runs is a measurement."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from argosy.cli import cmd_launch
from argosy.cli.common import WholeLines, open_session
from argosy.collectives import OPERATIONS, benchmark_command
from argosy.launch.story import launch as launch_story

NOT_MEASURED = ("command", "interactive", "smoke", "smoke_first", "resume", "checkpoint", "array", "elastic", "before")
"""Parameters of launch that a measurement has no use for."""


@click.group(cls=WholeLines)
def bench() -> None:
    """Measure what a job gets: numbers, and what to expect there."""


def _collectives(ctx: click.Context, /, *, operation: str, most: str, **options: Any) -> None:
    options["command"] = benchmark_command(operation, most)
    dry_run, script, here, follow, as_json, verbose = (
        options.pop(name) for name in ("dry_run", "script", "here", "follow", "as_json", "verbose")
    )
    session = open_session(verbose=verbose)
    request = cmd_launch.read_request(session, **options)
    request = replace(request, name=request.name or f"bench-{operation}")
    if dry_run or script is not None:
        kept = script is not None
        ctx.exit(cmd_launch.show_plan(request, session, None if dry_run else script, as_json=as_json, kept=kept))
    launched = launch_story(request, session, here=here)
    if not launched.job:
        ctx.exit(launched.code)
    code = cmd_launch.submitted(launched.job, request, session, follow=follow)
    if follow and code == 0:
        from argosy.cli.cmd_verify import verify  # noqa: PLC0415 - where there is something to judge

        ctx.invoke(verify, runs=(launched.job,), site="", nodes=0, as_json=False)
    ctx.exit(code)


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
