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
    yield f"# Back into the queue at the time limit and after a node failure, at most {resume.restarts} times,"
    yield "# and only after a run that left a checkpoint newer than its own beginning."
    yield f"checkpoint={quote(resume.checkpoint)}"
    yield "mark=$checkpoint.argosy-$SLURM_JOB_ID restart=${SLURM_RESTART_COUNT:-0} warned='' stopped=''"
    yield 'saved() { [ -n "$(find "$checkpoint" -newer "$mark" 2>/dev/null)" ]; }'
    yield 'if [ "$restart" -gt 0 ] && ! saved; then'
    yield '    rm -f "$mark"; stop "the last run left no new $checkpoint: another one would not come further" 1'
    yield f'elif [ "$restart" -gt {resume.restarts} ]; then'
    yield f'    rm -f "$mark"; stop "this job was restarted {resume.restarts} times already" 1'
    yield "fi"
    yield '{ mkdir -p "${checkpoint%/*}/" && touch "$mark"; } || stop "$checkpoint cannot be written" 7'
    yield ""


def render_warning(resume: Resume) -> Iterator[str]:
    """Pass the warning on once, and end the ranks when their time is over."""
    yield "warn() {"
    yield '    [ -z "$warned" ] || return 0'
    yield f"    warned=yes; pass {resume.signal}"
    yield f'    printf "argosy: the time limit is near: {resume.signal} to the ranks, TERM in {resume.patience} s\\n"'
    yield f"    (sleep {resume.patience}; kill -s ALRM $$) &"
    yield "}"
    yield f"trap warn {resume.signal}"
    yield "trap 'pass TERM' ALRM"


def render_requeue(resume: Resume) -> Iterator[str]:
    """Go back into the queue.

    The controller may be silent for a while, and may have taken a request that failed here: so the mark stays, which
    the next run needs, and the job does not end well without being back in the queue.
    """
    yield f'if [ -n "$warned" ] && [ "$restart" -lt {resume.restarts} ] && saved; then'
    yield "    restart=$((restart + 1))"
    yield f'    printf "argosy: a new checkpoint: back into the queue, restart %s of {resume.restarts}\\n" "$restart"'
    yield f"    left={max(1, resume.grace // RETRY_S)}"
    yield '    until scontrol requeue "$SLURM_JOB_ID"; do'
    yield "        left=$((left - 1))"
    yield '        [ "$left" -gt 0 ] || stop "Slurm does not take the job back: scontrol requeue $SLURM_JOB_ID" 7'
    yield f"        sleep {RETRY_S}"
    yield "    done"
    yield "    exit 0"
    yield "fi"
    yield "# What ended this run from outside may start it again: a lost node, an operator."
    yield '[ -n "$stopped" ] || rm -f "$mark"'
