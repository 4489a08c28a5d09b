"""Find out about submitted jobs: their state, output, end and ranks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import parse_int, render_cpulist
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.suggest import suggest_word
from argosy.jobs.advice import advise, advise_after_smoke
from argosy.jobs.first_failure import RankEnd, find_first_failure, true_state
from argosy.jobs.launch_plan import NO_PLAN
from argosy.jobs.outputs import can_read, find_output, find_outputs, of_batch, read_last_lines, read_tail
from argosy.jobs.record import (
    RankFacts,
    Run,
    adopt_record,
    find_record,
    is_cancelled,
    last_run,
    read_first,
    read_plan,
    read_ranks,
    read_runs,
    read_submission,
)
from argosy.jobs.remote_record import copy_notes, copy_output, session_of
from argosy.jobs.scheduler import ask_accounting, ask_controller
from argosy.slurm.calls import no_answer, says_no_answer
from argosy.slurm.queries import (
    has_task,
    is_job_id,
    known_value,
    other_user,
    parse_exit_code,
)
from argosy.slurm.states import (
    ENDED,
    FORGOTTEN,
    KILLED,
    WAITING,
    choose_task,
    describe_state,
    exit_code_of_state,
    failed_tasks,
    running_tasks,
    state_word,
    task_index,
    task_number,
)

DEFAULT_SECONDS = 5.0
"""Seconds between two questions about a job if its site does not say."""

LAST_BYTES = 262_144
"""Bytes read from the end of an output: enough for the error reports of some hundred ranks."""


UNKNOWN_STATE = "not known"
NO_ANSWER = "may run or have ended: the Slurm controller does not answer"
"""Placeholder state and its meaning if the controller does not answer."""


class JobFacts(msgspec.Struct, frozen=True):
    """Facts about one job from the scheduler and the job's record."""

    id: str
    state: str
    kind: str
    """``waiting``, ``running`` or ``ended``."""
    meaning: str
    """Description of the state."""
    reason: str
    nodes: str
    output: str
    code: int | None
    """Exit code of an ended job: that of the rank that failed first, if the output shows it; None if it is unknown."""
    restarts: int
    record: str
    """Folder with the script and its plan; empty if Argosy did not submit the job."""
    first: RankEnd | None = None
    """The rank that failed first."""
    advice: str = ""
    """The line to change if time or memory was too small, or what to do if the job waits for the user."""
    submitted: str = ""
    """Time of submission in ISO 8601; empty if Argosy did not submit the job."""
    queued: str = ""
    """When Slurm put the job into the queue the last time, by Slurm's clock, in ISO 8601 without a time zone."""
    runs: tuple[Run, ...] = ()
    """Its runs that ended, with nodes, times and codes."""
    ranks: tuple[RankFacts, ...] = ()
    """Host, cores and GPUs of each rank of the last run, as the rank saw them."""
    last_lines: tuple[str, ...] = ()
    """The last lines of the rank that failed first, else of the job; only for a failed job."""
    outputs: tuple[str, ...] = ()
    """Files of all tasks of an array; the other fields are those of the task in `id`."""
    start: str = ""
    """Start that Slurm expects for a waiting job, in ISO 8601; empty if it does not estimate one."""
    began: str = ""
    ended: str = ""
    """Start and end of the last run by Slurm's clock, in ISO 8601 without a time zone; empty if unknown."""
    partition: str = ""
    account: str = ""
    time_limit: str = ""
    """Values of Slurm; empty if it does not know the job any more."""
    failed_tasks: tuple[str, ...] = ()
    """Tasks of an array that failed, if there are several."""
    number: str = ""
    """Slurm's own number of the job, or of the array's task in `id`; empty if Slurm does not know the job any more."""
    running_tasks: tuple[tuple[str, str], ...] = ()
    """Tasks of an array that run, and their nodes."""
    other_user: str = ""
    """The user of a job that this user did not submit."""
    is_local: bool = False
    """Whether it is a run on this machine, without Slurm."""

    @property
    def subject(self) -> str:
        """``job 7``, or ``run NAME`` for a run on this machine."""
        return f"{'run' if self.is_local else 'job'} {self.id}"

    @property
    def failed_ranges(self) -> str:
        """The failed tasks as Slurm writes them, for example ``7_[0-2,5]``."""
        job, _, task = next(iter(self.failed_tasks), "").partition("_")
        if not task:
            return ", ".join(self.failed_tasks)
        return f"{job}_[{render_cpulist(parse_int(each.partition('_')[2]) for each in self.failed_tasks)}]"

    @property
    def verdict(self) -> str:
        """How the job ended, in one line."""
        why = f": {self.first.text}" if self.first else ""
        advice = f"\n  -> {self.advice}" if self.advice else ""
        others = f"; {len(self.failed_tasks)} tasks failed: {self.failed_ranges}" if self.failed_tasks else ""
        code = "" if self.code is None else f" (code {self.code})"
        return f"{self.subject} {self.meaning}{code}{why}{others}{advice}"


