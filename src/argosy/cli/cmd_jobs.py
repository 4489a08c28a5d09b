"""`argosy jobs`, `logs`, `cancel`, `attach` and `queues`: the user's jobs, and the partitions for new ones."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import click

from argosy.cli.common import WholeLines, open_session
from argosy.cli.options import json_option
from argosy.cli.output import (
    difference_table,
    fit_table,
    has_screen,
    output_width,
    print_changes,
    print_json,
    print_report,
    render_differences,
    table_lines,
    wrap_text,
)
from argosy.cli.parameters import COMMAND, JOB
from argosy.core.errors import USER_PROGRAM_FAILURE, Interrupted, ToolMissing, UsageError
from argosy.core.records import asdict, replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.core.ssh import parse_remote
from argosy.jobs import history
from argosy.jobs.local_run import find_run, refuse_unrecorded_output
from argosy.jobs.logs import follow_job, read_output
from argosy.jobs.names import resolve_name
from argosy.jobs.query import DEFAULT_SECONDS, JobFacts, is_output_elsewhere
from argosy.jobs.record import read_plan_table, sort_runs
from argosy.jobs.requeue import describe_requeue
from argosy.jobs.scheduler import advise_without_accounting, list_jobs, watch_list
from argosy.slurm.queries import JobRow, is_job_id, known_value
from argosy.slurm.states import ENDED, WAITING, advise_waiting, describe_state

MOST_RANKS = 32
"""Ranks that the text report shows; --json has all."""

ssh_option = click.option("--ssh", default="", metavar="HOST", help="Query Slurm on HOST by ssh.")


class JobGroup(WholeLines):
    """A group whose error for a job number names the command that shows a job."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command."""
        if args and args[0][:1].isdigit() and args[0] not in self.commands:
            raise UsageError(f"{args[0]!r} is not a command", hint=f"use: argosy jobs show {args[0]}")
        return super().resolve_command(ctx, args)


def _session_at(host: str) -> Session:
    """Open a session for this machine, or for one that ssh reaches."""
    session = open_session(quiet=True)
    if not host:
        return session
    from argosy.launch.submit_ssh import probe_remote

    remote = probe_remote(session, parse_remote(host))
    return replace(session, host=remote.host, runner=remote.runner)


@click.group(cls=JobGroup, invoke_without_command=True)
@ssh_option
@click.option("--past", type=click.IntRange(1), metavar="N", help="List the last N launches and how they ended.")
@click.option("--watch", is_flag=True, help="Refresh the list at the site's polling interval, until no job is left.")
@json_option
@click.pass_context
def jobs(ctx: click.Context, /, ssh: str, *, past: int | None, watch: bool, as_json: bool) -> None:
    """List your jobs: state, the reason for waiting, and the expected start."""
    if ctx.invoked_subcommand:
        return
    if past:
        _list_past(past, as_json=as_json)
        return
    session = _session_at(ssh)
    if watch:
        _watch_jobs(session)
        return
    try:
        rows = list_jobs(session)
    except ToolMissing as error:
        error.hint += "; what was launched from here: argosy jobs --past 10"
        raise
    print_report(rows, "\n".join(_job_lines(rows, output_width())), as_json=as_json)
    if not (rows or ssh or as_json):
        click.echo("those that have ended: argosy jobs --past 10", err=True)


def _watch_jobs(session: Session) -> None:
    """Show the list until there are no jobs: live on a terminal, else again whenever it changes."""
    from argosy.sites.load import sites_here  # it reads all profiles

    every = max((site.slurm.polling_seconds for site in sites_here(session.host)), default=DEFAULT_SECONDS)
    lists = watch_list(session)
    if has_screen():
        from argosy.cli.terminal import show_live, text_lines  # it imports rich

        lines: list[str] = []

        def refresh() -> bool:
            rows, problem = next(lists)
            lines[:] = [*_job_lines(rows, output_width()), problem]
            return bool(rows or problem)

        show_live(lambda _: text_lines([*lines, f"every {every:g} s · q leaves"]), refresh, every)
        click.echo("\n".join(filter(None, lines)))
        return
    print_changes(_watched_lines(lists, every))


def _watched_lines(lists: Iterator[tuple[tuple[JobRow, ...], str]], every: float) -> Iterator[list[str]]:
    """Yield the lines of each list at an interval, until there are no jobs; without the times, which always change."""
    for rows, problem in lists:
        yield [*_job_lines([replace(row, elapsed="") for row in rows], output_width()), problem]
        if not rows and not problem:
            return
        time.sleep(every)


