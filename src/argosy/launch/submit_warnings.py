"""Warn before a job is submitted: about costs, and about files that may be lost; pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from argosy.core.model import ChoiceKey
from argosy.jobs.launch_plan import SHARE, LaunchPlan

OF_A_NODE = ("/tmp", "/var/tmp", "/dev/shm", "/run")  # noqa: S108 - names
"""Folders that are local to each node."""


def warn_before_submission(plan: LaunchPlan, cwd: str) -> Iterator[str]:
    """Yield warnings before a submission: resources that are billed but not used, and files that may be lost."""
    for choice in plan.choices:
        if choice.key == ChoiceKey.BILLED:
            yield f"billed: {choice.value}; {choice.why}"
        if choice.key == ChoiceKey.CORES_PER_RANK and choice.value == SHARE and choice.source == "default":
            yield f"cores: {choice.why}"
    if _is_of_a_node(cwd):
        yield f"nodes may not see {cwd}, which is local to each machine: start from a shared folder"
    elif _is_of_a_node(plan.output):
        yield f"the output goes to {plan.output}, which may be local to a node: use --output with a shared folder"


def _is_of_a_node(path: str) -> bool:
    """Return whether a path lies in a folder that is usually local to each node."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in OF_A_NODE)