def find_job(session: Session, job: str, *, or_record: bool = False) -> JobFacts:
    """Return the facts about one job from the scheduler and the job's record.

    Parameters
    ----------
    or_record
        Whether to use only the record if the controller does not answer: its output, and its end if it is recorded.

    Raises
    ------
    UsageError
        If the text is not a job number, or neither Slurm nor a record knows the job.
    CheckFailed
        If the controller does not answer.
    """
    job = _parse_number(job)
    record, user = find_record(session, job), session.host.person.name
    session = session_of(session, record)
    reply, rows = ask_controller(session, job)
    if says_no_answer(reply.stderr):
        if record is None or not or_record:
            raise no_answer(reply)
        return _read_without_controller(session, job, record)
    facts = choose_task(rows) or ask_accounting(session, job)
    record = record or _record_of(session, facts)
    if not facts and (record is None or not may_have(record, job)):
        raise UsageError(
            f"there is no job {job}", evidence=reply.stderr.strip(), hint="see your jobs with 'argosy jobs'"
        )
    outputs = _outputs_of(rows) or find_outputs(record, job, user)
    owner = "" if record else other_user(facts, session.host.person.uid)  # by ssh, the user may have another number
    if record and read_submission(record).ssh:
        facts, outputs = _with_copies(session, facts, outputs, record, job)
    found = _join(task_number(job, facts), facts, record, user)
    if not found.advice and not found.runs and found.state in {FORGOTTEN, "CANCELLED"}:
        found = replace(found, advice=advise_after_smoke(session, found.record))
    found = replace(found, other_user=owner)
    if facts.get("ArrayJobId") == job:
        found = _with_tasks(found, job, rows, outputs)
        return replace(found, runs=read_runs(record), running_tasks=running_tasks(job, rows))
    # Several rows are the components of a job; several outputs are those of an array that Slurm does not list any more.
    return _with_tasks(found, job, rows, outputs) if max(len(rows), len(outputs)) > 1 else found


def _parse_number(text: str) -> str:
    """Return the number of a job; of tasks that wait, as squeue prints them (``7_[3-5%2]``), that of their array."""
    job = re.sub(r"_\[[\d,%-]+\]$", "", text)
    if not is_job_id(job):  # without a number, or for 0, scontrol lists all jobs
        near = "did you mean last? " if suggest_word(job, ("last",)) else ""
        raise UsageError(f"{job!r} is not a job number", hint=f"{near}see your jobs with 'argosy jobs'")
    return job


def _read_without_controller(session: Session, job: str, record: Path) -> JobFacts:
    """Return what the record shows of a job while the controller does not answer."""
    session.reporter.note("the Slurm controller does not answer; this is from the job's record")
    if read_runs(record) and not may_run_again(record):
        return read_past_facts(session, job, record)
    found = _join(job, {"JobState": UNKNOWN_STATE}, record, session.host.person.name)
    return replace(found, meaning=NO_ANSWER)


def _outputs_of(rows: Sequence[dict[str, str]]) -> tuple[str, ...]:
    """Return the output files in the rows of scontrol, in the order of the tasks; each file once."""
    return tuple(dict.fromkeys(of_batch(row) for row in sorted(rows, key=task_index) if row.get("StdOut")))