def _job_lines(rows: Sequence[JobRow], width: int) -> list[str]:
    """Render the user's jobs: a row for each, and below it the nodes, or why it waits."""
    cells = [
        (row.id, row.name, row.partition, _count_nodes(row), row.elapsed, describe_state(row.state)[1]) for row in rows
    ]
    shown = zip(rows, table_lines(cells, width), strict=True)
    found = [line for row, lines in shown for line in (*lines, *_job_details(row, width))]
    return found or ["you have no waiting or running jobs"]


def _count_nodes(row: JobRow) -> str:
    return "1 node" if row.nodes == "1" else f"{row.nodes} nodes"


def _job_details(row: JobRow, width: int) -> Iterator[str]:
    kind, _ = describe_state(row.state)
    known = (known_value(row.reason), f"expected start {row.start}" if known_value(row.start) else "")
    where = row.node_list or ", ".join(filter(None, known))
    advice = advise_waiting(row.reason, row.id) if kind == WAITING else ""
    details = [where] if where and kind != ENDED else []
    for text in (*details, *([f"-> {advice}"] if advice else [])):
        yield from (" " * 11 + line for line in wrap_text(text, width - 11))


def _list_past(most: int, *, as_json: bool) -> None:
    rows = history.past_jobs(open_session(quiet=True), most=most)
    table = fit_table([(row.id or "?", row.name, row.site, row.submitted, row.end) for row in rows])
    report = [{**asdict(row), "end": row.end} for row in rows]
    print_report(report, table or "nothing was launched from this machine", as_json=as_json)


@jobs.command("diff")
@click.argument("first", type=JOB)
@click.argument("second", type=JOB)
@json_option
def diff_jobs(first: str, second: str, *, as_json: bool) -> None:
    """Compare image, settings, options, versions and ends of two jobs."""
    session = open_session(quiet=True)
    one, other = (history.read_job(session, resolve_name(session, job)) for job in (first, second))
    rows = history.diff_jobs(one, other)
    if as_json:
        first_end, second_end = ({"job": job.id, "end": job.end} for job in (one, other))
        print_json({"first": first_end, "second": second_end, "differences": difference_table(rows)})
        return
    for job in (one, other):
        click.echo(f"job {job.id}: {job.end}")
    click.echo(render_differences(rows) or "both jobs have the same image, settings and options")
    keys = {key for key, _, _ in rows}
    if {"digest", "image"} <= keys:
        click.echo(f"packages: argosy images diff {one.plan.image} {other.plan.image}")
    elif "digest" in keys:
        click.echo(f"{one.plan.image} was rebuilt between the two jobs")


@jobs.command("show")
@click.argument("job", type=JOB, default="last")
@json_option
def show_job(job: str, *, as_json: bool) -> None:
    """Show JOB: state, nodes, exit code, output file, and the record of its plan.

    JOB is the number of a job, its name (the newest job with this name), or 'last' for your last launch (the
    default).
    """
    session = open_session(quiet=True)
    facts = find_run(session, job)
    if as_json:
        print_json({**asdict(facts), "plan": read_plan_table(facts.record)})
        return
    for label, text in (*_shown_facts(facts), ("requeued", describe_requeue(session, facts))):
        if known_value(text):
            click.echo(f"{label:<14} {text}")
    is_array = len({run.job for run in facts.runs}) > 1
    for run in sort_runs(facts.runs):
        times = " to ".join(
            time.strftime("%F %T", time.localtime(at)) if at else "?" for at in (run.started, run.ended)
        )
        label = f"job {run.name}" if is_array else f"run {run.restart}"
        click.echo(f"{label:<14} {run.nodes}, {times}, code {run.code}")
    for rank in facts.ranks[:MOST_RANKS]:
        click.echo(f"rank {rank.rank:<9} {rank.host}, cores {rank.cores or '?'}, {count(rank.gpus, 'GPU')}")
    for line in facts.last_lines:
        click.echo(f"  | {line}")
    if facts.kind == ENDED:
        click.echo(facts.verdict)


def _shown_facts(facts: JobFacts) -> Iterator[tuple[str, str]]:
    """Yield label and text of each fact about a job that `argosy jobs show` prints; the text may be empty."""
    yield ("run" if facts.is_local else "job"), facts.id
    yield "state", f"{facts.state} ({facts.meaning})"
    yield "reason", facts.reason
    yield "hint", facts.advice
    yield "code", str(facts.code) if facts.kind == ENDED and facts.code is not None else ""
    yield "failed tasks", facts.failed_ranges
    yield "nodes", facts.nodes
    yield "partition", facts.partition
    yield "account", facts.account
    yield "time limit", facts.time_limit
    yield "submitted", facts.submitted
    yield "expected start", facts.start
    yield "started", facts.began
    yield "ended", facts.ended
    yield "restarts", str(facts.restarts or "")
    yield "output", ", ".join(facts.outputs) or facts.output
    yield "record", facts.record


