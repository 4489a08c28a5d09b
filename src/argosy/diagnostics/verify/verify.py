"""Verify a run: find and read its logs and records, and compare them with its plan and its site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.bench.requests import exclude_bad_nodes
from argosy.core.errors import CheckFailed, SiteError, UsageError
from argosy.core.findings import Finding, State
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.verify.evidence import Evidence, find_passed, read_evidence
from argosy.diagnostics.verify.logs import parse_netlog
from argosy.diagnostics.verify.rules import Expected, Verdict, check_node_tests, check_run
from argosy.diagnostics.why.explain import describe_first_rank
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures
from argosy.jobs.local_run import find_run
from argosy.jobs.names import names_run
from argosy.jobs.outputs import read_ends_of
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import read_submission, recording_command
from argosy.jobs.remote_record import session_of
from argosy.launch.model import LaunchRequest
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.slurm.calls import list_hosts
from argosy.slurm.states import ENDED


def verify_runs(session: Session, runs: Sequence[str], *, site: str, nodes: int) -> tuple[Evidence, Verdict]:
    """Verify one job by its number or name, or the run that wrote these logs (see `verify_job` and `verify_logs`).

    Raises
    ------
    CheckFailed
        If the logs contain nothing that can be checked.
    """
    if len(runs) == 1 and names_run(session, runs[0]):
        evidence, verdict = verify_job(session, runs[0], site)
    else:
        evidence, verdict = verify_logs(session, runs, site=site, nodes=nodes)
    if not verdict.findings:
        raise CheckFailed(
            "cannot verify the run: its logs contain no line about the network, GPUs or cores",
            evidence=" ".join(runs),
            hint="run it with --debug net, which sets NCCL_DEBUG=INFO",
        )
    return evidence, verdict


def verify_job(session: Session, job: str, site: str = "") -> tuple[Evidence, Verdict]:
    """Verify a job.

    Parameters
    ----------
    site
        Profile to compare with; empty for the one that the job was planned with.

    Raises
    ------
    UsageError
        When the job is unknown or has not started.
    """
    return verify_facts(session, find_run(session, job), site)


def verify_facts(session: Session, facts: JobFacts, site: str = "") -> tuple[Evidence, Verdict]:
    """Verify a job whose facts are known; parameters and errors as `verify_job`."""
    evidence = read_evidence(facts)
    if not evidence.ranks and not evidence.files:
        hint = f"see its output: argosy logs {facts.id}" if facts.kind == ENDED else "wait until it starts"
        if facts.is_local:
            hint = f"run it again: {recording_command(Path(facts.record), 'verify')}"
        raise UsageError(f"cannot verify {facts.subject}: it left no logs", evidence=f"it {facts.meaning}", hint=hint)
    if evidence.node_tests is not None:
        expected = replace(evidence.expected, hosts=_hosts_of(session, facts))
        return evidence, _of_job(check_node_tests(evidence.node_tests, evidence.ranks, expected), facts.id)
    profile = _profile(session, site) if site else planned_profile(session, facts)
    has_bandwidth = facts.record and evidence.net.measured
    passed = find_passed(session, Path(facts.record), profile) if has_bandwidth else None
    verdict = check_run(evidence.net, evidence.ranks, evidence.expected, profile, passed)
    return evidence, _of_job(_with_end(facts, verdict), facts.id)


def _of_job(verdict: Verdict, job: str) -> Verdict:
    """Put the number of the job into the commands of the hints."""
    findings = (replace(each, hint=re.sub(r"\bJOB\b", job, each.hint)) for each in verdict.findings)
    return replace(verdict, findings=tuple(findings))


def _with_end(facts: JobFacts, verdict: Verdict) -> Verdict:
    """Add a finding for a job that failed or still runs: the other findings only cover the time until now."""
    if not verdict.findings or (facts.kind == ENDED and facts.code == 0):
        return verdict
    meaning = facts.meaning.partition(":")[0]
    if facts.kind == ENDED:
        code = "" if facts.code is None else f" (code {facts.code})"
        evidence = f"it {meaning}{code}; the lines below cover the time before"
        end = Finding("end", State.UNKNOWN, evidence, f"see its output: argosy logs {facts.id}")
    else:
        end = Finding("end", State.UNKNOWN, f"it {meaning}; the lines below cover the time until now")
    return replace(verdict, findings=(end, *verdict.findings))


def _find_bad_nodes(session: Session, job: str) -> tuple[str, ...]:
    facts = find_job(session, job)
    if facts.kind != ENDED:
        raise UsageError(f"job {job} {facts.meaning}", hint=f"wait for its end: argosy logs -f {job}")
    evidence, verdict = verify_facts(session, facts)
    if evidence.node_tests is None:
        raise UsageError(
            f"job {job} did not test nodes", hint="give the number of a job that 'argosy bench nodes' submitted"
        )
    return verdict.bad_nodes


def exclude_bad_nodes_of(request: LaunchRequest, session: Session) -> LaunchRequest:
    """Replace each ``@JOB`` in ``--exclude`` by the bad nodes that this job of `argosy bench nodes` found.

    Raises
    ------
    UsageError
        If the job is unknown, still runs, or was not started by `argosy bench nodes`.
    """
    return exclude_bad_nodes(request, lambda job: _find_bad_nodes(session, job))


def verify_logs(session: Session, logs: Sequence[str], site: str, nodes: int) -> tuple[Evidence, Verdict]:
    """Verify a run by logs that it wrote with NCCL_DEBUG=INFO.

    Raises
    ------
    UsageError
        When a file cannot be read.
    """
    text = "\n".join(map(read_ends_of, logs))
    evidence = Evidence(parse_netlog(text), (), Expected(nodes=nodes), tuple(logs))
    verdict = check_run(evidence.net, (), evidence.expected, _profile(session, site))
    return evidence, Verdict((*_find_failed_rank(text), *verdict.findings), verdict.bad_nodes)


def _find_failed_rank(text: str) -> Iterator[Finding]:
    """Yield the rank that failed first, if the logs name it."""
    first = describe_first_rank(text, find_errors(text, read_signatures()))
    if first:
        yield Finding("ranks", State.FAIL, first, "find the cause: argosy why LOG")


def planned_profile(session: Session, facts: JobFacts) -> Site:
    """Return the profile that a job was planned with, or an empty one if it does not exist any more."""
    try:
        return _profile(session, read_submission(facts.record).profile_or_site)
    except SiteError as error:
        session.reporter.note(f"{error.what}; the run is checked without a profile")
        return _profile(session, "")


def _profile(session: Session, name: str) -> Site:
    return load_site(name, session.host) if name else Site(name="any-site")


def _hosts_of(session: Session, facts: JobFacts) -> tuple[str, ...]:
    """Return the names of a job's nodes."""
    nodes = facts.runs[-1].nodes if facts.runs else facts.nodes
    session = session_of(session, Path(facts.record)) if facts.record else session
    return list_hosts(session, nodes) if nodes else ()
