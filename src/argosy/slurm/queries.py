"""Plan queries to squeue, scontrol and sacct, and parse their replies; pure.

Their parsable forms are read on every release: their JSON changed between 22.05 (``"COMPLETED"``) and 24.11
(``["COMPLETED"]``), the columns did not.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from argosy.core.parse import parse_int
from argosy.core.process import Argv


def known_value(text: str) -> str:
    """Return a value that Slurm shows; empty for its words for no value."""
    return "" if text in {"(null)", "None", "None assigned", "N/A"} else text


def is_job_id(text: str) -> bool:
    """Return whether a text is the number of a job, a task of an array or a component: ``7``, ``7_2``, ``7+1``."""
    return bool(re.fullmatch(r"[1-9]\d{0,17}([_+]\d{1,18})?", text))


def base_number(job: str) -> str:
    """Return the number of a job that a task of an array or a component belongs to; its own number for other jobs."""
    return re.split("[_+]", job)[0]


def has_task(array: str, task: int) -> bool:
    """Return whether an array (``--array``: ``1,4-10:2%3``) has a task."""
    return any(task in tasks for tasks in _task_ranges(array))


def share_task(one: str, other: str) -> bool:
    """Return whether two lists of tasks of an array have a task in common."""
    pairs = itertools.product(_task_ranges(one), _task_ranges(other))
    return any(any(task in longer for task in shorter) for shorter, longer in (sorted(pair, key=len) for pair in pairs))


def _task_ranges(array: str) -> Iterator[range]:
    for part in array.strip("[]").partition("%")[0].split(","):
        numbers, _, step = part.partition(":")
        first, _, last = numbers.partition("-")
        if first.isdigit():
            yield range(int(first), parse_int(last or first) + 1, max(1, parse_int(step, 1)))


class JobRow(msgspec.Struct, frozen=True):
    """A job as squeue lists it; times are in Slurm's notation."""

    id: str
    state: str
    reason: str
    start: str
    nodes: str
    elapsed: str
    limit: str
    partition: str
    node_list: str
    name: str


SQUEUE_FORMAT = "%i|%T|%r|%S|%D|%M|%l|%P|%N|%j"
"""The name is last, because it may contain a bar."""


def plan_squeue(*, ended: bool = False) -> Argv:
    """Return the command that lists the waiting and running jobs of the user who starts it.

    With `ended`, jobs that ended in the last minutes are listed, too.

    Without ``--all``, squeue omits jobs in hidden partitions, and in those that the user may not use (squeue(1)).
    """
    states = ("--states=all",) if ended else ()
    return ("squeue", "--all", "--noheader", *states, "--format", SQUEUE_FORMAT, "--me")


def parse_squeue(text: str) -> tuple[JobRow, ...]:
    """Parse the rows of squeue."""
    width = SQUEUE_FORMAT.count("|")
    rows = (line.split("|", width) for line in text.splitlines() if line.count("|") >= width)
    return tuple(JobRow(*(cell.strip() for cell in row)) for row in rows)


def sort_tasks(rows: Sequence[JobRow]) -> tuple[JobRow, ...]:
    """Sort the tasks of each array by number; jobs stay in their order. Tasks that wait share a row: ``7_[3-5%2]``."""
    place = {base_number(row.id): number for number, row in reversed([*enumerate(rows)])}

    def order(row: JobRow) -> tuple[int, int]:
        first = re.match(r"\d+", row.id.partition("_")[2].lstrip("["))
        return place[base_number(row.id)], parse_int(first[0]) if first else 0

    return tuple(sorted(rows, key=order))


PATIENCE_S = "10"
"""Time limit of a query about scripts, in seconds: a user who stopped a command waits for the answer."""


def plan_squeue_scripts(user: str, *, ended: bool = False) -> Argv:
    """Return the command that lists the scripts of a user's jobs; with `ended`, also of those that just ended."""
    states = ("--states=all",) if ended else ()
    return ("timeout", PATIENCE_S, "squeue", "--all", "--noheader", *states, "--format=%F|%o", "--user", user)


