"""Verify a run: find what it left, read it, judge it against its plan and its site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.bench.nodes import TRIAL
from argosy.core.errors import SiteError, UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.verify.earlier import find_earlier
from argosy.diagnostics.verify.network_log import NetFacts, parse_netlog, read_ends_of
from argosy.diagnostics.verify.nodes import Trial, parse_trials
from argosy.diagnostics.verify.rules import UNKNOWN, Check, Expected, Verdict, judge_run, judge_trial
from argosy.jobs.query import JobFacts, find_job, read_plan, session_of
from argosy.jobs.ranks import RankFacts
from argosy.jobs.record import can_read, read_submitted
from argosy.sites.load import load_site
from argosy.sites.profile import Site
from argosy.slurm.calls import ask_slurm
from argosy.slurm.text import ENDED

MOST_LOGS = 256
"""Logs of ranks that are read: those of a larger run say the same again."""


class Evidence(msgspec.Struct, frozen=True):
    """What a run left.

    Attributes
    ----------
    files
        Those that were read.
    trials
        What each device did, where nodes were tried each alone; None for other jobs.
    """

    net: NetFacts
    ranks: tuple[RankFacts, ...]
    expected: Expected
    files: tuple[str, ...]
    trials: tuple[Trial, ...] | None = None


def verify_job(session: Session, job: str, site: str = "") -> tuple[Evidence, Verdict]:
    """Judge what a job proved; with `site` against another profile than it was planned for.

    Raises
    ------
    UsageError
        When nobody knows the job, or it has not started.
    """
    facts = find_job(session, job, or_record=True)
    evidence = _read_evidence(facts)
    if not evidence.ranks and not evidence.files:
        hint = f"see what it wrote: argosy logs {job}" if facts.kind == "ended" else "wait for its start"
        raise UsageError(f"job {job} has left nothing to judge", evidence=f"it {facts.meaning}", hint=hint)
    if evidence.trials is not None:
        expected = replace(evidence.expected, hosts=_hosts_of(session, facts))
        return evidence, judge_trial(evidence.trials, evidence.ranks, expected)
    profile = _profile(session, site) if site else _planned_profile(session, facts)
    measured = evidence.net.measured
    earlier = find_earlier(session, Path(facts.record), measured) if measured and facts.record else None
    verdict = judge_run(evidence.net, evidence.ranks, evidence.expected, profile, earlier)
    return evidence, _with_end(facts, verdict)


def _with_end(facts: JobFacts, verdict: Verdict) -> Verdict:
    """Say first of a job that has not ended well that what it proved is of the time before."""
    if not verdict.checks or (facts.kind == ENDED and not facts.code):
        return verdict
    how = (
        f" (code {facts.code}): the rest is of the time before" if facts.code else ": the rest is what it showed so far"
    )
    hint = f"see why: argosy logs {facts.id}" if facts.code else ""
    check = Check("end", UNKNOWN, f"it {facts.meaning.partition(':')[0]}{how}", hint)
    return Verdict((check, *verdict.checks))


def find_bad_nodes_of(session: Session, job: str) -> tuple[str, ...]:
    """Name the nodes that a job of `argosy bench nodes` found bad.

    Raises
    ------
    UsageError
        When nobody knows the job, it has not ended, or tried no nodes.
    """
    facts = find_job(session, job)
    if facts.kind != ENDED:
        raise UsageError(f"job {job} {facts.meaning}", hint=f"wait for its end: argosy logs -f {job}")
    evidence, verdict = verify_job(session, job)
    if evidence.trials is None:
        raise UsageError(
            f"job {job} tried no nodes", hint="give the number of a job that 'argosy bench nodes' submitted"
        )
    return tuple(name for check in verdict.checks for name in check.nodes)


def verify_logs(session: Session, logs: Sequence[str], site: str, nodes: int) -> tuple[Evidence, Verdict]:
    """Judge logs that some run has written under NCCL_DEBUG=INFO.

    Raises
    ------
    UsageError
        When a file cannot be read.
    """
    text = "\n".join(map(read_ends_of, logs))
    evidence = Evidence(parse_netlog(text), (), Expected(nodes=nodes), tuple(logs))
    return evidence, judge_run(evidence.net, (), evidence.expected, _profile(session, site))


def _planned_profile(session: Session, facts: JobFacts) -> Site:
    """Give the profile that a job was planned with; where it is gone, an empty one."""
    told = read_submitted(Path(facts.record)) if facts.record else {}
    try:
        return _profile(session, told.get("profile", "") or told.get("site", ""))
    except SiteError as error:
        session.reporter.note(f"{error.what}: judged without a profile")
        return _profile(session, "")


def _profile(session: Session, name: str) -> Site:
    return load_site(name, session.host) if name else Site(name="any-site")


def _read_evidence(facts: JobFacts) -> Evidence:
    """Read what a job left: its output, the logs of NCCL or RCCL, what ranks noted."""
    plan = read_plan(facts)
    restart = facts.runs[-1].restart if facts.runs else facts.restarts
    own = sorted(Path(facts.record).glob(f"nccl-{restart}-*.log")) if facts.record else []
    files = [str(path) for path in (*own, *_asked_logs(plan)) if path.is_file()][:MOST_LOGS]
    files += [facts.output] if can_read(facts.output) else []
    text = "\n".join(map(read_ends_of, files))
    trials = parse_trials(text) if any(row.get("key") == TRIAL for row in _rows(plan.get("choices"))) else None
    return Evidence(parse_netlog(text), facts.ranks, expect(plan, facts.ranks), tuple(files), trials)


def _hosts_of(session: Session, facts: JobFacts) -> tuple[str, ...]:
    """Give the names of a job's nodes."""
    nodes = facts.runs[-1].nodes if facts.runs else facts.nodes
    words = ("scontrol", "show", "hostnames", nodes)
    session = session_of(session, Path(facts.record)) if facts.record else session
    return tuple(ask_slurm(session, words, doing="asking for the nodes of the job").split()) if nodes else ()


