"""`argosy verify`: what a run proved."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session, print_json
from argosy.core.errors import CheckFailed
from argosy.core.records import asdict
from argosy.slurm.text import is_job_id


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="JOB|LOG...")
@click.option("--site", type=SITE, default="", metavar="NAME", help="The site's profile.  [default: the job's own]")
@click.option("--nodes", type=int, default=0, metavar="N", help="Nodes of the run, where logs do not tell.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def verify(ctx: click.Context, /, runs: tuple[str, ...], site: str, nodes: int, *, as_json: bool) -> None:
    """Tell what a run proved: the network it used, the GPUs its ranks saw, the cores they were bound to.

    Give the number of a job, or logs that were written under NCCL_DEBUG=INFO (oneCCL: CCL_LOG_LEVEL=info).  The exit
    code is 7 where the fast network was not used, something else is not as planned, or nothing is told.
    """
    from argosy.diagnostics.verify.verify import verify_job, verify_logs  # noqa: PLC0415 - only where it is asked for

    session = open_session(quiet=True)
    is_job = len(runs) == 1 and is_job_id(runs[0])
    evidence, verdict = (
        verify_job(session, runs[0], site) if is_job else verify_logs(session, runs, site=site, nodes=nodes)
    )
    if as_json:
        print_json({"good": verdict.good, "line": verdict.line, **asdict(verdict), "evidence": asdict(evidence)})
    else:
        for check in verdict.checks:
            click.echo(f"{check.name:<10} {check.state:<10} {check.said}")
            if check.hint:
                click.echo(f"{'':<21} -> {check.hint}")
        if not verdict.checks:
            hint = "NCCL and RCCL tell where NCCL_DEBUG=INFO is set: argosy launch --debug=net …"
            raise CheckFailed("nothing in it tells of a network, GPUs or cores", evidence=" ".join(runs), hint=hint)
        for name in evidence.net.complaints:
            click.echo(f"{'':<21} {name}")
    ctx.exit(0 if verdict.good and verdict.checks else CheckFailed.code)