def parse_squeue_scripts(text: str, script: str) -> str:
    """Return the number of the job that runs a script, from the reply to `plan_squeue_scripts`; empty without one."""
    rows = (line.partition("|") for line in text.splitlines())
    return next((number for number, _, command in rows if command.strip() == script), "")


NO_INDEX = "4294967294"
"""Slurm's NO_VAL (slurm.h): the index of tasks that wait, which share a row."""


def parse_scontrol_jobs(text: str, job: str) -> tuple[dict[str, str], ...]:
    """Parse ``scontrol show job --oneliner JOB``: a row for each task or component.

    The name or comment of a job may contain line breaks, and even rows of other jobs that somebody copied there.  The
    row of tasks that wait has no output: scontrol (24.11) prints its number for no value in place of their index.
    """
    number = base_number(job)
    start = re.compile(rf"^JobId=(?:{number} |\d+ (?:ArrayJobId|HetJobId)={number} )", re.MULTILINE)
    starts = [match.start() for match in start.finditer(text)]
    rows = [parse_scontrol_job(text[each:end]) for each, end in pairwise((*starts, len(text)))]
    for row in rows:
        if NO_INDEX in row.get("StdOut", ""):
            del row["StdOut"]
    return tuple(rows)


def parse_scontrol_job(text: str) -> dict[str, str]:
    """Parse one row of ``scontrol show --oneliner``: ``Key=Value`` pairs; a value may contain blanks.

    Arguments of the program (``lr=0.1``), the submit line (25.05) and comments follow after the command.  They do not
    replace earlier values.
    """
    head, command, rest = text.strip().partition(" Command=")
    form = re.compile(r"(?:^| )([A-Za-z][\w:/]*)=(.*?)(?= [A-Za-z][\w:/]*=|\Z)", re.DOTALL)
    return dict(form.findall((command + rest).rstrip())) | dict(form.findall(head))


def other_user(facts: Mapping[str, str], uid: int) -> str:
    """Return the user of a job (scontrol: ``UserId=bob(1002)``); empty for the user with this number, or if unknown."""
    name, _, number = facts.get("UserId", "").partition("(")
    return "" if number.rstrip(")") == str(uid) else name


SACCT_FIELDS = {"JobState": "State", "ExitCode": "ExitCode", "NodeList": "NodeList", "JobId": "JobIDRaw"}
"""Key of scontrol -> field of sacct."""


def plan_sacct(job: str) -> Argv:
    """Return the command that asks the accounting about the last run of a job."""
    columns = ",".join(("JobID", *SACCT_FIELDS.values()))
    return ("sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={job}", f"--format={columns}")


def parse_sacct(text: str, job: str) -> dict[str, str]:
    """Parse the reply to `plan_sacct` into scontrol's keys; empty for an unknown job.

    The tasks of an array have rows of their own; a task that failed comes first, then one that was cancelled.
    """
    rows = [line.split("|") for line in text.splitlines() if line.count("|") == len(SACCT_FIELDS)]
    whole = [row for row in rows if job in (row[0], row[-1]) and not row[0].startswith(f"{job}_")]
    tasks = [row for row in rows if row[0].startswith(f"{job}_")]
    tasks.sort(key=lambda row: (row[1] == "COMPLETED", row[1].startswith("CANCELLED")))
    preferred = [*whole[-1:], *tasks]
    if not preferred:
        return {}
    array, _, task = preferred[0][0].partition("_")
    number = {"ArrayJobId": array, "ArrayTaskId": task} if task else {}
    return dict(zip(SACCT_FIELDS, preferred[0][1:], strict=True)) | number


def parse_exit_code(text: str) -> int:
    """Parse Slurm's ``code:signal`` into a shell's exit code: 128 + signal if a signal ended the job."""
    code, _, number = text.partition(":")
    ended_by = parse_int(number)
    return 128 + ended_by if ended_by else parse_int(code, 1)
