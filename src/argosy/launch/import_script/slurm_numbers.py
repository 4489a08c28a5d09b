"""Put the script's values in place of Slurm's variables that the job has not, or with another value; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from argosy.core.records import replace
from argosy.launch.import_script.model import Fate, Note
from argosy.launch.import_script.options import Shape
from argosy.sites.profile import Site
from argosy.slurm.sbatch_options import Option, complete_option
from argosy.slurm.script_words import Part, Word

NAME = re.compile(r"\bSLURM_\w+")
"""A variable of Slurm in arithmetic."""


OF_OPTIONS = {
    "gpus": "SLURM_GPUS",
    "gpus-per-node": "SLURM_GPUS_PER_NODE",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "cpus-per-gpu": "SLURM_CPUS_PER_GPU",
}
"""Options that become other options in the job -> the variable that sbatch sets from each."""


def option_numbers(options: Iterable[Option], site: Site) -> Mapping[str, str]:
    """Return the variables of options that the job does not have; some sites request GPUs by ``--gres`` only."""
    given = {complete_option(option.name): option.value for option in options}
    kept = {"gpus-per-node"} if site.name and site.slurm.gpu_option == "gpus-per-node" else set()
    return {variable: given[name] for name, variable in OF_OPTIONS.items() if given.get(name) and name not in kept}


def number_notes(texts: Iterable[str], numbers: Mapping[str, str]) -> Iterator[Note]:
    """Report the variables in texts that get the script's number."""
    used = {found[0] for text in texts for found in NAME.finditer(text)}
    for name in sorted(used & {*numbers}):
        yield f"${name}", Fate.REPLACED, f"the script's value {numbers[name]} is put where it is used"


def _task_numbers(shape: Shape, launcher: str) -> Mapping[str, str]:
    """Return the variables that have another value in the job than in the script.

    The job has one task without a launcher, and one task on each node with torchrun.
    """
    tasks = shape.ntasks or shape.ntasks_per_node * max(1, shape.nodes)
    if launcher not in {"", "torchrun"} or tasks <= (shape.nodes if launcher else 1):
        return {}
    numbers = {
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_NTASKS_PER_NODE": shape.ntasks_per_node,
        "SLURM_TASKS_PER_NODE": 0 if shape.nodes > 1 else tasks,
        "SLURM_CPUS_PER_TASK": shape.cpus_per_task,
    }
    return {name: str(number) for name, number in numbers.items() if number}


def _node_numbers(nodes: int, of_job: int) -> Mapping[str, str]:
    """Return the variables for the number of nodes if the job of a program needs fewer nodes than the script has."""
    return dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), str(nodes)) if of_job < nodes else {}


def changed_numbers(shape: Shape, nodes: int, launcher: str) -> Mapping[str, str]:
    """Return the variables that have another value in a job with this number of nodes than in the script."""
    return {**_task_numbers(shape, launcher), **_node_numbers(shape.nodes, nodes)}


def numbered_words(words: Iterable[Word], numbers: Mapping[str, str], *, has_script: bool) -> tuple[Word, ...]:
    """Return words with the numbers in place of their variables, also in the text of ``bash -c``."""
    return tuple(tuple(_numbered(part, numbers, is_script=has_script) for part in word) for word in words)


def numbered_text(text: str, numbers: Mapping[str, str]) -> str:
    """Return text of a shell with the numbers in place of their variables, also in ``$((…))``."""
    for name, number in numbers.items():
        text = re.sub(rf"\$\{{{name}(?::?[-=][^{{}}]*)?\}}|\${name}\b", number, text)
    pieces = re.split(r"(\$\(\(.*?\)\))", text)
    return "".join(
        NAME.sub(lambda found: numbers.get(found[0], found[0]), each) if at % 2 else each
        for at, each in enumerate(pieces)
    )


def _numbered(part: Part, numbers: Mapping[str, str], *, is_script: bool) -> Part:
    if part.kind == "variable" and part.text in numbers:
        return Part("text", numbers[part.text], quoted=part.quoted)
    return replace(part, text=numbered_text(part.text, numbers)) if part.kind == "shell" or is_script else part
