"""Try each node of a job alone, and leave out those that were found bad; pure, but for the file of the program.

There is no rendezvous: a node that hangs, or has lost a GPU, keeps none of the others from answering.  The program
needs torch and nothing of Argosy, so its text is part of the job script.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey
from argosy.core.records import replace
from argosy.launch.model import LaunchRequest

__all__ = ["TRIAL", "as_trial", "leave_out", "trial_command"]

TRIAL: Final = ChoiceKey.NODE_TEST
"""What the choice is called by which a plan tells that it tries nodes."""
NAME = "bench-nodes"
PROGRAM = Path(__file__).with_name("nodes_program.py")


def trial_command() -> tuple[str, ...]:
    """Give the command that runs once on each node, and tries every GPU that it sees there."""
    return ("python", "-c", PROGRAM.read_text(encoding="utf-8"))


def as_trial(request: LaunchRequest) -> LaunchRequest:
    """Give the request by which the command runs once on each node, whatever becomes of the others."""
    wanted = replace(request.wanted, ranks=request.wanted.nodes or 1)
    told = Choice(TRIAL, "each node alone", "a node that fails or hangs keeps no other from answering", "bench nodes")
    name = request.name or NAME
    measured = replace(request, wanted=wanted, name=name, launcher="none", apart=True, needs_torch=True)
    return replace(measured, choices=(*request.choices, told))


def leave_out(request: LaunchRequest, bad_nodes_of: Callable[[str], tuple[str, ...]]) -> LaunchRequest:
    """Put the nodes that a trial found bad in the place of ``@JOB`` in ``--exclude``.

    Parameters
    ----------
    bad_nodes_of
        Gives them for the number of a job.

    Raises
    ------
    UsageError
        When what follows the ``@`` is no number of a job, or that job tried no nodes.
    """
    words, told = [], []
    for word in request.options.exclude.split(","):
        job = word.strip().removeprefix("@")
        if job == word.strip():
            words.append(word)
            continue
        if not (job.isascii() and job.isdigit()):
            raise UsageError(f"--exclude {word}: {job!r} is no number of a job", hint="as in --exclude @12345")
        nodes = bad_nodes_of(job)
        words += nodes
        told.append(
            Choice(ChoiceKey.EXCLUDED_NODES, ",".join(nodes) or "no node", f"what job {job} found bad", "option")
        )
    options = replace(request.options, exclude=",".join(words))
    return replace(request, options=options, choices=(*request.choices, *told))
