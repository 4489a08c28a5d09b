"""The states of a job, its exit code, the reasons why it waits, and the tasks of an array by their states; pure."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence

from argosy.core.parse import parse_int
from argosy.slurm.queries import parse_exit_code

WAITING, RUNNING, ENDED = "waiting", "running", "ended"


STATES: Mapping[str, tuple[str, str]] = {
    "PENDING": (WAITING, "waits in the queue"),
    "REQUEUED": (WAITING, "was requeued"),
    "REQUEUE_HOLD": (WAITING, "was requeued and is held: scontrol release"),
    "REQUEUE_FED": (WAITING, "was requeued in the federation"),
    "SPECIAL_EXIT": (WAITING, "was requeued with a special exit code, and is held"),
    "EXPEDITING": (WAITING, "was requeued, and starts before other jobs"),
    "RESV_DEL_HOLD": (WAITING, "is held: its reservation was deleted"),
    "CONFIGURING": (RUNNING, "its nodes are getting ready"),
    "RUNNING": (RUNNING, "runs"),
    "COMPLETING": (RUNNING, "is ending"),
    "STAGE_OUT": (RUNNING, "copies its files out"),
    "SIGNALING": (RUNNING, "is being signalled"),
    "STOPPED": (RUNNING, "is stopped, and keeps its nodes"),
    "SUSPENDED": (RUNNING, "is suspended"),
    "RESIZING": (RUNNING, "changes its size"),
    "COMPLETED": (ENDED, "ended well"),
    "FAILED": (ENDED, "ended with an error"),
    "CANCELLED": (ENDED, "was cancelled"),
    "TIMEOUT": (ENDED, "reached its time limit: request more with --time"),
    "OUT_OF_MEMORY": (ENDED, "ran out of memory: request more with --mem"),
    "NODE_FAIL": (ENDED, "lost a node: launch it again; with --resume it continues automatically"),
    "BOOT_FAIL": (ENDED, "a node did not boot"),
    "DEADLINE": (ENDED, "reached its deadline"),
    "PREEMPTED": (ENDED, "was preempted by another job"),
    "LAUNCH_FAILED": (ENDED, "could not be started on its nodes"),
    "RECONFIG_FAIL": (ENDED, "its nodes could not be reconfigured"),
    "REVOKED": (ENDED, "runs on another cluster of the federation"),
    "UNKNOWN": (
        ENDED,
        "has left the queue, but how it ended is not known: Slurm does not list it, and no end was recorded",
    ),
}
"""State of Slurm 22.05 to 26.05 (squeue(1)), or `FORGOTTEN` -> its kind, and its meaning for users."""

FORGOTTEN = "UNKNOWN"
"""State of a job that has left the queue, if neither Slurm nor the job's record knows its end."""


HALTED = frozenset({"SUSPENDED", "STOPPED"})
"""States of a job that has nodes, but in which Slurm starts no step."""


def state_word(state: str) -> str:
    """Return the name of a state, for example ``CANCELLED`` for ``CANCELLED by 2001`` and ``CANCELLED+``."""
    return next(iter(state.split(maxsplit=1)), "").rstrip("+")


def describe_state(state: str) -> tuple[str, str]:
    """Return kind and meaning of a state; a state that is not in the table counts as running."""
    return STATES.get(state_word(state), (RUNNING, f"is {state}"))


FROM_OUTSIDE = frozenset({"CANCELLED", "DEADLINE", "PREEMPTED", "TIMEOUT"})


OUT_OF_MEMORY_SIGNAL = 125
"""The signal number that Slurm invents for a job that ran out of memory: ``0:125`` (SIG_OOM in its slurm.h)."""


KILLED = 137
"""Exit code of a process that the kernel killed for its memory, with SIGKILL."""


def exit_code_of_state(state: str, code: int) -> int:
    """Return the exit code of an ended job, which is never 0 for a failed one, unlike Slurm's ExitCode."""
    name = state_word(state)
    if code == 128 + OUT_OF_MEMORY_SIGNAL and name == "OUT_OF_MEMORY":
        return KILLED
    if code or name == "COMPLETED":
        return code
    return 143 if name in FROM_OUTSIDE else 1


