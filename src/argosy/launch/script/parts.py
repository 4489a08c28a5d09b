"""Render the parts of a job script that only some jobs have: text only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice
from argosy.core.shell import ShellExpr, Word, in_double_quotes, quote, read_shell
from argosy.sites.profile import Site
from argosy.sites.software import Modules
from argosy.slurm.option_checks import parse_warning
from argosy.slurm.sbatch import JobOptions
from argosy.slurm.times import parse_minutes, slurm_time


def render_rendezvous(site: Site) -> str:
    """Render the call that chooses the rendezvous: the first host of the node list, and a free port there.

    The port is below Linux's ephemeral range, 32768 to 60999 (ip(7), ip_local_port_range).  It is computed from job id
    and restart count, because ranks of a run that lost its node may still run and must not join the next one.  Launches
    in one allocation differ by the process id of their script.
    """
    suffix = site.slurm.master_suffix
    call = f"find_rendezvous {quote(suffix)}" if suffix else "find_rendezvous"
    return f"{call}  # sets MASTER_ADDR, MASTER_PORT, argosy_first, argosy_hosts"


def script_shell(modules: Modules) -> str:
    """Return the shell of a script: bash if it loads modules, because `/etc/profile` of a site may be for bash only."""
    return "/bin/bash" if modules.load else "/bin/sh"


def render_modules(modules: Modules) -> Iterator[str]:
    """Render the lines that load the site's modules, which provide the runtime or the host's MPI."""
    if not modules.load:
        return
    yield "enable_modules"
    if modules.purge:
        yield "module purge"
    for folder in modules.use:
        yield f"module use {quote(folder)}"
    yield f"module load {' '.join(map(quote, modules.load))} ||"
    yield """    stop "the modules cannot be loaded: see 'module avail'" 4"""
    yield "set -eu"


def render_staging(folder: str, image: str, digest: str) -> Iterator[str]:
    """Render the copy of the image to every node, into a new folder that only the job's owner may read."""
    name = digest.removeprefix("sha256:")[:16] or "image"
    yield f"stage_image {quote(folder)} {quote(image)} {name}.sif"


DATA = Path(__file__).with_name("data")
RANK_FILE = "rank.sh"
END_FILE = "end.sh"
OUTPUT_FILE = "first_output.sh"

CORES = "@CORES@"
GPUS = "@GPUS@"
"""Placeholders for the planned cores, and the planned GPUs of a node, in ``end.sh``."""

PLACE = "@PLACE@"
"""Placeholder for the place in the messages of ``rank.sh``."""


RANK_PATH = ShellExpr(f"$argosy_record/{RANK_FILE}")
"""The script that each rank reads to record its cores and GPUs."""

SUCCESS_FILES = ShellExpr("$argosy_record/well")
"""Prefix of the files that an elastic run writes, one per node on which it succeeded."""


def render_elastic_verdict(least_nodes: int) -> str:
    """Render the end of an elastic run, which succeeds if enough nodes succeeded."""
    return f"judge_elastic_run {quote(SUCCESS_FILES)} {least_nodes}"


END_CALL = f'note_end "$argosy_record/{END_FILE}"'
"""Line of a script that records the end of a run, if its record still exists."""

OUTPUT_CALL = f'note_output "$argosy_record/{OUTPUT_FILE}"'
"""Line of a script that records when the ranks write their first line."""


def render_output() -> str:
    """Render the script that records when the ranks write their first line."""
    return (DATA / OUTPUT_FILE).read_text(encoding="utf-8")


def render_rank(image: str) -> str:
    """Render the script that records the cores and GPUs of a rank, and stops if its program does not exist.

    Parameters
    ----------
    image
        Path of the image; empty without a container.
    """
    place = f"in the container of {image}" if image else "on this node"
    return read_shell(DATA / RANK_FILE).replace(PLACE, quote(place)) + "\n"


def render_end(cores: tuple[str, ...], *, gpus: int) -> str:
    """Render the script that runs at the end of each run.

    Parameters
    ----------
    cores
        The cores that each local rank is bound to, as range lists; empty if ranks are not bound.
    gpus
        The GPUs that each node should have; without any, device files and the logs of NCCL say nothing.
    """
    text = (DATA / END_FILE).read_text(encoding="utf-8")
    return text.replace(CORES, " ".join(cores)).replace(GPUS, str(gpus))


