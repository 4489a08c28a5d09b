"""Collect the facts of a report: the job, its record, its output and its image."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path

from argosy.bench.result import BenchResult
from argosy.bench.stored import EARLIER, read_results
from argosy.core.errors import ArgosyError
from argosy.core.findings import State
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.diagnostics.report.model import Change, Moment, RankRow, Report
from argosy.diagnostics.verify.network_log import read_ends_of
from argosy.diagnostics.verify.rules import Verdict
from argosy.diagnostics.verify.verify import verify_facts
from argosy.diagnostics.why.rules import KnownError, explain_log
from argosy.images.open import inspect_squashfs, open_image
from argosy.jobs.history import diff_jobs, kept_plan, past_jobs, read_job
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import can_read
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.slurm.text import ENDED
from argosy.version import VERSION

OUTPUT_LINES, LONGEST_LINE = 200, 400
"""Lines of the output's end on the page, and characters of each."""

LATEST, MOST_PACKAGES, NETWORK_LINES = 200, 500, 12
"""Jobs that are searched for an earlier one, packages of the image, and lines about the network on the page."""

NETWORK = re.compile(
    r"^.*(?:NET/OFI|NET/IB|NET/Socket|Using network|Selected [Pp]rovider|GPU Direct RDMA).*$", re.MULTILINE
)
"""Lines of NCCL and RCCL that name the network."""


def collect_report(session: Session, job: str) -> Report:
    """Collect what is known about a job; parts that cannot be read are empty.

    Raises
    ------
    UsageError
        When neither Slurm nor a record knows the job.
    """
    facts = find_job(session, job, or_record=True)
    plan = _plan(session, job)
    output = read_ends_of(facts.output) if facts.output and can_read(facts.output) else ""
    verdict = _verified(session, facts)
    errors = _errors(session, facts)
    site = _site(session, plan)
    previous, changes = _previous(session, facts, plan)
    return Report(
        facts=facts,
        summary=summarize(facts),
        advice=advise(facts, errors, verdict),
        plan=plan,
        findings=verdict.findings if verdict else (),
        errors=errors,
        timeline=tuple(_timeline(facts)),
        ranks=tuple(_ranks(facts, plan)),
        results=_measured(session, job),
        evidence=_network_lines(facts, output),
        changes=changes,
        previous=previous,
        packages=_packages(session, plan),
        output=_end_of(output),
        commands=tuple(_commands(facts, plan)),
        cores=site.node.cores,
        gpus=plan.shape.gpus_per_node if plan else 0,
        argosy=VERSION,
    )


def summarize(facts: JobFacts) -> str:
    """Say in one sentence what happened to a job."""
    if facts.kind != ENDED:
        return f"Job {facts.id} {facts.meaning}."
    if facts.first:
        return f"Job {facts.id} failed: {facts.first.text}."
    return f"Job {facts.id} {facts.meaning} (code {facts.code})." if facts.code else f"Job {facts.id} {facts.meaning}."


def advise(facts: JobFacts, errors: tuple[KnownError, ...], verdict: Verdict | None) -> str:
    """Say what to do next: the fix of the first known cause, else the hint of the first failed check."""
    causes = [each for each in errors if each.level != "symptom"] or list(errors[:1])
    if facts.code and causes:
        return f"{causes[0].cause}. {causes[0].fix}"
    failed = [each for each in verdict.findings if each.state is State.FAIL] if verdict else []
    hints = [f"{each.what}: {each.evidence}. {each.hint}" for each in failed]
    return facts.advice or (hints[0] if hints else "")


def _plan(session: Session, job: str) -> LaunchPlan | None:
    try:
        return kept_plan(session, job)
    except ArgosyError:
        return None


def _verified(session: Session, facts: JobFacts) -> Verdict | None:
    try:
        return verify_facts(session, facts)[1]
    except ArgosyError:
        return None


def _errors(session: Session, facts: JobFacts) -> tuple[KnownError, ...]:
    """Find the known errors in the output of a job that did not end well."""
    if not facts.output or not can_read(facts.output) or (facts.kind == ENDED and not facts.code):
        return ()
    return explain_log(session, facts.output).errors