def _with_tasks(found: JobFacts, job: str, rows: Sequence[dict[str, str]], outputs: tuple[str, ...]) -> JobFacts:
    """Return the facts of a main task with what concerns all tasks: outputs, failures, and the number if all succeeded.

    The main task is one that failed, if there is one: its success is that of the whole array.
    """
    has_succeeded = found.kind == ENDED and found.code == 0
    return replace(found, id=job if has_succeeded else found.id, outputs=outputs, failed_tasks=failed_tasks(job, rows))


def read_past_facts(session: Session, job: str, record: Path) -> JobFacts:
    """Return the facts about a job that has ended, from its record alone."""
    return _join(job, {}, record, session.host.person.name)


def may_run_again(record: Path) -> bool:
    """Return whether a job may run after the end of a run: another task of its array, or after a requeue."""
    return any(word.startswith(("--array=", "--requeue")) for word in read_plan(record).directives)


def _record_of(session: Session, facts: dict[str, str]) -> Path | None:
    """Find the record of a job by the number of its array, or by the path of its script."""
    array = facts.get("ArrayJobId")
    return (find_record(session, array) if array else None) or adopt_record(session, facts)


def may_have(record: Path, job: str) -> bool:
    """Return whether the job of a record may have this task or component; True without its plan."""
    _, mark, part = job.partition("+") if "+" in job else job.partition("_")
    plan = read_plan(record)
    if not mark or plan is NO_PLAN:
        return True
    array = next((word.partition("=")[2] for word in plan.directives if word.startswith("--array=")), "")
    return mark == "_" and has_task(array, int(part))  # Argosy starts no heterogeneous jobs


