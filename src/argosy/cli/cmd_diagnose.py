"""`argosy doctor`, `check`, `verify`, `report` and `why`: check a machine, an image, a run, or a log."""

from __future__ import annotations

import os
from pathlib import Path

import click

from argosy.cli.common import open_session
from argosy.cli.options import json_option, site_option
from argosy.cli.output import print_findings, print_json, wrap_width
from argosy.cli.parameters import FILE, IMAGE, REPORT_FILE
from argosy.core.errors import CheckFailed
from argosy.core.os_errors import translate_os_errors
from argosy.core.session import Session
from argosy.core.store import editing, write_text
from argosy.recipes.user_config import choose_site, configured_site


@click.command()
@site_option("Site profile. Default: configured, else the profile that fits this machine.")
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, site: str, *, as_json: bool) -> None:
    """Check this machine: programs, kernel, folders, Slurm, GPUs and environment variables.

    Each problem comes with a hint. The exit code is 7 if something that Argosy needs is missing.
    """
    from argosy.diagnostics.doctor.rules import check_this_machine

    name = configured_site(site, os.environ)
    ctx.exit(print_findings(check_this_machine(open_session(quiet=True), name), as_json=as_json))


@click.command()
@click.argument("image", type=IMAGE)
@site_option("Site profile: a name or a .toml file. Default: configured.")
@json_option
@click.pass_context
def check(ctx: click.Context, /, image: str, site: str, *, as_json: bool) -> None:
    """Check whether an image will work at a site, without a GPU and before you submit a job.

    The checks cover architecture, C library, PyTorch's GPU backend, MPI, network plugin, container runtime, layer,
    compression and, if the site requires one, the signature. The exit code is 7 if something cannot work.
    """
    from argosy.diagnostics.check import check_image

    name = choose_site(site, os.environ)
    found = check_image(open_session(), image, name)
    ctx.exit(print_findings(found, as_json=as_json, site=name, image=image))


@click.command()
@click.argument("runs", nargs=-1, metavar="[JOB|LOG...]", type=FILE)
@site_option("Site profile. Default: the site of the job.")
@click.option("--nodes", type=int, default=0, metavar="N", help="Number of nodes, if the logs do not contain it.")
@json_option
@click.pass_context
def verify(ctx: click.Context, /, runs: tuple[str, ...], site: str, nodes: int, *, as_json: bool) -> None:
    """Verify a run: the network it used, the GPUs its ranks saw and the cores they were bound to.

    Give the number or name of a job, 'last' for your last launch (the default), or logs that were written with
    NCCL_DEBUG=INFO (oneCCL: CCL_LOG_LEVEL=info). The exit code is 7 if the run did not use the fast network, if it
    differs from its plan, or if the logs show nothing.
    """
    from argosy.diagnostics.verify.verify import verify_runs
    from argosy.jobs.names import LAST

    evidence, verdict = verify_runs(open_session(quiet=True), runs or (LAST,), site=site, nodes=nodes)
    details = {"line": verdict.line, "bad_nodes": verdict.bad_nodes, "evidence": evidence}
    code = print_findings(verdict.findings, as_json=as_json, **details)
    if not as_json:
        for complaint in evidence.net.complaints:
            click.echo(f"log: {complaint}")
    ctx.exit(code)


@click.command()
@click.argument("logs", nargs=-1, type=FILE)
@json_option
@click.pass_context
def why(ctx: click.Context, /, logs: tuple[str, ...], *, as_json: bool) -> None:
    """Explain why a job failed: find known errors in LOGS, with cause and fix.

    A log is a file, the number or name of a job, 'last' for your last launch (the default), or - for standard input.
    The exit code is 7 if no error is found that ended the program. Add your own errors in
    ~/.config/argosy/signatures.toml.
    """
    from argosy.diagnostics.why.explain import explain_log, render_errors
    from argosy.jobs.names import LAST

    session = open_session(quiet=True)
    logs = logs or (LAST,)
    found = [explain_log(session, log) for log in logs]
    for note in dict.fromkeys(note for each in found for note in each.notes):
        click.echo(note, err=True)
    if as_json:
        print_json(found)
    else:
        for log, each in zip(logs, found, strict=True):
            click.echo(each.end, nl=bool(each.end))
            shown = render_errors(each.errors, each.log, wrap_width())
            click.echo(shown or f"{each.log}: no known error")
            instead = _without_accounting(session, log, shown)
            for hint in filter(None, (each.hint, instead)):
                click.echo(f"  -> {hint}")
    ctx.exit(0 if any(each.failed for each in found) else CheckFailed.code)


def _without_accounting(session: Session, log: str, text: str) -> str:
    """Return what to use instead of sacct, which a text recommends; empty for files, and if sacct works."""
    from argosy.jobs.names import LOCAL_RUN, names_run, resolve_name
    from argosy.jobs.record import find_record
    from argosy.jobs.scheduler import advise_without_accounting

    if log == "-" or "sacct" not in text or not names_run(session, log):
        return ""
    job = resolve_name(session, log)
    is_local = LOCAL_RUN.fullmatch(job)
    return "" if is_local else advise_without_accounting(session, text, job, str(find_record(session, job) or ""))


@click.command()
@click.argument("job", default="last")
@click.option(
    "-o", "--output", type=REPORT_FILE, metavar="FILE",
    help="File to write. Default: job-JOB.html, or job-JOB.tar.gz with --bundle.",
)  # fmt: skip
@click.option("--bundle", is_flag=True, help="Write an archive for a support ticket: report, script, records, output.")
def report(job: str, output: Path | None, *, bundle: bool) -> None:
    """Write a report of JOB as one HTML page that opens from disk: verdict, plan, ranks, bandwidth, failure.

    JOB is the number of a job, its name (the newest job with this name), 'last' for your last launch (the default), or
    the record of a run on this machine.

    \b
    argosy report 1234
    argosy report last
    argosy report 1234 --bundle
    """
    from argosy.diagnostics.report.collect import collect_report
    from argosy.diagnostics.report.page import render_page, write_bundle
    from argosy.diagnostics.why.signatures import read_known_errors

    session = open_session(quiet=True)
    for note in read_known_errors(session.host.environment).notes:
        click.echo(note, err=True)
    collected = collect_report(session, job)
    path = output or Path(f"job-{collected.case.facts.id}.{'tar.gz' if bundle else 'html'}")
    with translate_os_errors(path.parent, "--output"), editing(path, waiting=session.waiting):
        if bundle:
            write_bundle(path, collected)
        else:
            write_text(path, render_page(collected))
    click.echo(collected.summary, err=True)
    click.echo(path)