def _site(session: Session, plan: LaunchPlan | None) -> Site:
    try:
        return load_site(plan.site, session.host) if plan else Site()
    except ArgosyError:
        return Site()


def _timeline(facts: JobFacts) -> Iterator[Moment]:
    if facts.submitted:
        yield Moment(dt.datetime.fromisoformat(facts.submitted).timestamp(), "submitted")
    for run in facts.runs:
        if run.started:
            yield Moment(run.started, f"run {run.restart + 1} started" if len(facts.runs) > 1 else "started")
        if run.ended:
            yield Moment(run.ended, f"ended on {run.nodes} (code {run.code})")


def _ranks(facts: JobFacts, plan: LaunchPlan | None) -> Iterator[RankRow]:
    planned = plan.cores if plan else ()
    for each in facts.ranks:
        failed = facts.first is not None and facts.first.rank == each.rank
        yield RankRow(
            each.rank,
            each.host,
            each.local,
            each.cores,
            planned[each.local] if each.local < len(planned) else "",
            each.gpus,
            facts.first.text if failed and facts.first else "",
        )


def _measured(session: Session, job: str) -> tuple[BenchResult, ...]:
    """Return what the job measured, followed by the results of earlier jobs that are comparable."""
    for names in ((job, EARLIER), (job,)):
        try:
            return read_results(session, names)
        except ArgosyError:
            continue
    return ()


def _network_lines(facts: JobFacts, output: str) -> tuple[str, ...]:
    """Return the lines about the network in the output, and in the logs of NCCL or RCCL that the ranks wrote."""
    files = sorted(Path(facts.record).glob("nccl-*.log"))[:8] if facts.record else []
    text = "\n".join((output, *(read_ends_of(str(file)) for file in files)))
    lines = dict.fromkeys(redact(line.strip())[:LONGEST_LINE] for line in NETWORK.findall(text))
    return tuple(lines)[:NETWORK_LINES]


def _previous(session: Session, facts: JobFacts, plan: LaunchPlan | None) -> tuple[str, tuple[Change, ...]]:
    """Compare with the job of the same name and site that was submitted before."""
    if plan is None:
        return "", ()
    jobs = past_jobs(session, most=LATEST)
    at = next((index for index, job in enumerate(jobs) if job.record == facts.record), len(jobs))
    before = next((job for job in jobs[at + 1 :] if (job.name, job.site) == (plan.name, plan.site)), None)
    if before is None:
        return "", ()
    rows = diff_jobs(before, read_job(session, facts.id))
    return before.id, tuple(Change(*row) for row in rows)


def _packages(session: Session, plan: LaunchPlan | None) -> tuple[tuple[str, str], ...]:
    """Return the packages in the lock of the image: name and version; nothing if it has no lock or is not here."""
    if plan is None or not Path(plan.image).is_file():
        return ()
    try:
        lock = inspect_squashfs(open_image(Path(plan.image)), session).lock
    except ArgosyError:
        return ()
    return tuple((each.name, each.version) for each in lock.packages)[:MOST_PACKAGES] if lock else ()


def _end_of(output: str) -> str:
    lines = [line[:LONGEST_LINE] for line in output.splitlines()[-OUTPUT_LINES:]]
    return redact("\n".join(lines))


def _commands(facts: JobFacts, plan: LaunchPlan | None) -> Iterator[tuple[str, str]]:
    yield "See the output", f"argosy logs {facts.id}"
    yield "Verify network, GPUs and cores", f"argosy verify {facts.id}"
    if facts.code:
        yield "Explain the failure", f"argosy why {facts.id}"
    if plan and plan.is_job and facts.record:
        yield "Submit the same script again", f"sbatch {quote(str(Path(facts.record) / 'job.sh'))}"
    if plan:
        yield "See why each value was chosen", f"argosy explain {facts.id}"
    if facts.kind != ENDED:
        yield "Cancel the job", f"argosy cancel {facts.id}"