SIGNAL, GRACE = "USR2", 120
"""Signal that warns the ranks, and seconds before the time limit; not USR1, which NCCL may catch."""

LONGEST_END = 30
"""Seconds reserved for the end of the ranks: torchrun kills workers 30 s after TERM (PContext.close)."""


class Resume(msgspec.Struct, frozen=True):
    """How a job continues after its time limit."""

    restarts: int
    """Maximum number of restarts."""
    checkpoint: Word
    """File or folder that the program writes; relative to the job's folder only in a dry run for another machine. Each
    task of an array has its own."""
    signal: str = SIGNAL
    grace: int = GRACE
    """Signal that warns the ranks, and seconds before the time limit."""

    @property
    def patience(self) -> int:
        """Seconds between the warning and the end of the ranks."""
        return self.grace - min(LONGEST_END, self.grace // 3)


def plan_resume(restarts: int, checkpoint: str, options: JobOptions) -> Resume | None:
    """Return how a job resumes; None without ``--resume``.

    Raises
    ------
    UsageError
        If only one of ``--resume`` and ``--checkpoint`` is given, the warning comes before the job starts, or the tasks
        of an array would write one checkpoint.
    """
    if not restarts and not checkpoint:
        return None
    if restarts < 1:
        raise UsageError("--checkpoint needs --resume", hint="add --resume, or --resume=N for N restarts")
    if not checkpoint:
        raise UsageError(
            "--resume needs --checkpoint",
            evidence="a job is requeued only after a run wrote a new checkpoint",
            hint="add --checkpoint with the file or folder that the program writes",
        )
    signal, grace = parse_warning(options.signal) if options.signal else (SIGNAL, GRACE)
    if options.time and parse_minutes(slurm_time(options.time)) * 60 <= grace:
        raise UsageError(
            f"--time {options.time} leaves no time to compute: the ranks are warned {grace} s before the limit",
            hint=f"use a longer --time, or a later warning: --signal {signal}@SECONDS",
        )
    return Resume(restarts, _of_task(checkpoint) if options.array else checkpoint, signal, grace)


def _of_task(checkpoint: str) -> ShellExpr:
    """Return the checkpoint of a task of an array: ``%a`` is its number, as in Slurm's names of output files."""
    if "%a" not in checkpoint:
        path = PurePosixPath(checkpoint)
        raise UsageError(
            "--array with --resume needs %a, the number of the task, in --checkpoint",
            evidence=f"all tasks would write {checkpoint}, and each would take the progress of the others for its own",
            hint=f"for example --checkpoint {quote(f'{path.stem}-%a{path.suffix}')}; the program knows the number by "
            "SLURM_ARRAY_TASK_ID",
        )
    return ShellExpr(in_double_quotes(checkpoint).replace("%a", "${SLURM_ARRAY_TASK_ID}"))


def explain_resume(resume: Resume | None) -> tuple[Choice, ...]:
    """Return the reasons of the sbatch options that ``--resume`` adds."""
    if resume is None:
        return ()
    source = "option --resume"
    again = "--resume: Slurm starts the job again at its time limit and after a node failure"
    warned = f"--resume: the ranks are warned {resume.grace} s before the time limit"
    return (
        Choice("--requeue", "", again, source),
        Choice("--signal", f"B:{resume.signal}@{resume.grace}", warned, source),
    )


def render_resume_check(resume: Resume) -> Iterator[str]:
    """Render the check of the previous run, and the mark of this one."""
    yield f"# Requeue the job at the time limit and after a node failure, at most {resume.restarts} times."
    yield f"resume_from {quote(resume.checkpoint)} {resume.restarts}"


def render_requeue(resume: Resume) -> str:
    """Render the call that requeues the job.

    The controller may not answer for a while, or may carry out a request that failed here.  The mark therefore stays,
    and the job fails if it could not be requeued.
    """
    return f"requeue {resume.grace}  # seconds in which Slurm must answer"
