"""List the next steps of a report in their order, each with its command."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.core.findings import Finding, has_failed
from argosy.core.redact import redact
from argosy.core.shell import join, quote
from argosy.diagnostics.report.advice import changes_only_arguments, describe_changes, fill_names, find_failed_check
from argosy.diagnostics.report.compare import NODES
from argosy.diagnostics.report.model import Comparison, Step
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.jobs.record import read_submitted
from argosy.slurm.text import ENDED


def list_steps(
    facts: JobFacts, plan: LaunchPlan | None, findings: Sequence[Finding], compared: Comparison
) -> Iterator[Step]:
    """Yield the next steps after a job that failed, or whose checks failed; nothing for other jobs and local runs."""
    if plan is None or not plan.is_job or not facts.record or facts.kind != ENDED:
        return
    if facts.code:
        yield from _steps_of_failure(facts, plan, compared)
    elif has_failed(findings):
        yield from _steps_of_check(facts, plan, findings, compared)


def _script_command(facts: JobFacts) -> str:
    """Return the command line that submits the script of a job again."""
    return f"sbatch {quote(str(Path(facts.record) / 'job.sh'))}"


def _steps_of_failure(facts: JobFacts, plan: LaunchPlan, compared: Comparison) -> Iterator[Step]:
    """Yield a step for each explanation: the program is wrong, or a change since the last run that passed is."""
    program = f" ({redact(join(plan.command))})" if plan.command else ""
    keeps = f"sbatch keeps the arguments{program}. A program outside the image runs as it is on disk then."
    again = Step(
        f"If the program or its input is wrong: correct it, and launch the same job script. {keeps}",
        _script_command(facts),
    )
    if compared.changes:
        changes = describe_changes(compared)
        if changes_only_arguments(compared):
            known = f"The arguments are the only recorded difference from job {compared.job}, the last run that passed"
        else:
            known = f"Recorded differences from job {compared.job}, the last run that passed"
        yield Step(f"{known}: {changes}. If they are the cause, repeat job {compared.job}.", compared.repeat)
    yield again


def _steps_of_check(
    facts: JobFacts, plan: LaunchPlan, findings: Sequence[Finding], compared: Comparison
) -> Iterator[Step]:
    """Yield the steps that separate a fault of the nodes or the image from a change since the last run that passed."""
    site = read_submitted(Path(facts.record)).get("profile") or plan.site
    check = f"argosy check {quote(plan.image)} --site {quote(site)}"
    failed = find_failed_check(findings)
    hint = f" Then {fill_names(failed.hint, facts)}." if failed else ""
    if not compared.changes:
        yield Step("Launch the same script again to find out if the fault is permanent.", _script_command(facts))
        yield Step(f"If its checks fail, too, check the image.{hint}", check)
        return
    yield Step(f"Repeat job {compared.job}, which passed{_describe_network(compared)}.", compared.repeat)
    yield Step(
        f"If its checks fail, too, the cause may be the nodes, the image or a changed program. Check the image.{hint}",
        check,
    )
    if changes_only_arguments(compared):
        find = "Find what the program does with its new arguments, for example which NCCL_ variables it sets."
    else:
        find = "Add the changes one at a time to find the one that is the cause."
    yield Step(f"If its checks pass, the difference is the cause. {find}")


def _describe_network(compared: Comparison) -> str:
    """Say which network the last run that passed used, if its logs show it."""
    nodes = " on the same nodes" if NODES in compared.same else ""
    return f" and used {compared.network}{nodes}" if compared.network else ""
