"""Put the script's numbers of tasks in place of Slurm's variables in a job that has one task on a node; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from argosy.core.records import replace
from argosy.core.script_words import Part, Word
from argosy.launch.import_script.options import Shape

NAME = re.compile(r"\bSLURM_\w+")
"""A variable of Slurm in arithmetic."""


def task_numbers(shape: Shape) -> Mapping[str, str]:
    """Return the variables that have another value in the job than in the script, which starts its program once."""
    tasks = shape.ntasks or shape.ntasks_per_node * max(1, shape.nodes)
    if tasks <= 1:
        return {}
    numbers = {
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": shape.ntasks_per_node,
        "SLURM_TASKS_PER_NODE": 0 if shape.nodes > 1 else tasks,
        "SLURM_CPUS_PER_TASK": shape.cpus_per_task,
    }
    return {name: str(number) for name, number in numbers.items() if number}


def numbered_words(words: Iterable[Word], numbers: Mapping[str, str]) -> tuple[Word, ...]:
    """Return words with the numbers in place of their variables."""
    return tuple(tuple(_numbered(part, numbers) for part in word) for word in words)


def numbered_text(text: str, numbers: Mapping[str, str]) -> str:
    """Return text of a shell with the numbers in place of their variables, also in ``$((…))``."""
    for name, number in numbers.items():
        text = re.sub(rf"\$\{{{name}(?::?[-=][^{{}}]*)?\}}|\${name}\b", number, text)
    pieces = re.split(r"(\$\(\(.*?\)\))", text)
    return "".join(
        NAME.sub(lambda found: numbers.get(found[0], found[0]), each) if at % 2 else each
        for at, each in enumerate(pieces)
    )


def _numbered(part: Part, numbers: Mapping[str, str]) -> Part:
    if part.kind == "variable" and part.text in numbers:
        return Part("text", numbers[part.text], quoted=part.quoted)
    return replace(part, text=numbered_text(part.text, numbers)) if part.kind == "shell" else part
