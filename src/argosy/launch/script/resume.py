"""Resuming in sh: a job that is warned of its time limit lets its ranks save, and goes back into the queue; text only.

Both ways back, ours at the time limit and Slurm's own after a node failure, are judged at one place: the beginning of
the next run, which ends the chain where the run before left no new checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.errors import UsageError
from argosy.core.shell import quote
from argosy.slurm.option_checks import parse_warning

SIGNAL, GRACE = "USR2", 120
"""What warns the ranks, and how many seconds before the limit; not USR1, which NCCL may catch."""

RETRY_S = 5
"""Seconds between two tries to go back into the queue."""

LONGEST_END = 30
"""Seconds that are left for the ranks' end: torchrun kills workers 30 s after TERM (PContext.close)."""


class Resume(msgspec.Struct, frozen=True):
    """How a job goes on after its time limit.

    Attributes
    ----------
    restarts
        How often at most.
    checkpoint
        File or folder that the program writes; absolute.
    signal, grace
        What warns the ranks, and how many seconds before the time limit.
    """

    restarts: int
    checkpoint: str
    signal: str = SIGNAL
    grace: int = GRACE

    @property
    def patience(self) -> int:
        """Seconds that ranks go on after the warning, before they are ended."""
        return self.grace - min(LONGEST_END, self.grace // 3)


def plan_resume(restarts: int, checkpoint: str, warning: str) -> Resume | None:
    """Give how a job resumes; None where nobody asked.

    Raises
    ------
    UsageError
        When the checkpoint is not named, or the number is none.
    """
    if not restarts and not checkpoint:
        return None
    if restarts < 1:
        raise UsageError("--checkpoint goes with --resume", hint="add --resume, or --resume=N for N restarts")
    if not checkpoint:
        raise UsageError(
            "--resume needs --checkpoint",
            evidence="a job goes back into the queue only where a run left a new checkpoint",
            hint="add --checkpoint with the file or folder that the program writes",
        )
    signal, grace = parse_warning(warning) if warning else (SIGNAL, GRACE)
    return Resume(restarts, checkpoint, signal, grace)


def resume_directives(resume: Resume) -> Iterator[str]:
    """Give the options of sbatch that a resuming job has."""
    yield "--requeue"
    yield "--open-mode=append"
    yield f"--signal=B:{resume.signal}@{resume.grace}"


def render_chain(resume: Resume) -> Iterator[str]:
    """Judge the run before this one, and mark the beginning of this one."""
    yield f"# Back into the queue at the time limit and after a node failure, at most {resume.restarts} times."
    yield f"resume_from {quote(resume.checkpoint)} {resume.restarts}"


def render_warning(resume: Resume) -> str:
    """Pass the warning on once, and end the ranks when their time is over."""
    return f"warn_ranks_by {resume.signal} {resume.patience}  # seconds until TERM"


def render_requeue(resume: Resume) -> str:
    """Go back into the queue.

    The controller may be silent for a while, and may have taken a request that failed here: so the mark stays, which
    the next run needs, and the job does not end well without being back in the queue.
    """
    return f"requeue {max(1, resume.grace // RETRY_S)}"
