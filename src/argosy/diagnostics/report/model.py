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
    """An event in the life of a job."""

    seconds: float
    """Time since 1970 in seconds."""
    text: str
    """The event, for example ``submitted``."""
    phase: Phase
    """The phase that begins with it."""


class RankRow(msgspec.Struct, frozen=True):
    """A rank: what it was given, and what was planned for it."""

    rank: int
    host: str
    local: int
    cores: str
    planned: str
    """Cores as a list of ranges; empty if unknown."""
    gpus: int
    """GPUs that it could use."""
    end: str = ""
    """How it ended, if it failed first."""


class Change(msgspec.Struct, frozen=True):
    """A setting or a package that differs from the last run that passed."""

    name: str
    before: str
    now: str


class NextStep(msgspec.Struct, frozen=True):
    """A step that a report advises: one action."""

    text: str
    command: str = ""
    """The command line of the step; empty if it has none."""
    where: str = ""
    """The machine on which to type the command, and the cost."""
    instead: bool = False
    """Whether it is an alternative to the step before."""
    section: str = ""
    """Section of the page that has the lines to look at; empty if the page has none."""


class UserFrame(msgspec.Struct, frozen=True):
    """A frame of a Python traceback in the user's code."""

    path: str
    line: int
    function: str
    code: str = ""


class UserException(msgspec.Struct, frozen=True):
    """The exception that ended a program."""

    text: str
    """For example ``KeyError: 'label'``."""
    frames: tuple[UserFrame, ...] = ()
    """Frames in the user's code; the last one is the nearest to the error."""


class Search(msgspec.Struct, frozen=True):
    """Lines of the user's program that explain a job."""

    path: str
    first: int = 0
    last: int = 0
    """A range of lines, from 1; 0 for the lines that contain one of `words`."""
    marked: tuple[int, ...] = ()
    """Lines of the range that the traceback names."""
    words: tuple[str, ...] = ()
    in_image: bool = False
    """Whether the file is part of the image."""


class Excerpt(msgspec.Struct, frozen=True):
    """Lines of a file: number, text and whether the line is marked."""

    path: str
    lines: tuple[tuple[int, str, bool], ...] = ()
    note: str = ""
    """Why the lines are not shown; empty if they are."""


class Cited(msgspec.Struct, frozen=True):
    """A line that explains a failure."""

    text: str
    """Description of the line, for example ``Line 61, in load, raises KeyError: 'label'``."""
    code: str
    """The line itself."""
    line: int = 0
    """Number of a line of the program; 0 for a line of another file or of the output."""


class Comparison(msgspec.Struct, frozen=True):
    """The difference from the last run of the same command and shape at the same site that passed its checks."""

    job: str = ""
    """Number of that job; empty if there is none."""
    repeat: str = ""
    """Command line that launches it again."""
    changes: tuple[Change, ...] = ()
    same: tuple[str, ...] = ()
    """Names of what is equal, for example ``image``."""
    files: tuple[str, ...] = ()
    """Names of the command's files with equal content."""
    observed: tuple[Change, ...] = ()
    """Variables in the logs of the network library that differ."""
    seconds: int = 0
    """How long that job ran; 0 if unknown."""
    network: str = ""
    """The network that the logs of that job show, with its cards; empty if they show none."""
    cards: tuple[str, ...] = ()
    """Names of the InfiniBand cards that it used."""
    bandwidth: str = ""
    """The bandwidth that it measured, with its unit; empty if it measured none."""


class ReportCase(msgspec.Struct, frozen=True):
    """The facts about a job that decide what its report says."""

    facts: JobFacts
    plan: LaunchPlan | None = None
    """The plan of the job; None if the job has no record."""
    findings: tuple[Finding, ...] = ()
    """Findings of `argosy verify`."""
    errors: tuple[KnownError, ...] = ()
    """Known errors in the output, the causes first."""
    compared: Comparison = Comparison()
    raised: UserException | None = None
    """The exception that ended the program; None if the output shows none."""
    search: Search | None = None
    """Lines of the user's program that explain the job; None if none are known."""
    excerpt: Excerpt | None = None
    """Their text; None if the program is not on this machine."""
    net: NetFacts = NetFacts()
    """The network that the logs of the job show."""
    results: tuple[BenchResult, ...] = ()
    """Result of the job if it was a benchmark, followed by those of earlier comparable jobs."""
    output: str = ""
    """Output of the job."""
    typed: str = ""
    """Command line that launched the job; empty if it was launched from Python."""
    profile: str = ""
    """Name or file of the site's profile; empty for a job that Argosy did not plan."""
    ssh: str = ""
    """Login node, for a job that was submitted by ssh."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """Values that the report hides: of the caller's environment, and of variables named as secrets are."""
        choices = self.plan.choices if self.plan else ()
        private = self.plan.private if self.plan else ()
        return tuple(each.value for each in choices if each.key in private or SECRET_NAME.search(each.key))


class Report(msgspec.Struct, frozen=True):
    """All facts of a report."""

    case: ReportCase
    """Facts that decide what the report says."""
    summary: str
    """One sentence about the end of the job."""
    cause: str
    """The likely cause of a failure; empty if the job succeeded or still runs."""
    chain: tuple[Cited, ...]
    """The lines that lead to a failure, in their order."""
    steps: tuple[NextStep, ...]
    """The next steps in their order, after a job that failed or whose checks failed."""
    timeline: tuple[Event, ...]
    unknown: tuple[tuple[str, str], ...]
    """Events whose time is unknown: event and reason."""
    ranks: tuple[RankRow, ...]
    measured: str
    """The largest bandwidth of each result, and the value that the site's profile expects; empty for others."""
    evidence: tuple[str, ...]
    """Lines of NCCL or RCCL that name the network."""
    packages: tuple[tuple[str, str], ...]
    output: str
    """The end of the output."""
    commands: tuple[tuple[str, str], ...]
    """Command lines that are useful now: purpose and line."""
    node: Node
    """A node as the profile describes it, with the GPUs of the job."""
    networks: dict[str, NetFacts]
    """Host -> the network that its logs show."""
    written: float
    user: str
    """Seconds since 1970 when the report was made, and who made it."""
    argosy: str
