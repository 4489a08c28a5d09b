"""`argosy bench`: measure networks, nodes, settings and start-up times."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from argosy.bench.requests import (
    OPERATIONS,
    as_benchmark,
    as_node_test,
    benchmark_command,
    launch_sweep,
    node_test_command,
    parse_node_counts,
)
from argosy.bench.result import BenchResult, VariantResult
from argosy.bench.startup import CASES, StartupRequest
from argosy.cli import cmd_launch
from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import GroupedCommand, add_options, json_option, option, quiet_option, site_option
from argosy.cli.output import print_report, write_report
from argosy.cli.parameters import FILE, IMAGE, JOB, NAMED, PICTURE_FILE
from argosy.core.errors import UsageError
from argosy.core.parse import parse_int
from argosy.core.plots import draw, refuse_without_matplotlib
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.launch.option_checks import refuse_with_ssh
from argosy.recipes.option_row import SHAPE

NOT_MEASURED = ("command", "interactive", "smoke", "smoke_first", "resume", "checkpoint", "array", "elastic", "before",
                "packages")  # fmt: skip
"""Parameters of launch that make no sense for a measurement."""

NOT_COMPARED = ("ssh", "image", *NOT_MEASURED[1:])
"""Parameters of launch that make no sense for several runs in one job."""

NOT_TESTED = ("ranks", "cpus_per_rank", "launcher", "torchrun_arg", "mpi", "label", "log_dir", "debug")
"""Parameters of launch that make no sense for nodes that are tested one by one."""

QUICK = ((1, 3), (4, 1))
"""Simultaneous starts and repetitions with --quick."""


picture_options: Callable[[Any], Any] = add_options(
    option("--html", type=PICTURE_FILE, metavar="FILE", help="Write plots and table as one HTML page."),
    option(
        "--svg", type=PICTURE_FILE, metavar="FILE",
        help="Write the plot as SVG; further plots get the names FILE-2, FILE-3 …",
    ),
)  # fmt: skip
"""--html and --svg; both need matplotlib."""


@click.group(cls=WholeLines)
def bench() -> None:
    """Measure networks, nodes, settings and start-up times."""


def _refuse_undrawable_pictures(html: Path | None, svg: Path | None, *, follow: bool = True) -> None:
    """Refuse plots that cannot be drawn before anything is measured, also those of a job that is only submitted."""
    if html or svg:
        refuse_without_matplotlib()
    if (html or svg) and not follow:
        name = "--html" if html else "--svg"
        raise UsageError(
            f"{name} needs --follow: there is no result before the end of the job",
            hint=f"add --follow, or run after the job: argosy bench compare JOB {name} {quote(str(html or svg))}",
        )


def _show_results(
    results: Sequence[BenchResult], *, html: Path | None, svg: Path | None, as_json: bool = False
) -> None:
    """Print results as a table or as JSON, and write the files that are requested."""
    from argosy.bench.show import render_table

    _write_pictures(results, html=html, svg=svg)
    print_report(results, render_table(results), as_json=as_json)


def _write_pictures(results: Sequence[BenchResult], *, html: Path | None, svg: Path | None) -> None:
    """Write the page and the plots of results."""
    from argosy.bench.show import plots_of, render_html

    if svg:
        for number, plot in enumerate(plots_of(results), 1):
            _write_picture(svg if number == 1 else svg.with_stem(f"{svg.stem}-{number}"), draw(plot))
    if html:
        _write_picture(html, render_html(results, " ".join(map(quote, ("argosy", *sys.argv[1:])))))


def _write_picture(path: Path, text: str) -> None:
    write_report(path, text)
    click.echo(f"wrote {path}", err=True)


def _read_results(session: Session, *names: str) -> tuple[BenchResult, ...]:
    from argosy.bench.stored import read_results

    return read_results(session, names)


def _launch_command(
    name: str, callback: Callable[..., None], description: str, omitted: Sequence[str], *own: Callable[[Any], Any]
) -> None:
    """Add a command that takes the options of `argosy launch`, except some, and its own."""
    params = [each for each in cmd_launch.launch.params if each.name not in omitted]
    command = GroupedCommand(name, params=[], callback=click.pass_context(callback), help=description)
    add_options(*own)(command)
    command.params += params
    bench.add_command(command)


def _collectives(ctx: click.Context, /, *, operation: str, most: str, nodes: str, **options: Any) -> None:
    options["command"] = benchmark_command(operation, most)
    counts = parse_node_counts(nodes) if nodes else ()
    options["nodes"] = counts[0] if counts else None
    change = partial(as_benchmark, operation=operation)
    if len(counts) > 1:
        _sweep(ctx, counts, options, change)
    _measure(ctx, options, change)


def _nodes(ctx: click.Context, /, **options: Any) -> None:
    options["command"] = node_test_command()
    _measure(ctx, options, as_node_test)


class BenchOptions(msgspec.Struct, frozen=True):
    """How a measurement is carried out: the options that are not part of a launch request."""

    dry_run: bool
    script: Path | None
    in_allocation: bool
    follow: bool
    as_json: bool
    verbose: bool
    html: Path | None
    svg: Path | None
    ssh: str = ""


def _take_mode(options: dict[str, Any]) -> BenchOptions:
    return BenchOptions(**{name: options.pop(name) for name in BenchOptions.__struct_fields__ if name in options})


def _refuse_contradicting(mode: BenchOptions) -> None:
    cmd_launch.refuse_contradicting_modes(dry_run=mode.dry_run, script=mode.script is not None, as_json=mode.as_json)
    _refuse_undrawable_pictures(mode.html, mode.svg, follow=mode.follow)


Change = Callable[[LaunchRequest], LaunchRequest]


def _measure(ctx: click.Context, options: dict[str, Any], change: Change) -> None:
    """Launch a measurement; with --follow, verify the run at the end."""
    mode = _take_mode(options)
    _refuse_contradicting(mode)
    session = open_session(verbose=mode.verbose)
    request = replace(change(cmd_launch.request_of_options(ctx, session, **options)), in_allocation=mode.in_allocation)
    if mode.ssh:
        refuse_with_ssh(mode.ssh, in_allocation=mode.in_allocation, script=mode.script is not None)
    if mode.dry_run or mode.script is not None:
        plan = cmd_launch.prepare_dry_run(request, session, ssh=mode.ssh)
        ctx.exit(cmd_launch.show_plan(plan, mode.script, as_json=mode.as_json))
    if mode.html or mode.svg:
        _refuse_without_job(
            cmd_launch.prepare_dry_run(request, session, ssh=mode.ssh), in_allocation=mode.in_allocation
        )
    launched = cmd_launch.start(request, session, mode.ssh)
    if not launched.job:
        ctx.exit(launched.code)
    code = cmd_launch.report_submitted(launched, session, follow=mode.follow)
    if (mode.html or mode.svg) and (code == 0 or request.independent_ranks):
        _show_results(_read_results(session, launched.job), html=mode.html, svg=mode.svg)
    if mode.follow and (code == 0 or request.independent_ranks):
        _verify(ctx, launched.job)
    ctx.exit(code)


def _refuse_without_job(plan: LaunchPlan, *, in_allocation: bool) -> None:
    """Refuse plots of a run without a job: its output goes to the terminal only."""
    if in_allocation or not plan.is_job:
        raise UsageError(
            "--html and --svg need a job of Slurm, whose output is stored",
            hint="write the output to a file, and draw it: argosy bench compare run.out --svg FILE",
        )


def _verify(ctx: click.Context, job: str) -> None:
    from argosy.cli.cmd_diagnose import verify

    ctx.invoke(verify, runs=(job,), site="", nodes=0, as_json=False)


def _sweep(ctx: click.Context, counts: tuple[int, ...], options: dict[str, Any], change: Change) -> None:
    """Launch a measurement on several numbers of nodes, one job for each; with --follow, show all at the end."""
    mode = _take_mode(options)
    _refuse_contradicting(mode)
    if mode.in_allocation or mode.script is not None:
        option_name = "--in-allocation" if mode.in_allocation else "--script"
        raise UsageError(f"{option_name} needs one number of nodes", hint="repeat the command for each number of nodes")
    if options["ranks"]:
        raise UsageError(
            "--ranks cannot be used with several --nodes", hint="use --ranks-per-node or --gpus-per-node instead"
        )
    session = open_session(verbose=mode.verbose)
    requests = [change(cmd_launch.request_of_options(ctx, session, **{**options, "nodes": count})) for count in counts]

    def preview(request: LaunchRequest) -> LaunchPlan:
        return cmd_launch.prepare_dry_run(request, session, ssh=mode.ssh)

    if mode.dry_run:
        for request in requests:
            cmd_launch.show_plan(preview(request), None, as_json=mode.as_json)
        ctx.exit(0)
    launched = launch_sweep(requests, preview, lambda request: cmd_launch.start(request, session, mode.ssh))
    code = 0
    for each in launched:
        code = max(code, cmd_launch.report_submitted(each, session, follow=mode.follow))
    if mode.follow:
        _show_results(_read_results(session, launched[0].job), html=mode.html, svg=mode.svg)
    else:
        click.echo(f"see all of them at the end with: argosy bench compare {launched[0].job}", err=True)
    ctx.exit(code)


def _settings(
    ctx: click.Context, /, *, tries: tuple[str, ...], rounds: int, phrase: str, of: str, **options: Any
) -> None:
    """Compare settings of a program: submit the job, or report one that was submitted."""
    from argosy.bench import settings

    mode = _take_mode(options)
    _refuse_undrawable_pictures(mode.html, mode.svg, follow=mode.follow or bool(of))
    session = open_session(verbose=mode.verbose)
    if of:
        _print_comparison(*settings.report_of(of, session), as_json=mode.as_json)
        if mode.html or mode.svg:
            _write_pictures(_read_results(session, of), html=mode.html, svg=mode.svg)
        return
    if not options["image"]:
        raise UsageError(
            "no image and no job is given",
            hint="write: argosy bench settings IMAGE --try NAME=VALUE -- COMMAND; or, for its report: --of JOB",
        )
    if mode.dry_run or mode.script is not None:
        raise UsageError(
            "--dry-run and --script cannot show this job, which has several scripts",
            hint="show one with: argosy launch --dry-run --env NAME=VALUE …",
        )
    variants = settings.parse_variants(tries, session.host.environment)
    request = replace(cmd_launch.request_of_options(ctx, session, **options), in_allocation=mode.in_allocation)
    launched = settings.launch_variants(request, variants, session, rounds=rounds, phrase=phrase)
    code = cmd_launch.report_submitted(launched, session, follow=mode.follow) if launched.job else launched.code
    if mode.follow or not launched.job:
        _print_comparison(*settings.read_report(Path(launched.record)), as_json=mode.as_json)
        if mode.html or mode.svg:
            _write_pictures(_read_results(session, launched.job), html=mode.html, svg=mode.svg)
    ctx.exit(code)


def _print_comparison(rows: Sequence[VariantResult], what: str, *, as_json: bool) -> None:
    from argosy.bench.settings import render_comparison

    print_report({"compared": what, "variants": rows}, render_comparison(rows, what), as_json=as_json)


@bench.command("startup")
@click.argument("prefix", metavar="DIR", type=NAMED)
@click.option(
    "--code", default="pass", metavar="PYTHON", help="Code to run, for example 'import torch'. Default: pass."
)
@click.option("--only", default="", metavar="CASE[,CASE…]", help=f"Cases to measure: {', '.join(CASES)}. Default: all.")
@click.option("--at-once", default="1,8,64", metavar="N[,N…]", help="Numbers of simultaneous starts. Default: 1,8,64.")
@click.option(
    "--times", default=30, metavar="N",
    help="Number of starts of each case; fewer for many simultaneous starts. Default: 30.",
)  # fmt: skip
@click.option("--quick", is_flag=True, help="Measure a few starts only, one and four at once.")
@picture_options
@quiet_option
@json_option
def startup(prefix: Path, code: str, only: str, at_once: str, times: int, html: Path | None,
            svg: Path | None, *, quick: bool, quiet: bool, as_json: bool) -> None:  # fmt: skip
    """Measure how long the Python of DIR, a folder of 'argosy wrap', takes to start.

    The report compares the wrapped command with the program without a container and with the runtime's plain command
    line: warm and cold, one start and many at once. It also counts the file-system calls of one start.
    """
    from argosy.bench.startup import measure_startup, render_table

    _refuse_undrawable_pictures(html, svg)
    batches = QUICK if quick else tuple((n, max(3, times // n)) for n in _parse_numbers(at_once))
    request = StartupRequest(prefix.absolute(), code, _parse_cases(only), batches, 1 if quick else max(3, times // 6))
    report = measure_startup(request, open_session(quiet=quiet))
    if html or svg:
        from argosy.bench.stored import startup_result

        _write_pictures((startup_result(report),), html=html, svg=svg)
    print_report(report, render_table(report), as_json=as_json)


@bench.command("history")
@site_option("List only jobs of this site.")
@json_option
def history(site: str, *, as_json: bool) -> None:
    """List the network bandwidths that your last jobs measured, newest first, and the best of comparable jobs.

    The list comes from the output of your last 200 jobs: 'argosy bench collectives', nccl-tests and rccl-tests. Jobs
    are comparable if site, nodes, ranks and operation are the same.
    """
    from argosy.bench.stored import list_earlier, render_history

    rows = list_earlier(open_session(quiet=True), site)
    text = render_history(rows) if rows else "no job that was submitted from this machine measured a bandwidth"
    print_report(rows, text, as_json=as_json)


@bench.command("compare")
@click.argument("results", nargs=-1, required=True, metavar="RESULT...", type=FILE)
@picture_options
@json_option
def compare(results: tuple[str, ...], html: Path | None, svg: Path | None, *, as_json: bool) -> None:
    """Show RESULTS of 'argosy bench' side by side, also from several sites and days.

    A result is a job number, a file that --json wrote, the output of a benchmark such as nccl-tests, or 'earlier': the
    earlier jobs of the same site, shape and operation as the first job. A job of a list of --nodes includes the other
    jobs of that list. Ratios compare with the first result.

    \b
    argosy bench compare 1234
    argosy bench compare 1234 earlier --svg plot.svg
    argosy bench compare 1234 other-site.json --html compare.html
    """
    _refuse_undrawable_pictures(html, svg)
    found = _read_results(open_session(quiet=True), *results)
    _show_results(found, html=html, svg=svg, as_json=as_json)


def _parse_numbers(text: str) -> tuple[int, ...]:
    if not all(map(parse_int, text.split(","))):
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
    "the network is slower than in earlier measurements at the site.\n\n"
    "\b\nargosy bench collectives my.sif --ranks 2\n"
    "argosy bench collectives my.sif --site my-site --nodes 2 --max-size 4G --follow\n"
    "argosy bench collectives my.sif --site my-site --nodes 1,2,4,8 --follow",
    (*NOT_MEASURED, "nodes"),
    picture_options,
    option(
        "-N", "--nodes", "--nnodes", "nodes", default="", metavar="N[,N…]", group=SHAPE, synonyms=("--nnodes",),
        help="Number of nodes. A list, for example 1,2,4,8,16, submits a job for each number and gathers the results.",
    ),
    option(
        "--op", "operation", type=click.Choice(OPERATIONS), default=OPERATIONS[0],
        help=f"Collective operation to measure. Default: {OPERATIONS[0]}.",
    ),
    option(
        "--max-size", "most", default="", metavar="SIZE",
        help="Largest message of a rank, for example 4G. Default: 1G on GPUs, else 64M.",
    ),
)  # fmt: skip
_launch_command(
    "nodes",
    _nodes,
    "Test each node alone, and list the nodes to exclude: their GPUs fail, compute wrong results, or are slow.\n\n"
    "Takes the options of 'argosy launch'; IMAGE must contain PyTorch. Nodes do not communicate, so a bad node "
    "does not stop the others. With --follow, the nodes to exclude are listed at the end, and the exit code is 7 if "
    "there are any. 'argosy launch --exclude @JOB' excludes them.\n\n"
    "\b\nargosy bench nodes my.sif --site my-site --nodes 16 --time 10m --follow",
    (*NOT_MEASURED, *NOT_TESTED),
    picture_options,
)
_launch_command(
    "settings",
    _settings,
    "Compare settings of your own program: run COMMAND alternately with and without them.\n\n"
    "All runs are steps of one job, on the same nodes; --time is the limit for all of them. Each setting is compared "
    "with the unchanged plan, round by round, with a confidence interval of 95 %.\n\n"
    "\b\nargosy bench settings my.sif --site my-site --nodes 2 --time 1h --follow \\\n"
    "    --try NCCL_PROTO=LL --try 'NCCL_ALGO=Ring NCCL_PROTO=Simple' \\\n    --metric 'training:' -- python train.py",
    NOT_COMPARED,
    click.argument("image", type=IMAGE, required=False, default=""),
    picture_options,
    option("--try", "tries", multiple=True, metavar="'NAME=VALUE …'", help="Setting to compare; repeatable."),
    option("--rounds", type=click.IntRange(min=1), default=6, help="Number of runs per setting. Default: 6."),
    option(
        "--metric", "phrase", default="", metavar="TEXT",
        help="Compare the number after TEXT in the output. Default: the duration of a run.",
    ),
    option("--of", type=JOB, default="", metavar="JOB", help="Report on a job that was submitted earlier."),
)  # fmt: skip
