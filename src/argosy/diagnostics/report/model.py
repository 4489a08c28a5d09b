"""The records of a report; they contain text and numbers, and the page renders them."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from argosy.bench.result import BenchResult
from argosy.core.findings import Finding
from argosy.diagnostics.verify.logs import NetFacts
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.query import JobFacts
from argosy.sites.profile import Node

SECRET_NAME = re.compile(r"token|key|secret|passw|credential", re.IGNORECASE)
"""Part of the name of a variable whose value is a secret."""


class Phase(StrEnum):
    """The phase of a job that an event begins."""

    QUEUE = "in the queue"
    START = "starting"
    RUN = "running"
    STOP = "stopping"
    END = "ended"


class Event(msgspec.Struct, frozen=True):
    """An event in the life of a job.

    Attributes
    ----------
    seconds
        Time since 1970 in seconds.
    text
        The event, for example ``submitted``.
    phase
        The phase that begins with it.
    """

    seconds: float
    text: str
    phase: Phase


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


class NextStep(msgspec.Struct, frozen=True):
    """A step that a report advises: one action.

    Attributes
    ----------
    command
        The command line of the step; empty if it has none.
    where
        The machine on which to type the command, and the cost.
    instead
        Whether it is an alternative to the step before.
    section
        Section of the page that has the lines to look at; empty if the page has none.
    """

    text: str
    command: str = ""
    where: str = ""
    instead: bool = False
    section: str = ""


class UserFrame(msgspec.Struct, frozen=True):
    """A frame of a Python traceback in the user's code."""

    path: str
    line: int
    function: str
    code: str = ""


class UserException(msgspec.Struct, frozen=True):
    """The exception that ended a program.

    Attributes
    ----------
    text
        For example ``KeyError: 'label'``.
    frames
        Frames in the user's code; the last one is the nearest to the error.
    """

    text: str
    frames: tuple[UserFrame, ...] = ()


class Search(msgspec.Struct, frozen=True):
    """Lines of the user's program that explain a job.

    Attributes
    ----------
    first, last
        A range of lines, from 1; 0 for the lines that contain one of `words`.
    marked
        Lines of the range that the traceback names.
    in_image
        Whether the file is part of the image.
    """

    path: str
    first: int = 0
    last: int = 0
    marked: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    in_image: bool = False


class Excerpt(msgspec.Struct, frozen=True):
    """Lines of a file: number, text and whether the line is marked.

    Attributes
    ----------
    note
        Why the lines are not shown; empty if they are.
    """

    path: str
    lines: tuple[tuple[int, str, bool], ...] = ()
    note: str = ""


class Cited(msgspec.Struct, frozen=True):
    """A line that explains a failure.

    Attributes
    ----------
    text
        Description of the line, for example ``Line 61, in load, raises KeyError: 'label'``.
    code
        The line itself.
    line
        Number of a line of the program; 0 for a line of another file or of the output.
    """

    text: str
    code: str
    line: int = 0


class Comparison(msgspec.Struct, frozen=True):
    """The difference from the last run of the same command and shape at the same site that passed its checks.

    Attributes
    ----------
    job
        Number of that job; empty if there is none.
    repeat
        Command line that launches it again.
    same
        Names of what is equal, for example ``image``.
    files
        Names of the command's files with equal content.
    observed
        Variables in the logs of the network library that differ.
    seconds
        How long that job ran; 0 if unknown.
    network
        The network that the logs of that job show, with its cards; empty if they show none.
    cards
        Names of the InfiniBand cards that it used.
    bandwidth
        The bandwidth that it measured, with its unit; empty if it measured none.
    """

    job: str = ""
    repeat: str = ""
    changes: tuple[Change, ...] = ()
    same: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    observed: tuple[Change, ...] = ()
    seconds: int = 0
    network: str = ""
    cards: tuple[str, ...] = ()
    bandwidth: str = ""


class Case(msgspec.Struct, frozen=True):
    """The facts about a job that decide what its report says.

    Attributes
    ----------
    plan
        The plan of the job; None if the job has no record.
    findings
        Findings of `argosy verify`.
    errors
        Known errors in the output, the causes first.
    raised
        The exception that ended the program; None if the output shows none.
    search
        Lines of the user's program that explain the job; None if none are known.
    excerpt
        Their text; None if the program is not on this machine.
    net
        The network that the logs of the job show.
    results
        Result of the job if it was a benchmark, followed by those of earlier comparable jobs.
    output
        Output of the job.
    typed
        Command line that launched the job; empty if it was launched from Python.
    profile
        Name or file of the site's profile; empty for a job that Argosy did not plan.
    ssh
        Login node, for a job that was submitted by ssh.
    """

    facts: JobFacts
    plan: LaunchPlan | None = None
    findings: tuple[Finding, ...] = ()
    errors: tuple[KnownError, ...] = ()
    compared: Comparison = Comparison()
    raised: UserException | None = None
    search: Search | None = None
    excerpt: Excerpt | None = None
    net: NetFacts = NetFacts()
    results: tuple[BenchResult, ...] = ()
    output: str = ""
    typed: str = ""
    profile: str = ""
    ssh: str = ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that the report hides: of the caller's environment, and of variables named as secrets are."""
        choices = self.plan.choices if self.plan else ()
        private = self.plan.private if self.plan else ()
        return tuple(each.value for each in choices if each.key in private or SECRET_NAME.search(each.key))


class Report(msgspec.Struct, frozen=True):
    """All facts of a report.

    Attributes
    ----------
    case
        Facts that decide what the report says.
    summary
        One sentence about the end of the job.
    cause
        The likely cause of a failure; empty if the job succeeded or still runs.
    chain
        The lines that lead to a failure, in their order.
    steps
        The next steps in their order, after a job that failed or whose checks failed.
    unknown
        Events whose time is unknown: event and reason.
    measured
        The largest bandwidth of each result, and the value that the site's profile expects; empty for others.
    evidence
        Lines of NCCL or RCCL that name the network.
    output
        The end of the output.
    commands
        Command lines that are useful now: purpose and line.
    node
        A node as the profile describes it, with the GPUs of the job.
    networks
        Host -> the network that its logs show.
    written, user
        Seconds since 1970 when the report was made, and who made it.
    """

    case: Case
    summary: str
    cause: str
    chain: tuple[Cited, ...]
    steps: tuple[NextStep, ...]
    timeline: tuple[Event, ...]
    unknown: tuple[tuple[str, str], ...]
    ranks: tuple[RankRow, ...]
    measured: str
    evidence: tuple[str, ...]
    packages: tuple[tuple[str, str], ...]
    output: str
    commands: tuple[tuple[str, str], ...]
    node: Node
    networks: dict[str, NetFacts]
    written: float
    user: str
    argosy: str