@click.command()
@click.argument("job", type=JOB, default="last")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job ends, including requeues.")
@click.option("--every", type=float, metavar="SECONDS", help="Interval between Slurm queries. Default: the site's.")
@click.option(
    "--rank", type=click.IntRange(0), metavar="R", help="Print one rank only, of a job with --label or --log-dir."
)
@click.pass_context
def logs(ctx: click.Context, /, job: str, *, follow: bool, every: float | None, rank: int | None) -> None:
    """Print the output of JOB; of a job array, the output of each task.

    JOB is the number of a job, its name (the newest job with this name), or 'last' for your last launch (the
    default).
    """
    session = open_session()
    known = resolve_name(session, job)
    if follow and is_job_id(known):
        ctx.exit(follow_to_end(session, known, every=every, rank=rank))
    facts = find_run(session, known)
    refuse_unrecorded_output(facts)
    for block in read_output(facts, rank=rank):
        click.echo(block, nl=False)
    if facts.kind == ENDED and facts.code != 0:
        _report_end(session, facts)


def follow_to_end(session: Session, job: str, *, every: float | None, rank: int | None = None) -> int:
    """Follow a job to its end and return its exit code; ^C stops following, but not the job.

    If the exit code is unknown, `USER_PROGRAM_FAILURE` is returned.
    """
    try:
        facts = follow_job(session, job, pause=every, rank=rank)
    except Interrupted as stopped:
        click.echo(f"job {job} continues; follow it again with: argosy logs -f {job}", err=True)
        return 128 + stopped.signal_number
    _report_end(session, facts)
    return USER_PROGRAM_FAILURE if facts.code is None else facts.code


def _report_end(session: Session, facts: JobFacts) -> None:
    """Print how a job ended, and known reasons if it failed."""
    if is_output_elsewhere(facts):
        click.echo(f"its output {facts.output} is not on this machine: launch from a shared folder", err=True)
    elif facts.code != 0:
        from argosy.diagnostics.why.explain import explain_job_end

        why = explain_job_end(session, facts)
        click.echo(why, err=True, nl=bool(why))
        if instead := advise_without_accounting(session, why, facts.id, facts.record):
            click.echo(f"  -> {instead}", err=True)
    click.echo(facts.verdict, err=True)


@click.command()
@click.argument("jobs", nargs=-1, required=True, type=JOB)
def cancel(jobs: tuple[str, ...]) -> None:
    """Cancel JOBS, and print what was cancelled.

    A job is a number, a name, or 'last' for your last launch. The number of an array, for example 59, means all
    its tasks; 59_2 is one task, and '59_[3-5]' are several. If several of your waiting and running jobs have a name,
    nothing is cancelled, and their numbers are listed.
    """
    from argosy.jobs.cancel import cancel_jobs

    for line in cancel_jobs(open_session(), jobs):
        click.echo(line)


@click.command()
@click.argument("job", type=JOB)
@click.argument("command", nargs=-1, type=COMMAND)
@click.option("--node", default="", metavar="NODE", help="Node of the job. Default: the first.")
@click.pass_context
def attach(ctx: click.Context, /, job: str, command: tuple[str, ...], *, node: str) -> None:
    """Open a shell, or run COMMAND after --, in the container of a running JOB or a detached session.

    JOB is its number or name, or 'last' for your last launch.
    """
    from argosy.launch import interactive

    ctx.exit(interactive.attach(open_session(), job, command, node=node))


@click.command()
@ssh_option
@json_option
def queues(ssh: str, *, as_json: bool) -> None:
    """List partitions with limits and free nodes, and your accounts and QOS."""
    from argosy.jobs.queues import list_accounts, list_qos, list_queues, render_accounts, with_partition_qos

    session = _session_at(ssh)
    found, accounts = with_partition_qos(session, list_queues(session)), list_accounts(session)
    limits = list_qos(session, accounts, found)
    report = {"queues": found, "accounts": accounts, "qos": limits}
    rows = [
        (
            queue.name,
            f"{queue.free} of {queue.nodes} nodes free" if queue.up else "closed",
            f"up to {queue.limit}",
            f"{queue.sizes} nodes per job, {queue.cpus} CPUs, {queue.memory} MB {queue.gres}".rstrip(),
        )
        for queue in found
    ]
    lines = [fit_table(rows)]
    lines += render_accounts(accounts)
    for qos in limits:
        partitions = dict.fromkeys(queue.name for queue in found if queue.qos == qos.name)
        lines.append(f"QOS {qos.name}{' of partition ' * bool(partitions)}{', '.join(partitions)}: {qos.limits}")
    print_report(report, "\n".join(filter(None, lines)), as_json=as_json)
