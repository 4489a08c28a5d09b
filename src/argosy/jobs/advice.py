"""Say what a user should know of a job before and after: what it bills, what it loses, which line to change; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from argosy.core.model import ChoiceKey
from argosy.jobs.launch_plan import SHARE, LaunchPlan

OUT_OF_MEMORY = re.compile(r"\boom[-_ ]kill|\bOut Of Memory\b|OUT_OF_MEMORY", re.IGNORECASE)
"""What slurmstepd writes when the kernel ended a rank for its memory; the job's own state may still be FAILED."""

BEHIND: Mapping[str, tuple[str, ...]] = {
    "TIMEOUT": ("time",),
    "OUT_OF_MEMORY": ("mem-per-gpu", "mem", "mem-per-cpu"),
}
"""State -> options of which one was too small, the likelier first."""

NO_OUTPUT = "0:53"
"""What Slurm tells as code and signal of a job whose output its node cannot open (seen with 24.11)."""

AFTER = {"TIMEOUT": "; or let it go on by itself with --resume and --checkpoint"}


OF_A_NODE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names
"""Folders that each node has for itself."""


def warn_before(plan: LaunchPlan, cwd: str) -> Iterator[str]:
    """Give the warnings of a submission: of a bill for more than the job uses, and of files that may be lost."""
    for choice in plan.choices:
        if choice.key == ChoiceKey.BILLED:
            yield f"billed: {choice.value}; {choice.why}"
        if choice.key == ChoiceKey.CORES_PER_RANK and choice.value == SHARE and choice.source == "default":
            yield f"cores: {choice.why}"
    if _is_of_a_node(cwd):
        yield f"nodes may not see {cwd}, since each machine has its own: start from a folder that all nodes see"
    elif _is_of_a_node(plan.output):
        yield f"the output goes to {plan.output}, which may be a node's own: name one that all nodes see by --output"


def _is_of_a_node(path: str) -> bool:
    """Tell whether a path lies in a folder that each node usually has for itself."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in OF_A_NODE)


def true_state(state: str, output: str) -> str:
    """Give Slurm's state of a job, or OUT_OF_MEMORY where the end of its output says that the kernel killed a rank."""
    return "OUT_OF_MEMORY" if state.startswith("FAILED") and OUT_OF_MEMORY.search(output) else state


def no_output(facts: Mapping[str, str], output: str) -> str:
    """Explain a job whose output file slurmd could not open: Slurm reports only a signal.  Empty for any other job."""
    if facts.get("ExitCode") != NO_OUTPUT:
        return ""
    where = facts.get("BatchHost", "") or "its node"
    return f"{where} could not open {output or 'its output'}, or the folder that it runs in: name another by --output"


def advise_end(state: str, script: str, sources: Mapping[str, str]) -> str:
    """Name the line of the script, or of the project file, that asks for too little; empty where none is known.

    Parameters
    ----------
    script
        The job's script; empty where there is no record of it.
    sources
        Option, as ``--time`` -> file and line that it came from.
    """
    options = BEHIND.get(state.split(maxsplit=1)[0] if state else "", ())
    if not options or not script:
        return ""
    return _line(options, script.splitlines(), sources) + AFTER.get(state, "")


def _line(options: Sequence[str], lines: Sequence[str], sources: Mapping[str, str]) -> str:
    for number, line in enumerate(lines, 1):
        for option in options:
            if line.startswith(f"#SBATCH --{option}="):
                source = sources.get(f"--{option}", "")
                where = source if re.search(r":\d+$", source) else f"line {number} of its script"
                return f"change --{option}, which was {line.partition('=')[2]} ({where})"
    return f"the job named no --{options[0]}: add it"
