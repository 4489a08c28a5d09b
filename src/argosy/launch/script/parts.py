"""Render the parts of a job script that only some jobs have: text only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.shell import Word, quote, read_shell
from argosy.launch.script.helpers import render_call
from argosy.sites.profile import Site
from argosy.slurm.option_checks import parse_warning

BEFORE_SHELL = ("/bin/sh", "-e", "-c")


def before_command(lines: tuple[str, ...]) -> tuple[Word, ...]:
    """Give the command that runs lines of shell one after the other, and ends at the first that fails."""
    return (*BEFORE_SHELL, "\n".join(lines), "argosy-before")


def render_before(words: tuple[Word, ...], *, srun: str) -> Iterator[str]:
    """Run the command on the first node, and stop if it fails."""
    yield "# Once per start of the job, on its first node and in the image, before the ranks start."
    yield f"{srun} \\\n" + render_call(words)


def render_before_here(words: tuple[Word, ...]) -> Iterator[str]:
    """Run the command on this machine."""
    yield "# Once, in the image, before the ranks start."
    yield f"run_before \\\n{render_call(words)}"


def render_rendezvous(site: Site) -> str:
    """Render the call that chooses where ranks meet: the first host of the node list, and a free port there.

    The port lies below Linux's ephemeral range, 32768 to 60999 (ip(7), ip_local_port_range). It comes from job id and
    restart count: the ranks of a run that lost its node may still exist there, and must not meet those of the next.
    Launches within one allocation differ by the process number of their script.
    """
    suffix = site.slurm.master_suffix
    call = f"find_rendezvous {quote(suffix)}" if suffix else "find_rendezvous"
    return f"{call}  # MASTER_ADDR, MASTER_PORT"


OLD_DAYS = 3
"""Age of a staged image that a job left behind when it was killed, and that the next one removes."""


def render_staging(folder: str, image: str, digest: str) -> Iterator[str]:
    """Copy the image to every node, into a new folder that only the job's owner may enter."""
    name = digest.removeprefix("sha256:")[:16] or "image"
    yield f"stage_image {quote(folder)} {quote(image)} {name}.sif"


SMOKE_SECONDS = 120
"""Seconds after which a smoke run that still works is ended: torchrun takes 30 more."""


def render_timer() -> str:
    """End a smoke run that works, before Slurm's time limit does."""
    return f"end_smoke_run_after {SMOKE_SECONDS}"


def render_enough() -> str:
    """Count a smoke run that was ended by its timer as good."""
    return "judge_smoke_run"


DATA = Path(__file__).with_name("data")
RANK_FILE = "rank.sh"
END_FILE = "end.sh"

CORES = "@CORES@"
"""Where the end's program has the cores of the plan."""

PLACE = "@PLACE@"
"""Where the rank's program says in what it looked for a program."""


def rank_file(record: str) -> str:
    """Give the file by which each rank notes what it was given; empty where nothing is noted."""
    return f"{record}/{RANK_FILE}" if record else ""


def well_file(record: str) -> str:
    """Give the common beginning of the files that an elastic run leaves, one for each node on which it ended well."""
    return f"{record}/well" if record else ""


def render_well(record: str, least_nodes: int) -> Iterator[str]:
    """Render the end of an elastic run: it was good if it ended well on as many nodes as it needs."""
    yield f"judge_elastic_run {quote(well_file(record))} {least_nodes}"


def render_end_call(record: str) -> str:
    """Render the line of a job script that notes the end of a run, where its record is still there."""
    return f"note_end {quote(f'{record}/{END_FILE}')}"


def render_rank(image: str) -> str:
    """Give the program that notes what a rank was given, and refuses a program that is not there.

    Parameters
    ----------
    image
        Its path; empty without a container.
    """
    place = f"in the container of {image}" if image else "on this node"
    return read_shell(DATA / RANK_FILE).replace(PLACE, quote(place)) + "\n"


def render_end(cores: tuple[str, ...]) -> str:
    """Give the program of a run's end.

    Parameters
    ----------
    cores
        The cores that each local rank is bound to, as range lists; empty where ranks are not bound.
    """
    return (DATA / END_FILE).read_text(encoding="utf-8").replace(CORES, " ".join(cores))


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
