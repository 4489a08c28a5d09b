"""Say which line to change where a job was ended for its time or its memory; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

OUT_OF_MEMORY = re.compile(r"\boom[-_ ]kill|\bOut Of Memory\b|OUT_OF_MEMORY", re.IGNORECASE)
"""What slurmstepd writes when the kernel ended a rank for its memory; the job's own state may still be FAILED."""

BEHIND: Mapping[str, tuple[str, ...]] = {
    "TIMEOUT": ("time",),
    "OUT_OF_MEMORY": ("mem-per-gpu", "mem", "mem-per-cpu"),
}
"""State -> options of which one was too small, the likelier first."""

AFTER = {"TIMEOUT": "; or let it go on by itself with --resume and --checkpoint"}


def true_state(state: str, output: str) -> str:
    """Give the state that tells most: memory, where the end of the output says so."""
    return "OUT_OF_MEMORY" if state.startswith("FAILED") and OUT_OF_MEMORY.search(output) else state


def advise_end(state: str, script: str, sources: Mapping[str, str]) -> str:
    """Give the line to change; empty where none is known.

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