def _asked_logs(plan: dict[str, object]) -> list[Path]:
    """Give the logs that the user asked for by ``--debug net``, whose names NCCL completes."""
    for choice in _rows(plan.get("choices")):
        value = str(choice.get("value", ""))
        if choice.get("key") == "NCCL_DEBUG_FILE" and value:
            path = Path(value.replace("%h", "*").replace("%p", "*"))
            return sorted(path.parent.glob(path.name))
    return []


def expect(plan: dict[str, object], ranks: Sequence[RankFacts]) -> Expected:
    """Give what a run should show by its plan; its nodes as they were, since a script may be submitted for more."""
    shape = plan.get("shape")
    if not isinstance(shape, dict):
        return Expected()
    nodes = len({each.host for each in ranks}) or int(shape.get("nodes", 0))
    nodes = max(nodes, int(shape.get("nodes", 0)))
    cores = plan.get("cores")
    return Expected(
        nodes=nodes,
        ranks=nodes * int(shape.get("ranks_per_node", 0)),
        gpus=int(shape.get("gpus_per_node", 0)),
        own_gpus=own_gpus(plan, int(shape.get("gpus_per_node", 0)), int(shape.get("ranks_per_node", 0))),
        cores=tuple(map(str, cores)) if isinstance(cores, list) else (),
    )


GPUS_APART = ("--gpus-per-task", "--gpu-bind", "--ntasks-per-gpu", "--tres-bind")
"""Options of srun by which each task sees GPUs of its own only."""


def own_gpus(plan: dict[str, object], gpus: int, ranks: int) -> int:
    """Give how many GPUs each rank should see: its node's, or its share where srun keeps them apart."""
    words = (str(row.get("value", "")) for row in _rows(plan.get("choices")) if row.get("key") == "srun")
    apart = any(word.startswith(GPUS_APART) for word in words)
    return max(1, gpus // ranks) if gpus and ranks and apart else gpus


def _rows(value: object) -> list[dict[str, object]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
