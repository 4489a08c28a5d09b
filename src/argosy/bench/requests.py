"""Launch requests of benchmarks: collective operations, also over several numbers of nodes, and tests of nodes.

The programs need only PyTorch, so their text is part of the job script, and any launcher can start them. A node test
has no rendezvous: a node that hangs or has lost a GPU does not stop the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from argosy.bench.result import SWEEP
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.model import Choice, ChoiceKey
from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.launch.submit import Launched

OPERATIONS: Final = ("all_reduce", "all_gather", "broadcast")
"""Operations that can be measured."""

COLLECTIVES_PROGRAM = Path(__file__).with_name("collectives_program.py")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST, MOST = 4, 64 << 30

NODES_NAME = "bench-nodes"
NODES_PROGRAM = Path(__file__).with_name("nodes_program.py")


def benchmark_command(operation: str, most: str) -> tuple[str, ...]:
    """Return the command of a rank.

    Parameters
    ----------
    most
        Largest message of a rank, for example ``256M``; empty for the default of the device.

    Raises
    ------
    UsageError
        If `most` is not a size, or too small or too large.
    """
    program = COLLECTIVES_PROGRAM.read_text(encoding="utf-8")
    return ("python", "-c", program, operation, str(parse_size(most) if most else 0))


def as_benchmark(request: LaunchRequest, operation: str) -> LaunchRequest:
    """Change a request of `benchmark_command`: a name of its own, and an image with PyTorch."""
    return replace(request, name=request.name or f"bench-{operation}", needs_torch=True)


def parse_size(text: str) -> int:
    """Parse a size: a number of bytes, with K, M or G for powers of 1024.

    Raises
    ------
    UsageError
        If it is not a size, or not between 4 bytes (one number) and 64 GiB.
    """
    digits = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (digits[:-1], digits[-1:]) if digits[-1:] in UNITS else (digits, "")
    size = parse_int(number) * UNITS[unit]
    if not LEAST <= size <= MOST:
        raise UsageError(f"invalid message size {text!r}", hint="for example 64K, 256M or 4G; at most 64G")
    return size


def node_test_command() -> tuple[str, ...]:
    """Return the command that runs once on each node and tests every GPU that it sees there."""
    return ("python", "-c", NODES_PROGRAM.read_text(encoding="utf-8"))


def as_node_test(request: LaunchRequest) -> LaunchRequest:
    """Change a request so that its command runs once on each node, independently of the other nodes."""
    resources = replace(request.resources, ranks=request.resources.nodes or 1)
    choice = Choice(ChoiceKey.NODE_TEST, "each node alone", "a bad node does not stop the others", "bench nodes")
    name = request.name or NODES_NAME
    measured = replace(
        request, resources=resources, name=name, launcher="none", independent_ranks=True, needs_torch=True
    )
    return replace(measured, choices=(*request.choices, choice))


def parse_node_counts(text: str) -> tuple[int, ...]:
    """Parse numbers of nodes: ``4``, or several with commas, ``1,2,4,8,16``.

    Raises
    ------
    UsageError
        If one is not a number above 0.
    """
    counts = tuple(map(parse_int, text.split(",")))
    if not all(counts):
        raise UsageError(f"invalid --nodes {text!r}", hint="give one number, or several: --nodes 1,2,4,8,16")
    return tuple(dict.fromkeys(counts))


def launch_sweep(
    requests: Sequence[LaunchRequest],
    preview: Callable[[LaunchRequest], LaunchPlan],
    start: Callable[[LaunchRequest], Launched],
) -> tuple[Launched, ...]:
    """Submit a job for each request, and note the numbers of all of them in the record of each.

    Parameters
    ----------
    preview
        Plans a request without starting it. All requests are planned first, so that an error starts nothing.

    Raises
    ------
    UsageError
        If the site has no scheduler.
    ArgosyError
        If a job cannot be submitted; the evidence lists the jobs before it.
    """
    for request in requests:
        if not preview(request).is_job:
            raise UsageError(
                "several numbers of nodes need a cluster with Slurm", hint="name its profile with --site, or use --ssh"
            )
    launched: list[Launched] = []
    try:
        for request in requests:
            launched.append(start(request))  # noqa: PERF401 - the jobs before an error are reported
    except ArgosyError as error:
        jobs = ", ".join(each.job for each in launched)
        if jobs:
            error.evidence = f"{error.evidence}\nsubmitted before: {jobs}".strip()
        raise
    finally:
        note = json.dumps({"jobs": [each.job for each in launched]}) + "\n"
        for each in launched:
            write_text(Path(each.record) / SWEEP, note)
    return tuple(launched)
