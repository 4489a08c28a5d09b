"""Advise after a job failed: the option that asked for too little, or the output that a node could not open; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
