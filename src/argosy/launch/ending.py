"""Tell from what a job printed which rank failed first, where and how; pure.

With several ranks the job's own code says little: torchrun makes 1 of every worker's code, and srun reports 143 or 137
of the ranks that it ended because another one had failed.
"""

from __future__ import annotations

import re

import msgspec

SIGNALS = {"Hangup": 1, "Aborted": 6, "Killed": 9, "Segmentation fault": 11, "Terminated": 15, "Bus error": 7}
"""How srun names the signals that end ranks; others are shown without a number."""

LAST_SIGNAL = 64
"""The highest signal of Linux (signal(7)): 255 is a container's or a shell's own code."""

SRUN_CODE = re.compile(r"^srun: error: (\S+): tasks? ([\d,-]+): Exited with exit code (\d+)", re.MULTILINE)
SRUN_SIGNAL = re.compile(
    r"^srun: error: (\S+): tasks? ([\d,-]+): (Hangup|Aborted|Killed|Segmentation fault|Bus error)", re.MULTILINE
)
TORCHRUN = re.compile(
    r"Root Cause \(first observed failure\):\s*\n\[\d+\]:\s*\n"
    r"\s*time\s*: \S+\s*\n\s*host\s*: (\S+)\s*\n\s*rank\s*: (\d+) [^\n]*\n\s*exitcode\s*: (-?\d+)"
)
TORCHRUN_TIME = re.compile(r"Root Cause \(first observed failure\):\s*\n\[\d+\]:\s*\n\s*time\s*: (\S+)")


RUN_ENDED = re.compile(r"^argosy: (?:a new checkpoint|job \d+ ended with code).*$", re.MULTILINE)
"""What a job script prints at the end of a run; a job that was requeued has several runs in one output."""


class RankEnd(msgspec.Struct, frozen=True):
    """How a rank ended.

    Attributes
    ----------
    code
        Its own exit code; 128 + number where a signal ended it.
    """

    rank: int
    host: str
    code: int

    @property
    def text(self) -> str:
        """Say it in a sentence."""
        number = self.code - 128
        how = f"code {self.code}, signal {number}" if 0 < number <= LAST_SIGNAL else f"code {self.code}"
        return f"rank {self.rank} on {self.host} failed first ({how})"


def judge_end(text: str) -> RankEnd | None:
    """Give the rank that failed first in the last run of a job; None where the output does not tell."""
    *_, run, rest = ("", *RUN_ENDED.split(text))
    return _judge_run(rest) or _judge_run(run)


def _judge_run(text: str) -> RankEnd | None:
    """Judge one run.

    torchrun's own report is believed first: to srun, torchrun is a task as any other.  Of several reports the earliest
    failure counts; nodes that only lost the others report later.
    """
    blocks = list(zip(TORCHRUN.finditer(text), TORCHRUN_TIME.findall(text), strict=False))
    own = [pair for pair in blocks if int(pair[0][3]) != -15] or blocks  # noqa: PLR2004 - TERM came from outside
    if own:
        match, _ = min(own, key=lambda pair: pair[1])
        code = int(match[3])
        return RankEnd(int(match[2]), match[1], code if code >= 0 else 128 - code)
    ends = [(match.start(), _of_srun(match)) for match in (*SRUN_CODE.finditer(text), *SRUN_SIGNAL.finditer(text))]
    # 143 and 137 are what srun's own ending of the others leaves, where a shell stands between.
    first = [end for end in sorted(ends, key=lambda end: end[0]) if end[1].code not in {143, 137}] or sorted(
        ends, key=lambda end: end[0]
    )
    return first[0][1] if first else None


def _of_srun(match: re.Match[str]) -> RankEnd:
    code = int(match[3]) if match[3].isdigit() else 128 + SIGNALS[match[3]]
    return RankEnd(int(re.split("[,-]", match[2])[0]), match[1], code)
