"""Refuse scripts of heterogeneous jobs, which Argosy does not start; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from argosy.core.errors import UsageError
from argosy.slurm.sbatch import HETEROGENEOUS_HINT
from argosy.slurm.script_reader import JobScript
from argosy.slurm.script_words import plain_text

SEPARATOR = re.compile(r"#SBATCH\s+(hetjob|packjob)\b")
"""The line between two components (sbatch(1)); before Slurm 20.02, it was ``packjob``."""

STEP_OPTION = re.compile(r"--(het|pack)-group\b")
"""The option of srun that selects components; a lone ``:`` separates the programs of one step (srun(1))."""


def refuse_heterogeneous(path: str, text: str, script: JobScript) -> None:
    """Refuse a job script whose components have different resources.

    Raises
    ------
    UsageError
        If the script is a heterogeneous job or starts a heterogeneous step.
    """
    for number, line in _components(text, script):
        raise UsageError(
            f"cannot import {path}: it is a heterogeneous job, and Argosy gives all nodes of a job the same resources",
            evidence=f"line {number}: {line}",
            hint=HETEROGENEOUS_HINT,
        )


def _components(text: str, script: JobScript) -> Iterator[tuple[int, str]]:
    """Yield each line that separates or selects components, with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        if SEPARATOR.match(line):
            yield number, line.strip()
    for command in script.commands:
        words = [plain_text(word) or "" for word in command.words]
        if words[:1] == ["srun"] and any(word == ":" or STEP_OPTION.match(word) for word in words):
            yield command.line, command.text.split("\n", 1)[0].rstrip(" \\")
