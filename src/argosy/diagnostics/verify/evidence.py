"""Read the evidence of a run, and find the run that it is compared with.

The evidence is its logs, its records, and what it should show by its plan. It is compared with the last run of its
site, shape and program that passed its checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.bench.collectives_output import Measured
from argosy.core.model import ChoiceKey
from argosy.core.session import Session
from argosy.diagnostics.verify.logs import DeviceTest, NetFacts, parse_netlog, parse_node_tests
from argosy.diagnostics.verify.rules import Expected, PassedRun, check_run
from argosy.jobs.history import PastJob, past_jobs
from argosy.jobs.launch_plan import Shape, parse_shape
from argosy.jobs.outputs import can_read, read_ends_of
from argosy.jobs.query import JobFacts, read_past_facts
from argosy.jobs.record import PLAN, RankFacts, read_plan
from argosy.launch.choices import JOB, RESTART
from argosy.sites.profile import Site

MOST_LOGS = 256
"""Maximum number of rank logs that are read. The logs of more ranks repeat the same lines."""

LATEST = 200
"""Number of jobs that are searched for measurements."""

MOST_CHECKED = 16
"""Comparable jobs whose logs are read."""

PROGRAM_WORDS = 2
"""First words of a command that name its program, for example ``python train.py``."""


class Evidence(msgspec.Struct, frozen=True):
    """The logs and records of a run."""

    net: NetFacts
    ranks: tuple[RankFacts, ...]
    expected: Expected
    files: tuple[str, ...]
    """The files that were read."""
    node_tests: tuple[DeviceTest, ...] | None = None
    """Results of each device, for a job of `argosy bench nodes`; None for other jobs."""


def read_evidence(facts: JobFacts) -> Evidence:
    """Read the output of a job, the logs of NCCL or RCCL, and the records of its ranks."""
    plan = read_plan(facts.record)
    files = [*find_network_logs(facts, plan), *([facts.output] if can_read(facts.output) else [])]
    text = "\n".join(map(read_ends_of, files))
    is_node_test = any(row.get("key") == ChoiceKey.NODE_TEST for row in _rows(plan.get("choices")))
    node_tests = parse_node_tests(text) if is_node_test else None
    return Evidence(parse_netlog(text), facts.ranks, expect(plan, facts.ranks), tuple(files), node_tests)


def find_network_logs(facts: JobFacts, plan: dict[str, object]) -> list[str]:
    """Find the logs of NCCL or RCCL that the ranks of the last run wrote into the record, and those of ``--debug net``.

    The record knows the number of the last run after Slurm has forgotten the job.
    """
    restart = facts.runs[-1].restart if facts.runs else facts.restarts
    own = sorted(Path(facts.record).glob(f"nccl-{restart}-*.log")) if facts.record else []
    return [str(path) for path in (*own, *_asked_logs(facts, plan, restart)) if path.is_file()][:MOST_LOGS]


def _asked_logs(facts: JobFacts, plan: dict[str, object], restart: int) -> list[Path]:
    """Return the logs of ``--debug net`` that are not older than the record, which is written before the start.

    NCCL replaces %h and %p in their names by host and process id.
    """
    asked = (str(row.get("value", "")) for row in _rows(plan.get("choices")) if row.get("key") == "NCCL_DEBUG_FILE")
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


def expect(plan: dict[str, object], ranks: Sequence[RankFacts]) -> Expected:
    """Return what a run should show by its plan.

    A saved script may be submitted with more nodes than planned, so the nodes of the run count.
    """
    shape, cores = parse_shape(plan), plan.get("cores")
    if shape is None:
        return Expected()
    nodes = max(len({each.host for each in ranks}), shape.nodes)
    return Expected(
        nodes=nodes,
        ranks=nodes * shape.ranks_per_node,
        gpus=shape.gpus_per_node,
        own_gpus=_own_gpus(plan, shape),
        cores=tuple(map(str, cores)) if isinstance(cores, list) else (),
    )


DIVIDED_GPUS = ("--gpus-per-task", "--gpu-bind", "--ntasks-per-gpu", "--tres-bind")
"""Options of srun that give each task its own GPUs."""


def _own_gpus(plan: dict[str, object], shape: Shape) -> int:
    """Return how many GPUs each rank should see: those of its node, or its share if srun divides them."""
    options = (str(row.get("value", "")) for row in _rows(plan.get("choices")) if row.get("key") == "srun")
    divided = any(option.startswith(DIVIDED_GPUS) for option in options)
    gpus, ranks = shape.gpus_per_node, shape.ranks_per_node
    return max(1, gpus // ranks) if gpus and ranks and divided else gpus


def _rows(value: object) -> list[dict[str, object]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def find_passed(session: Session, record: Path, profile: Site) -> PassedRun | None:
    """Find the last job before that of `record` with the same site, shape and program that passed its checks."""
    jobs = past_jobs(session, most=LATEST)
    own = next((job for job in jobs if Path(job.record) == record), None)
    if own is None:
        return None
    alike = [job for job in jobs[jobs.index(own) + 1 :] if _key(job) == _key(own) and job.run and not job.code]
    operation = _operation(read_evidence(read_past_facts(session, own.id, record)).net.measured)
    for job in alike[:MOST_CHECKED]:
        evidence = read_evidence(read_past_facts(session, job.id, Path(job.record)))
        passed = check_run(evidence.net, evidence.ranks, evidence.expected, profile).ok
        if passed and operation in {"", _operation(evidence.net.measured)}:
            return PassedRun(job, evidence.net)
    return None


def _operation(measured: Measured | None) -> str:
    return measured.operation if measured else ""


def _key(job: PastJob) -> tuple[object, ...]:
    """Return what must be equal for two runs to be comparable."""
    return job.site, parse_shape(job.plan), tuple(job.plan.get("command") or ())[:PROGRAM_WORDS]