CLOSED = "the partition is closed: wait, or use another --partition"
NOT_TAKEN = "the partition does not accept its account or QOS: 'argosy queues' shows yours"


STUCK = (
    (r"DependencyNeverSatisfied", "it will never start: the job that it waits for failed; argosy cancel {job}"),
    (r"JobHeldUser", "it is held: scontrol release {job}"),
    (r"JobHeldAdmin", "an administrator holds it: ask the support team"),
    (r"launch.failed.requeued.held", "its start failed on a node, and it is held: scontrol release {job}"),
    (r"BadConstraints", "no node has the requested resources: cancel it, and request less"),
    (r"PartitionTimeLimit", "its --time is above the limit of the partition: argosy cancel {job}, and request less"),
    (r"PartitionNodeLimit", "its --nodes are above the limit of the partition: argosy cancel {job}, and request fewer"),
    (
        r"PartitionConfig",
        "the partition has fewer nodes or cores than it requests, or excludes it: argosy cancel {job}; request less",
    ),
    (
        r"MaxMemPerLimit",
        "its memory is above the limit of the partition: argosy cancel {job}, and request less with --mem",
    ),
    (r"QOSMin\w+", "it requests less than its QOS demands: argosy cancel {job}, and request more or use another --qos"),
    (r"Partition(Down|Inactive)", CLOSED),
    (
        r"uid[ _]\d+[ _]not[ _]in[ _]group[ _].*",
        "you may not use that partition: argosy cancel {job}, and use another",
    ),
    (r"Invalid(Account|QOS)|(Account|QOS)NotAllowed", NOT_TAKEN),
    (
        r"(QOS|Assoc)Max\w+Per(Job|Node)\w*",
        "it requests more than its QOS or account allows for one job: 'argosy queues'",
    ),
    (
        r"(QOS|Assoc)Grp(?!\w*Run)\w*Minutes\w*",
        "the account's budget is used up: ask its owner, or use another account",
    ),
)
"""Pattern of a reason that does not resolve itself (squeue(1), JOB REASON CODES) -> hint."""


def advise_waiting(reason: str, job: str) -> str:
    """Return the hint for a waiting job whose reason does not resolve itself; empty for other reasons."""
    word = reason.partition(",")[0]
    advice = next((text for pattern, text in STUCK if re.fullmatch(pattern, word)), "")
    return advice.replace("{job}", job)


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
        return (
            order[describe_state(row.get("JobState", ""))[0]],
            not _has_failed(row),
            not _is_cancelled(row),
            not started,
        )

    return min(rows, key=rank, default={})


def failed_tasks(job: str, rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """Return the tasks of an array that failed, if there are several; tasks that were cancelled did not fail.

    Tasks that never started share a row, whose index is a list.
    """
    ended = (row for row in sorted(rows, key=task_index) if describe_state(row.get("JobState", ""))[0] == ENDED)
    names = tuple(task_number(job, row) for row in ended if _has_failed(row) and row.get("ArrayTaskId", "0").isdigit())
    return names if len(names) > 1 else ()


def running_tasks(job: str, rows: Sequence[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the tasks of an array that run, and their nodes."""
    running = (row for row in sorted(rows, key=task_index) if describe_state(row.get("JobState", ""))[0] == RUNNING)
    return tuple((task_number(job, row), row.get("NodeList", "")) for row in running)


def _has_failed(row: dict[str, str]) -> bool:
    return not _is_cancelled(row) and not _has_ended_well(row)


def _is_cancelled(row: dict[str, str]) -> bool:
    return state_word(row.get("JobState", "")) == "CANCELLED"


def _has_ended_well(row: dict[str, str]) -> bool:
    return exit_code_of_state(row.get("JobState", ""), parse_exit_code(row.get("ExitCode", ""))) == 0
