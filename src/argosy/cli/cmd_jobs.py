"""`argosy jobs`, `logs`, `cancel`, `attach` and `queues`: the user's jobs, and where they can go."""

from __future__ import annotations

import time

import click

from argosy.cli.common import JobGroup, open_session, print_json
from argosy.core.errors import Interrupted
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.jobs.logs import follow_job, read_output
from argosy.jobs.query import JobFacts, find_job, is_output_elsewhere, list_jobs, read_plan
from argosy.slurm.text import ENDED, WAITING, advise_waiting, judge_state

MOST_RANKS = 32
"""Ranks that are shown to people; --json has all."""


ssh_option = click.option("--ssh", default="", metavar="HOST", help="Ask there.  [default: this machine]")


def _session_at(host: str) -> Session:
    """Open a session that asks here, or there by ssh."""
    session = open_session(quiet=True)
    if not host:
        return session
    from argosy.core.ssh import parse_remote  # noqa: PLC0415 - only for --ssh
    from argosy.launch.submit_ssh import probe_remote  # noqa: PLC0415 - only for --ssh

    there = probe_remote(session, parse_remote(host))
    return replace(session, host=there.host, runner=there.runner)


@click.group(cls=JobGroup, invoke_without_command=True)
@ssh_option
@click.option("--past", type=click.IntRange(1), metavar="N", help="The last N that were submitted, and how they ended.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def jobs(ctx: click.Context, /, ssh: str, *, past: int | None, as_json: bool) -> None:
    """List your jobs: state, why one waits, when it is expected to start."""
    if ctx.invoked_subcommand:
        return
    if past:
        _list_past(past, as_json=as_json)
        return
    rows = list_jobs(_session_at(ssh))
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    for row in rows:
        kind, meaning = judge_state(row.state)
        known = (_said(row.reason), f"expected start {row.start}" if _said(row.start) else "")
        where = row.node_list or ", ".join(filter(None, known))
        click.echo(
            f"{row.id:<10} {row.name:<16} {row.partition:<12} {row.nodes:>4} node(s)  {row.elapsed:>10}  {meaning}"
        )
        if where and kind != ENDED:
            click.echo(f"           {where}")
        advice = advise_waiting(row.reason, row.id) if kind == WAITING else ""
        click.echo(f"           -> {advice}" if advice else "", nl=bool(advice))
    if not rows:
        click.echo("no jobs of yours wait or run")


def _said(text: str) -> str:
    """Give what Slurm says; nothing where it says that it does not know."""
    return "" if text in {"None", "N/A", "(null)"} else text


def _list_past(most: int, *, as_json: bool) -> None:
    from argosy.jobs.history import past_jobs  # noqa: PLC0415 - only where it is asked for

    rows = past_jobs(open_session(quiet=True), most=most)
    if as_json:
        print_json([{**asdict(row), "end": row.end} for row in rows])
        return
    for row in rows:
        click.echo(f"{row.id:<10} {row.name:<16} {row.site:<12} {row.submitted:<20} {row.end}")
    if not rows:
        click.echo("no job was submitted from here")


@jobs.command("diff")
@click.argument("first")
@click.argument("second")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def diff_jobs(first: str, second: str, *, as_json: bool) -> None:
    """Compare what two jobs were submitted with, and how they ended: image, settings, options, versions."""
    from argosy.jobs import history  # noqa: PLC0415 - only where it is asked for

    session = open_session(quiet=True)
    one, other = history.read_job(session, first), history.read_job(session, second)
    rows = history.diff_jobs(one, other)
    if as_json:
        changes = [{"key": key, "first": left, "second": right} for key, left, right in rows]
        print_json(
            {"first": {"job": one.id, "end": one.end}, "second": {"job": other.id, "end": other.end}}
            | {"differences": changes}
        )
        return
    for job in (one, other):
        click.echo(f"job {job.id}: {job.end}")
    for key, left, right in rows:
        click.echo(key)
        for sign, value in (("-", left), ("+", right)):
            click.echo(f"  {sign} {value}" if value else "", nl=bool(value))
    if not rows:
        click.echo("both were submitted with the same image, settings and options")
    keys = {key for key, _, _ in rows}
    if {"digest", "image"} <= keys:
        click.echo(f"packages: argosy images diff {one.plan['image']} {other.plan['image']}")
    elif "digest" in keys:
        click.echo(f"{one.plan['image']} was made anew between the two")


@jobs.command("show")
@click.argument("job")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def show_job(job: str, *, as_json: bool) -> None:
    """Tell what is known of JOB: state, nodes, exit code, output file, the record of its plan."""
    facts = find_job(open_session(quiet=True), job, or_record=True)
    if as_json:
        print_json({**asdict(facts), "plan": read_plan(facts)})
        return
    hidden = {"first", "runs", "ranks", "last_lines", *(() if facts.kind == ENDED else ("code",))}
    for name, value in asdict(facts).items():
        text = ", ".join(value) if name == "outputs" else _said(str(value))
        if text and name not in hidden:
            click.echo(f"{name:<9} {text}")
    for run in facts.runs:
        times = " to ".join(
            time.strftime("%F %T", time.localtime(at)) if at else "?" for at in (run.started, run.ended)
        )
        click.echo(f"run {run.restart:<5} {run.nodes}, {times}, code {run.code}")
    for rank in facts.ranks[:MOST_RANKS]:
        click.echo(f"rank {rank.rank:<4} {rank.host}, cores {rank.cores or '?'}, {rank.gpus} GPU(s)")
    for line in facts.last_lines:
        click.echo(f"  | {line}")
    if facts.kind == ENDED:
        click.echo(facts.verdict)


@click.command()
@click.argument("job")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job ends, requeues included.")
@click.option("--every", type=float, default=5.0, show_default=True, metavar="S", help="Ask the controller so often.")
@click.option(
    "--rank", type=click.IntRange(0), metavar="R", help="One rank alone, of a job with --label or with --log-dir."
)
@click.pass_context
def logs(ctx: click.Context, /, job: str, *, follow: bool, every: float, rank: int | None) -> None:
    """Print what JOB writes, of an array what each of its tasks does."""
    session = open_session()
    if follow:
        ctx.exit(follow_to_end(session, job, every=every, rank=rank))
    facts = find_job(session, job, or_record=True)
    for block in read_output(facts, rank=rank):
        click.echo(block, nl=False)
    if facts.kind == ENDED and facts.code:
        _say_end(session, facts)


def follow_to_end(session: Session, job: str, *, every: float, rank: int | None = None) -> int:
    """Follow a job to its end, say how it ended, and give its code; ^C ends the following alone."""
    try:
        facts = follow_job(session, job, pause=every, rank=rank)
    except Interrupted as stopped:
        click.echo(f"job {job} goes on; come back with: argosy logs -f {job}", err=True)
        return 128 + stopped.signal_number
    _say_end(session, facts)
    return facts.code


def _say_end(session: Session, facts: JobFacts) -> None:
    """Say why a job failed, where that is known, and how it ended."""
    if is_output_elsewhere(facts):
        click.echo(f"its output {facts.output} is not here: start it from a folder that all nodes see", err=True)
    elif facts.code:
        from argosy.diagnostics.why.rules import explain_job_end  # noqa: PLC0415 - only for jobs that failed

        why = explain_job_end(session, facts)
        click.echo(why, err=True, nl=bool(why))
    click.echo(facts.verdict, err=True)


@click.command()
@click.argument("jobs", nargs=-1, required=True)
def cancel(jobs: tuple[str, ...]) -> None:
    """Cancel JOBS, and say what was cancelled."""
    from argosy.jobs.cancel import cancel_jobs  # noqa: PLC0415 - only where it is asked for

    for line in cancel_jobs(open_session(), jobs):
        click.echo(line)


@click.command()
@click.argument("job")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--node", default="", metavar="NODE", help="Which of the job's nodes.  [default: its first]")
@click.pass_context
def attach(ctx: click.Context, /, job: str, command: tuple[str, ...], *, node: str) -> None:
    """Open a shell, or run COMMAND after --, in the container of the running JOB."""
    from argosy.launch.interactive import attach as attach_story  # noqa: PLC0415 - only where it is asked for

    ctx.exit(attach_story(open_session(), job, command, node=node))


@click.command()
@ssh_option
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def queues(ssh: str, *, as_json: bool) -> None:
    """List partitions with limits and free nodes, and the accounts and QOS you may use."""
    from argosy.jobs.queues import list_accounts, list_qos, list_queues  # noqa: PLC0415 - only where it is asked for

    session = _session_at(ssh)
    found, accounts = list_queues(session), list_accounts(session)
    limits = list_qos(session, accounts)
    if as_json:
        print_json(
            {
                "queues": [asdict(queue) for queue in found],
                "accounts": [asdict(account) for account in accounts],
                "qos": [asdict(qos) for qos in limits],
            }
        )
        return
    for queue in found:
        free = f"{queue.free} of {queue.nodes} nodes free" if queue.up else "closed"
        click.echo(
            f"{queue.name:<16} {free:<24} up to {queue.limit:<12} {queue.sizes:>10} nodes a job  "
            f"{queue.cpus} CPUs, {queue.memory} MB {queue.gres}"
        )
    for each in accounts:
        partition = f" on {each.partition}" if each.partition else ""
        click.echo(f"account {each.account}{partition}, QOS {each.qos or 'default'}")
    for qos in limits:
        click.echo(f"QOS {qos.name}: {qos.told}")
