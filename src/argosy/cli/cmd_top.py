"""`argosy top`: what the ranks of a running job do now."""

from __future__ import annotations

import click

from argosy.cli.common import open_session
from argosy.cli.options import json_option
from argosy.cli.output import has_screen, output_width, print_changes, print_json, print_report
from argosy.cli.parameters import JOB
from argosy.core.errors import Interrupted
from argosy.jobs.live.probe import JobView
from argosy.jobs.live.sources import resolve_job
from argosy.jobs.live.watch import HUNG_SECONDS, JobWatch
from argosy.jobs.names import resolve_name
from argosy.slurm.states import ENDED


@click.command()
@click.argument("job", type=JOB, required=False)
@click.option("--once", is_flag=True, help="Measure once, print the result and exit.")
@click.option(
    "--every", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
    help="Interval between measurements; the site's polling interval is the minimum. Default: that interval.",
)  # fmt: skip
@click.option(
    "--hung-after", type=click.FloatRange(0), default=HUNG_SECONDS, metavar="SECONDS",
    help=f"Mark a rank as hung after this time without CPU use and output. Default: {HUNG_SECONDS:g}.",
)  # fmt: skip
@click.option("--stacks", is_flag=True, help="Print the Python stacks of all ranks, grouped, and exit.")
@json_option
@click.pass_context
def top(
    ctx: click.Context, /, job: str | None, *, once: bool, every: float | None, hung_after: float, stacks: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """Show what the ranks of JOB do now: CPU, GPU and memory use, last output; ranks that hang are marked.

    JOB is the number of a job, its name (the newest job with this name), 'last' for your last launch, or the record of
    a run on this machine.  Without JOB, show your only running job.
    """
    session = open_session(quiet=True)
    job = resolve_name(session, job) if job else resolve_job(session)
    if stacks:
        from argosy.jobs.live.stacks import collect_stacks, render_groups

        groups = collect_stacks(session, job)
        print_report(groups, "\n".join(render_groups(groups)), as_json=as_json)
        return
    watch = JobWatch(session, job, hung_after=hung_after)
    if once or as_json:
        view = watch.refresh()
        print_json(view) if as_json else _print_view(view)
        return
    try:
        _watch(watch, max(every or 0.0, watch.every))
    except Interrupted as stopped:
        click.echo(f"job {job} continues; its output: argosy logs -f {job}", err=True)
        ctx.exit(128 + stopped.signal_number)


def _watch(watch: JobWatch, every: float) -> None:
    """Refresh the view until the job ends: live on a terminal, else print it again when it changes."""
    if not has_screen():
        print_changes(map(view_lines, watch.follow(every)))
        return
    from argosy.cli.live_view import draw_job  # these import rich
    from argosy.cli.terminal import show_live

    def refresh() -> bool:
        return watch.refresh().kind != ENDED

    show_live(lambda console: draw_job(watch.view, console, every), refresh, every)
    _print_view(watch.view)


def _print_view(view: JobView) -> None:
    click.echo("\n".join(view_lines(view)))


def view_lines(view: JobView) -> list[str]:
    """Return a view as lines that fit the terminal."""
    from argosy.cli.live_view import plain_lines

    width = output_width()
    return [line if len(line) <= width else f"{line[: width - 1]}…" for line in plain_lines(view)]
