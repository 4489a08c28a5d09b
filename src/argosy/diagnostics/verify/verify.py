"""Verify a run: find and read its logs and records, and compare them with its plan, its site and an earlier run.

The earlier run is the last one of the same site, shape and program that passed its checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from argosy.bench.collectives_output import Measured
from argosy.core.errors import CheckFailed, SiteError, UsageError
from argosy.core.findings import Finding, State
from argosy.core.model import Choice, ChoiceKey
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.verify.logs import DeviceTest, NetFacts, parse_netlog, parse_node_tests
from argosy.diagnostics.verify.rules import Expected, PassedRun, Verdict, check_node_tests, check_run
from argosy.diagnostics.why.explain import describe_first_rank
from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures
from argosy.jobs.history import LATEST, PastJob, past_jobs
from argosy.jobs.launch_plan import NO_PLAN, LaunchPlan
from argosy.jobs.local_run import find_run
from argosy.jobs.names import names_run
from argosy.jobs.outputs import can_read, read_ends_of
from argosy.jobs.query import JobFacts, find_job, read_past_facts
from argosy.jobs.record import PLAN, RankFacts, read_plan, read_submission, recording_command
from argosy.jobs.remote_record import session_of
from argosy.launch.model import LaunchRequest
from argosy.launch.variables import JOB, RESTART
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.slurm.calls import list_hosts
from argosy.slurm.states import ENDED

MOST_LOGS = 256
"""Maximum number of rank logs that are read. The logs of more ranks repeat the same lines."""

MOST_CHECKED = 16
"""Comparable jobs whose logs are read."""

PROGRAM_WORDS = 2
"""First words of a command that name its program, for example ``python train.py``."""


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
    if all(each.state is State.UNKNOWN for each in verdict.findings):
        expected = evidence.expected
        may_log = not expected.had_debug_net and (expected.gpus or not expected.ranks)
        raise CheckFailed(
            "cannot verify the run: its logs contain no line about the network, GPUs or cores",
            evidence=" ".join(runs),
            hint="run it with --debug net, which sets NCCL_DEBUG=INFO" if may_log else "see the output of the program",
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
    evidence = _read_evidence(facts)
    if facts.is_local and evidence.expected.nodes and not evidence.expected.gpus:
        raise UsageError(
            f"{facts.subject} has nothing to verify: it used neither GPUs nor other nodes",
            evidence=f"it {facts.meaning}",
            hint=f"see its exit code, times and files: argosy jobs show {facts.id}",
        )
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


def find_bad_nodes_of(session: Session, job: str) -> tuple[str, ...]:
    """Return the bad nodes that a job of `argosy bench nodes` found."""
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
        If the text after ``@`` is not a job number, or the job is unknown, still runs, or was not started by `argosy
        bench nodes`.
    """
    names, choices = [], []
    for name in request.options.exclude.split(","):
        job = name.strip().removeprefix("@")
        if job == name.strip():
            names.append(name)
            continue
        if not (job.isascii() and job.isdigit()):
            raise UsageError(
                f"invalid --exclude {name}: {job!r} is not a job number",
                hint="give the number of the job, for example --exclude @12345; see 'argosy jobs --past 10'",
            )
        nodes = find_bad_nodes_of(session, job)
        names += nodes
        excluded = ",".join(nodes) or "no node"
        choices.append(Choice(ChoiceKey.EXCLUDED_NODES, excluded, f"bad nodes of job {job}", "option"))
    options = replace(request.options, exclude=",".join(names))
    return replace(request, options=options, choices=(*request.choices, *choices))


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
        return _profile(session, read_submission(facts.record).profile)
    except SiteError as error:
        session.reporter.note(f"{error.what}; the run is checked without a profile")
        return _profile(session, "")


def _profile(session: Session, name: str) -> Site:
    return load_site(name, session.host) if name else Site(name="any-site")


def _hosts_of(session: Session, facts: JobFacts) -> tuple[str, ...]:
    nodes = facts.runs[-1].nodes if facts.runs else facts.nodes
    session = session_of(session, Path(facts.record)) if facts.record else session
    return list_hosts(session, nodes) if nodes else ()


class Evidence(msgspec.Struct, frozen=True):
    """The logs and records of a run."""

    net: NetFacts
    ranks: tuple[RankFacts, ...]
    expected: Expected
    files: tuple[str, ...]
    """The files that were read."""
    node_tests: tuple[DeviceTest, ...] | None = None
    """Results of each device, for a job of `argosy bench nodes`; None for other jobs."""