def _with_copies(
    session: Session, facts: dict[str, str], outputs: tuple[str, ...], record: Path, job: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Copy the record and outputs of a job submitted by ssh; return facts and outputs with the paths of the copies."""
    copy_notes(session.runner, record)
    own = of_batch(facts) if facts.get("StdOut") else find_output(record, job, session.host.person.name)
    copies = {path: copy_output(session.runner, record, path) for path in dict.fromkeys((own, *outputs))}
    return facts | {"StdOut": copies[own]}, tuple(copies[path] for path in outputs)


def _join(job: str, facts: dict[str, str], record: Path | None, user: str) -> JobFacts:
    """Combine Slurm's facts with the record, which remains after Slurm has forgotten the job.

    Parameters
    ----------
    job
        The number that users type; of a task, ``7_2``.
    facts
        The row of scontrol or sacct; empty for a job that Slurm does not list any more.
    """
    number = facts.get("JobId", "")
    own = number if "_" in job or "ArrayTaskId" in facts else ""
    runs = _runs_of(record, job, own)
    output = of_batch(facts) if facts.get("StdOut") else find_output(record, job, user, number)
    last = last_run(runs)
    end = _find_end(own or job, facts, last, record, output)
    is_waiting, has_failed = end.kind == WAITING, bool(end.code)
    return JobFacts(
        id=job,
        state=end.state,
        kind=end.kind,
        meaning=describe_state(end.true_state)[1],
        reason=facts.get("Reason", "").replace("_", " "),  # squeue prints blanks
        nodes=known_value(facts.get("NodeList", "")) or (last.nodes if last else ""),
        output=output,
        code=end.first.code if end.first else end.code,
        restarts=parse_int(facts.get("Restarts", "")),
        record=str(record or ""),
        first=end.first,
        advice=advise(job, facts, output, end.true_state, record) if has_failed or is_waiting else "",
        submitted=read_submission(record).time,
        runs=runs,
        ranks=read_ranks(record, own or (job if "_" in job else "")),  # no rank has the number of a task
        start=_time(facts, "StartTime") if is_waiting else "",
        queued=_time(facts, "SubmitTime"),
        began="" if is_waiting else _time(facts, "StartTime"),
        ended=_time(facts, "EndTime") if end.kind == ENDED else "",
        last_lines=read_last_lines(output, record, number or job, end.first) if has_failed else (),
        partition=known_value(facts.get("Partition", "")),
        account=known_value(facts.get("Account", "")),
        time_limit=known_value(facts.get("TimeLimit", "")),
        number=number,
    )


def _runs_of(record: Path | None, job: str, own: str) -> tuple[Run, ...]:
    """Return the recorded runs of a job, or of one task of an array.

    The tasks share a record, in which each has Slurm's own number. Once Slurm has forgotten a task, nothing tells that
    number, so that no run in the record can be shown to be the task's.

    Parameters
    ----------
    own
        Slurm's own number of a task; empty for a job without tasks, and for a task that Slurm has forgotten.
    """
    if "_" in job and not own:
        return ()
    return tuple(run for run in read_runs(record) if own in ("", run.job))


class _End(msgspec.Struct, frozen=True):
    """The state of a job, and how it ended."""

    state: str
    """The state that Slurm or the record gives."""
    kind: str
    """``waiting``, ``running`` or ``ended``."""
    true_state: str
    """The state that the output shows: ranks may be killed for their memory in a job that is only FAILED."""
    code: int | None
    """Exit code of the job; 0 unless it ended, None if it is unknown."""
    first: RankEnd | None
    """The rank that failed first."""


def _find_end(job: str, facts: dict[str, str], last: Run | None, record: Path | None, output: str) -> _End:
    """Find out the state of a job by Slurm, else by its record, and how it failed by the end of its output."""
    state = facts.get("JobState") or _recorded_state(record, job, last, output)
    kind, _ = describe_state(state)
    tail = read_tail(output, LAST_BYTES) if kind == ENDED and state != "COMPLETED" else ""
    true = true_state(state, tail)
    code = _exit_code(facts, last, state, true) if kind == ENDED else 0
    first = _find_first(state, tail, record, job) if code else None
    return _End(state, kind, true, code, first)


def _recorded_state(record: Path | None, job: str, last: Run | None, output: str) -> str:
    """Return the state of a job that Slurm does not list, from its record; without an end there, from its output."""
    cancelled = is_cancelled(record, job)
    if last and (last.code == 0 or not cancelled):
        return "FAILED" if last.code else "COMPLETED"
    if cancelled:
        return "CANCELLED"
    tail = read_tail(output, LAST_BYTES)
    failed = _find_first("FAILED", tail, record, job) or true_state("FAILED", tail) != "FAILED"
    return "FAILED" if failed else FORGOTTEN


def _find_first(state: str, tail: str, record: Path | None, job: str) -> RankEnd | None:
    """Find the rank that failed first; a job that ended at its time limit or was cancelled has none."""
    failed_itself = state_word(state) == "FAILED"
    return (find_first_failure(tail) or read_first(record, job)) if failed_itself else None


def _time(facts: dict[str, str], name: str) -> str:
    """Return one of Slurm's times, or empty text for ``Unknown`` and ``None``.

    For the start of a waiting job it is an estimate, which the backfill scheduler makes for the first jobs only.
    """
    text = facts.get(name, "")
    return text if text[:1].isdigit() else ""


def _exit_code(facts: dict[str, str], last: Run | None, state: str, true: str) -> int | None:
    """Return the exit code of an ended job from Slurm, else from the record of its last run; None if it is unknown."""
    if "ExitCode" in facts:
        return exit_code_of_state(state, parse_exit_code(facts["ExitCode"]))
    if state == FORGOTTEN:
        return None
    if last is None and true == "OUT_OF_MEMORY":
        return KILLED
    return exit_code_of_state(state, last.code if last else 0)


def describe_waiting(facts: JobFacts) -> str:
    """Describe a waiting job: the reason, the expected start if Slurm estimates one, and what to do if it is stuck."""
    parts = (
        f"{facts.meaning} ({facts.reason})" if known_value(facts.reason) else facts.meaning,
        f"expected start {facts.start.replace('T', ' ')}" if facts.start else "",
        facts.advice,
    )
    return "; ".join(filter(None, parts))


def is_output_elsewhere(facts: JobFacts) -> bool:
    """Return whether a job that ended wrote its output to a place that this machine cannot read."""
    written = facts.kind == ENDED and facts.nodes and facts.output not in {"", os.devnull}
    return bool(written) and not can_read(facts.output)
