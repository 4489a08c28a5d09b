"""`argosy verify`: what a run proved."""

from __future__ import annotations

import click

from argosy.cli.common import SITE, open_session
from argosy.cli.findings import print_findings
from argosy.core.errors import CheckFailed
from argosy.core.records import asdict
from argosy.slurm.text import is_job_id


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="JOB|LOG...")
@click.option("--site", type=SITE, default="", metavar="NAME", help="The site's profile.  [default: the job's own]")
@click.option("--nodes", type=int, default=0, metavar="N", help="Number of nodes, if the logs do not contain it.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
@click.pass_context
def verify(ctx: click.Context, /, runs: tuple[str, ...], site: str, nodes: int, *, as_json: bool) -> None:
    """Verify a run: the network it used, the GPUs its ranks saw and the cores they were bound to.

    Give a job number, or logs that were written with NCCL_DEBUG=INFO (oneCCL: CCL_LOG_LEVEL=info). The exit code is 7
    if the run did not use the fast network, if it differs from its plan, or if the logs show nothing.
    """
    from argosy.diagnostics.verify.verify import verify_job, verify_logs  # noqa: PLC0415 - only where it is asked for

    session = open_session(quiet=True)
    is_job = len(runs) == 1 and is_job_id(runs[0])
    evidence, verdict = (
        verify_job(session, runs[0], site) if is_job else verify_logs(session, runs, site=site, nodes=nodes)
    )
    if not verdict.findings and not as_json:
        raise CheckFailed(
            "cannot verify the run: its logs contain no line about the network, GPUs or cores",
            evidence=" ".join(runs),
            hint="run it with --debug net, which sets NCCL_DEBUG=INFO",
        )
    details = {"line": verdict.line, "bad_nodes": verdict.bad_nodes, "evidence": asdict(evidence)}
    code = print_findings(verdict.findings, as_json=as_json, **details)
    if not as_json:
        for complaint in evidence.net.complaints:
            click.echo(f"log: {complaint}")
    ctx.exit(code if verdict.findings else CheckFailed.code)
