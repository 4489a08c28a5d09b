"""The records of a report; they contain text and numbers, and the page renders them."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from argosy.bench.result import BenchResult
from argosy.core.findings import Finding
from argosy.diagnostics.verify.network_log import NetFacts
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.sites.profile import Node


class Phase(StrEnum):
    """The phase of a job that an event begins."""

    QUEUE = "in the queue"
    START = "starting"
    RUN = "running"
    STOP = "stopping"
    END = "ended"


class Moment(msgspec.Struct, frozen=True):
    """An event in the life of a job, with its evidence.

    Attributes
    ----------
    seconds
        Time since 1970 in seconds.
    text
        The event, for example ``submitted``.
    source
        The record, log or clock that has the time.
    """

    seconds: float
    text: str
    phase: Phase
    source: str = ""


class RankRow(msgspec.Struct, frozen=True):
    """A rank: what it was given, and what was planned for it.

    Attributes
    ----------
    cores, planned
        Cores as a list of ranges; empty if unknown.
    gpus
        GPUs that it could use.
    end
        How it ended, if it failed first.
    """

    rank: int
    host: str
    local: int
    cores: str
    planned: str
    gpus: int
    end: str = ""


class Change(msgspec.Struct, frozen=True):
    """A setting or a package that differs from the last run that passed."""

    name: str
    before: str
    now: str


class Step(msgspec.Struct, frozen=True):
    """A step that a report advises; `command` is the command line of the step, or empty."""

    text: str
    command: str = ""


class Comparison(msgspec.Struct, frozen=True):
    """The difference from the last run of the same site, shape and program that passed its checks.

    Attributes
    ----------
    job
        Number of that job; empty if there is none.
    repeat
        Command line that launches it again.
    same
        Names of what is equal, for example ``image``.
    network
        The network that the logs of that job show, with its cards; empty if they show none.
    bandwidth
        The bandwidth that it measured, with its unit; empty if it measured none.
    """

    job: str = ""
    repeat: str = ""
    changes: tuple[Change, ...] = ()
    same: tuple[str, ...] = ()
    network: str = ""
    bandwidth: str = ""


class Report(msgspec.Struct, frozen=True):
    """All facts of a report.

    Attributes
    ----------
    subject
        ``job 7``, or ``run NAME`` for a run on this machine.
    summary
        One sentence about the end of the job.
    advice
        The advice and its reason; empty for a job that has not ended.
    steps
        The next steps in their order, after a job that failed or whose checks failed.
    plan
        The plan of the job; None if the job has no record.
    findings
        Findings of `argosy verify`.
    errors
        Known errors in the output, the causes first.
    unknown
        Events whose time is unknown: event and reason.
    results
        Result of the job if it was a benchmark, followed by those of earlier comparable jobs.
    measured
        The largest bandwidth of each result, and the value that the site's profile expects; empty for others.
    evidence
        Lines of NCCL or RCCL that name the network.
    program
        The program of each rank with its arguments; empty if the job has no record.
    typed
        Command line that launched the job; empty if it was launched from Python.
    compared
        The difference from the last run that passed.
    output
        The end of the output.
    commands
        Command lines that are useful now: purpose and line.
    node
        A node as the profile describes it, with the GPUs of the job.
    networks
        Host -> the network that its logs show.
    """

    facts: JobFacts
    subject: str
    summary: str
    advice: str
    steps: tuple[Step, ...]
    plan: LaunchPlan | None
    findings: tuple[Finding, ...]
    errors: tuple[KnownError, ...]
    timeline: tuple[Moment, ...]
    unknown: tuple[tuple[str, str], ...]
    ranks: tuple[RankRow, ...]
    results: tuple[BenchResult, ...]
    measured: str
    evidence: tuple[str, ...]
    program: str
    typed: str
    compared: Comparison
    packages: tuple[tuple[str, str], ...]
    output: str
    commands: tuple[tuple[str, str], ...]
    node: Node
    networks: dict[str, NetFacts]
    argosy: str
