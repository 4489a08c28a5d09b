"""Measure over several numbers of nodes: one job for each, submitted together and gathered into one result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from argosy.bench.stored import SWEEP
from argosy.core.errors import ArgosyError, UsageError
from argosy.core.store import write_text
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.model import LaunchRequest
from argosy.launch.submit import Launched


def parse_node_counts(text: str) -> tuple[int, ...]:
    """Parse numbers of nodes: ``4``, or several with commas, ``1,2,4,8,16``.

    Raises
    ------
    UsageError
        If one is not a number above 0.
    """
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"invalid --nodes {text!r}", hint="give one number, or several: --nodes 1,2,4,8,16")
    return tuple(dict.fromkeys(map(int, parts)))


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