def _read_evidence(facts: JobFacts) -> Evidence:
    """Read the output of a job, the logs of NCCL or RCCL, and the records of its ranks."""
    plan = read_plan(facts.record)
    files = [*find_network_logs(facts, plan), *([facts.output] if can_read(facts.output) else [])]
    text = "\n".join(map(read_ends_of, files))
    is_node_test = any(choice.key == ChoiceKey.NODE_TEST for choice in plan.choices)
    node_tests = parse_node_tests(text) if is_node_test else None
    return Evidence(parse_netlog(text), facts.ranks, expect(plan, facts.ranks), tuple(files), node_tests)


def find_network_logs(facts: JobFacts, plan: LaunchPlan) -> list[str]:
    """Find the logs of NCCL or RCCL that the ranks of the last run wrote into the record, and those of ``--debug net``.

    The record knows the number of the last run after Slurm has forgotten the job.
    """
    restart = facts.runs[-1].restart if facts.runs else facts.restarts
    own = sorted(Path(facts.record).glob(f"nccl-{restart}-*.log")) if facts.record else []
    return [str(path) for path in (*own, *_asked_logs(facts, plan, restart)) if path.is_file()][:MOST_LOGS]


def _asked_logs(facts: JobFacts, plan: LaunchPlan, restart: int) -> list[Path]:
    """Return the logs of ``--debug net`` that are not older than the record, which is written before the start.

    NCCL replaces %h and %p in their names by host and process id.
    """
    asked = (choice.value for choice in plan.choices if choice.key == "NCCL_DEBUG_FILE")
    form = next(filter(None, asked), "")
    if not form:
        return []
    written = Path(facts.record, PLAN).stat().st_mtime
    form = form.replace(RESTART, str(restart)).replace("%h", "*").replace("%p", "*")
    paths = (Path(form.replace(JOB, job)) for job in _numbers(facts))
    logs = (log for path in paths for log in sorted(path.parent.glob(path.name)))
    return [log for log in logs if log.is_file() and log.stat().st_mtime >= written]


def _numbers(facts: JobFacts) -> tuple[str, ...]:
    """Return the numbers of a job in its log files: each task of an array has one of its own, which a run records."""
    return tuple(dict.fromkeys(run.job for run in facts.runs)) or (facts.id if facts.id.isdecimal() else "*",)


def expect(plan: LaunchPlan, ranks: Sequence[RankFacts]) -> Expected:
    """Return what a run should show by its plan.

    A saved script may be submitted with more nodes than planned, so the nodes of the run count.
    """
    shape = plan.shape
    if plan is NO_PLAN:
        return Expected()
    nodes = max(len({each.host for each in ranks}), shape.nodes)
    return Expected(
        nodes=nodes,
        ranks=nodes * shape.ranks_per_node,
        gpus=shape.gpus_per_node,
        own_gpus=_own_gpus(plan),
        cores=plan.cores,
        had_debug_net=any(choice.why.startswith("--debug net") for choice in plan.choices),
    )


DIVIDED_GPUS = ("--gpus-per-task", "--gpu-bind", "--ntasks-per-gpu", "--tres-bind")
"""Options of srun that give each task its own GPUs."""


def _own_gpus(plan: LaunchPlan) -> int:
    """Return how many GPUs each rank should see: those of its node, or its share if srun divides them."""
    options = (choice.value for choice in plan.choices if choice.key == "srun")
    divided = any(option.startswith(DIVIDED_GPUS) for option in options)
    gpus, ranks = plan.shape.gpus_per_node, plan.shape.ranks_per_node
    return max(1, gpus // ranks) if gpus and ranks and divided else gpus


def find_passed(session: Session, record: Path, profile: Site) -> PassedRun | None:
    """Find the last job before that of `record` with the same site, shape and program that passed its checks."""
    jobs = past_jobs(session, most=LATEST)
    own = next((job for job in jobs if Path(job.record) == record), None)
    if own is None:
        return None
    alike = [job for job in jobs[jobs.index(own) + 1 :] if _key(job) == _key(own) and job.run and not job.code]
    operation = _operation(_read_evidence(read_past_facts(session, own.id, record)).net.measured)
    for job in alike[:MOST_CHECKED]:
        evidence = _read_evidence(read_past_facts(session, job.id, Path(job.record)))
        passed = check_run(evidence.net, evidence.ranks, evidence.expected, profile).ok
        if passed and operation in {"", _operation(evidence.net.measured)}:
            return PassedRun(job, evidence.net)
    return None


def _operation(measured: Measured | None) -> str:
    return measured.operation if measured else ""


def _key(job: PastJob) -> tuple[object, ...]:
    """Return what must be equal for two runs to be comparable."""
    return job.site, job.plan.shape, job.plan.command[:PROGRAM_WORDS]
