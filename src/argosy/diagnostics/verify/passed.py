"""Find the run that a job is compared with: the last one of its site, shape and program that passed its checks."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.bench.collectives_output import Measured
from argosy.core.session import Session
from argosy.diagnostics.verify.earlier import LATEST
from argosy.diagnostics.verify.evidence import read_evidence
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.diagnostics.verify.rules import check_run
from argosy.jobs.history import PastJob, past_jobs
from argosy.jobs.launch_plan import parse_shape
from argosy.jobs.query import read_past_facts
from argosy.sites.profile import Site

MOST_CHECKED = 16
"""Comparable jobs whose logs are read."""

PROGRAM_WORDS = 2
"""First words of a command that name its program, for example ``python train.py``."""


class PassedRun(msgspec.Struct, frozen=True):
    """An earlier run that ended well and passed its checks.

    Attributes
    ----------
    measured
        The bandwidth that it measured, if it was a benchmark.
    net
        The network that its logs show.
    """

    job: PastJob
    measured: Measured | None = None
    net: NetFacts = NetFacts()


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
            return PassedRun(job, evidence.net.measured, evidence.net)
    return None


def _operation(measured: Measured | None) -> str:
    return measured.operation if measured else ""


def _key(job: PastJob) -> tuple[object, ...]:
    """Return what must be equal for two runs to be comparable."""
    return job.site, parse_shape(job.plan), tuple(job.plan.get("command") or ())[:PROGRAM_WORDS]
