"""Warn about costs and lost files before a job starts, and advise after it failed; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from argosy.core.model import ChoiceKey
from argosy.jobs.launch_plan import SHARE, LaunchPlan

OUT_OF_MEMORY = re.compile(
    r"\b(?:oom|OOM)[-_ ][Kk]ill|^srun: error: [^\n]*: Out Of Memory\b|[Mm]emory cgroup out of memory"
    r"|\bslurmstepd: error: [^\n]*Exceeded \w+ memory limit",
    re.MULTILINE,
)
"""Messages of Slurm and the kernel about a process killed for its memory; the job's state may still be FAILED.

Programs print ``CUDA out of memory`` and ``CUDA_ERROR_OUT_OF_MEMORY`` for the memory of a GPU, which no Slurm option
increases.
"""

BEHIND: Mapping[str, tuple[str, ...]] = {
    "TIMEOUT": ("time",),
    "OUT_OF_MEMORY": ("mem-per-gpu", "mem", "mem-per-cpu"),
}
"""State -> the options whose value may have been too small, the most likely first."""

NO_OUTPUT = "0:53"
"""Slurm's exit code and signal of a job if its node cannot open the output file (seen with 24.11)."""

AFTER = {"TIMEOUT": "; or use --resume and --checkpoint to continue automatically"}


OF_A_NODE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names
"""Folders that are local to each node."""


def warn_before(plan: LaunchPlan, cwd: str) -> Iterator[str]:
    """Yield warnings before a submission: resources that are billed but not used, and files that may be lost."""
    for choice in plan.choices:
        if choice.key == ChoiceKey.BILLED:
            yield f"billed: {choice.value}; {choice.why}"
        if choice.key == ChoiceKey.CORES_PER_RANK and choice.value == SHARE and choice.source == "default":
            yield f"cores: {choice.why}"
    if _is_of_a_node(cwd):
        yield f"nodes may not see {cwd}, which is local to each machine: start from a shared folder"
    elif _is_of_a_node(plan.output):
        yield f"the output goes to {plan.output}, which may be local to a node: use --output with a shared folder"


def _is_of_a_node(path: str) -> bool:
    """Return whether a path lies in a folder that is usually local to each node."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in OF_A_NODE)


def true_state(state: str, output: str) -> str:
    """Return Slurm's state of a job, or OUT_OF_MEMORY if its output shows that the kernel killed a rank."""
    return "OUT_OF_MEMORY" if state.startswith("FAILED") and OUT_OF_MEMORY.search(output) else state


def no_output(facts: Mapping[str, str], output: str) -> str:
    """Explain a job whose output file slurmd could not open: Slurm reports only a signal.  Empty for any other job."""
    if facts.get("ExitCode") != NO_OUTPUT:
        return ""
    where = facts.get("BatchHost", "") or "its node"
    return f"{where} could not open {output or 'its output'}, or the folder of the job: use another --output"


def advise_end(state: str, script: str, sources: Mapping[str, str]) -> str:
    """Return the line of the script, or of the project file, that asks for too little; empty if none is known.

    Parameters
    ----------
    script
        The job's script; empty without a record.
    sources
        Option, for example ``--time`` -> file and line that it came from.
    """
    options = BEHIND.get(state.partition(" ")[0], ())
    if not options or not script:
        return ""
    return _line(options, script.splitlines(), sources) + AFTER.get(state, "")


def _line(options: Sequence[str], lines: Sequence[str], sources: Mapping[str, str]) -> str:
    for number, line in enumerate(lines, 1):
        for option in options:
            if line.startswith(f"#SBATCH --{option}="):
                source = sources.get(f"--{option}", "")
                where = source if re.search(r":\d+$", source) else f"line {number} of its script"
                return f"increase --{option}, which was {line.partition('=')[2]} ({where})"
    return f"add --{options[0]}, which the job did not have"
