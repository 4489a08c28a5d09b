"""Choose among the tasks of an array by the rows of scontrol, one for each task; pure."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from argosy.core.parse import parse_int
from argosy.slurm.queries import parse_exit_code
from argosy.slurm.states import ENDED, RUNNING, WAITING, describe_state, exit_code_of_state, state_word


def task_number(job: str, facts: dict[str, str]) -> str:
    """Return the number of a job, or of the array's task that these facts are about."""
    is_task = "ArrayJobId" in facts and facts.get("ArrayTaskId", "").isdigit()
    return f"{facts['ArrayJobId']}_{facts['ArrayTaskId']}" if is_task else job


def task_index(row: dict[str, str]) -> int:
    """Return the index of a task in its array; waiting tasks share one row, which comes last."""
    return parse_int(row.get("ArrayTaskId", "0"), sys.maxsize)


def choose_task(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """Choose the main task of an array: one that runs, else one that waits, else one that failed or was cancelled."""
    order = {RUNNING: 0, WAITING: 1, ENDED: 2}

    def rank(row: dict[str, str]) -> tuple[int, bool, bool, bool]:
        started = row.get("ArrayTaskId", "0").isdigit()
        return order[describe_state(row.get("JobState", ""))[0]], not _failed(row), not _cancelled(row), not started

    return min(rows, key=rank, default={})


def failed_tasks(job: str, rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """Return the tasks of an array that failed, if there are several; tasks that were cancelled did not fail.

    Tasks that never started share a row, whose index is a list.
    """
    ended = (row for row in sorted(rows, key=task_index) if describe_state(row.get("JobState", ""))[0] == ENDED)
    names = tuple(task_number(job, row) for row in ended if _failed(row) and row.get("ArrayTaskId", "0").isdigit())
    return names if len(names) > 1 else ()


def running_tasks(job: str, rows: Sequence[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the tasks of an array that run, and their nodes."""
    running = (row for row in sorted(rows, key=task_index) if describe_state(row.get("JobState", ""))[0] == RUNNING)
    return tuple((task_number(job, row), row.get("NodeList", "")) for row in running)


def _failed(row: dict[str, str]) -> bool:
    return not _cancelled(row) and not _ended_well(row)


def _cancelled(row: dict[str, str]) -> bool:
    return state_word(row.get("JobState", "")) == "CANCELLED"


def _ended_well(row: dict[str, str]) -> bool:
    return exit_code_of_state(row.get("JobState", ""), parse_exit_code(row.get("ExitCode", ""))) == 0
