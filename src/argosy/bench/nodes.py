"""Test each node of a job alone, and exclude the bad nodes from the next job.

There is no rendezvous, so a node that hangs or has lost a GPU does not stop the others. The test program needs only
PyTorch, so its text is part of the job script.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey
from argosy.core.records import replace
from argosy.launch.model import LaunchRequest

NAME = "bench-nodes"
PROGRAM = Path(__file__).with_name("nodes_program.py")


def node_test_command() -> tuple[str, ...]:
    """Return the command that runs once on each node and tests every GPU that it sees there."""
    return ("python", "-c", PROGRAM.read_text(encoding="utf-8"))


def as_node_test(request: LaunchRequest) -> LaunchRequest:
    """Change a request so that its command runs once on each node, independently of the other nodes."""
    wanted = replace(request.wanted, ranks=request.wanted.nodes or 1)
    choice = Choice(ChoiceKey.NODE_TEST, "each node alone", "a bad node does not stop the others", "bench nodes")
    name = request.name or NAME
    measured = replace(request, wanted=wanted, name=name, launcher="none", independent_ranks=True, needs_torch=True)
    return replace(measured, choices=(*request.choices, choice))


def exclude_bad_nodes(request: LaunchRequest, bad_nodes_of: Callable[[str], tuple[str, ...]]) -> LaunchRequest:
    """Replace ``@JOB`` in ``--exclude`` by the bad nodes that a job of `argosy bench nodes` found.

    Parameters
    ----------
    bad_nodes_of
        Returns the bad nodes of a job number.

    Raises
    ------
    UsageError
        When the text after ``@`` is not a job number, or that job did not test nodes.
    """
    names, choices = [], []
    for name in request.options.exclude.split(","):
        job = name.strip().removeprefix("@")
        if job == name.strip():
            names.append(name)
            continue
        if not (job.isascii() and job.isdigit()):
            raise UsageError(
                f"invalid --exclude {name}: {job!r} is not a job number", hint="for example --exclude @12345"
            )
        nodes = bad_nodes_of(job)
        names += nodes
        choices.append(
            Choice(ChoiceKey.EXCLUDED_NODES, ",".join(nodes) or "no node", f"bad nodes of job {job}", "option")
        )
    options = replace(request.options, exclude=",".join(names))
    return replace(request, options=options, choices=(*request.choices, *choices))
