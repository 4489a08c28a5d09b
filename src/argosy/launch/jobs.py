"""Jobs that were submitted: what is known of them, how they end, and ending them; it starts none."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from argosy.errors import CheckFailed, ToolMissing, UsageError
from argosy.launch.advice import advise_end, no_output, true_state
from argosy.launch.ending import RankEnd, judge_end
from argosy.launch.ranks import RankFacts
from argosy.launch.record import (
    Run,
    can_read,
    find_output,
    last_run,
    of_batch,
    read_first,
    read_last_lines,
    read_ranks,
    read_runs,
    read_submitted,
)
from argosy.process import Command, Reply, Words, failed
from argosy.records import replace
from argosy.schedulers.slurm import (
    ENDED,
    RUNNING,
    WAITING,
    JobRow,
    judge_code,
    judge_state,
    parse_exit_code,
    parse_sacct,
    parse_scontrol_job,
    parse_squeue,
    plan_sacct,
    plan_squeue,
    says_no_answer,
)
from argosy.session import Session

LAST_BYTES = 262_144
"""Of an output: enough for the reports of some hundred ranks that ended."""


class JobFacts(msgspec.Struct, frozen=True):
    """What the scheduler and our record say of one job.

    Attributes
    ----------
    kind
        ``waiting``, ``running`` or ``ended``.
    meaning
        The state in plain words.
    code
        Exit code of an ended job: that of the rank that failed first, where the output tells.
    first
        The rank that failed first.
    advice
        The line to change, where the job was ended for its time or its memory.
    submitted
        When, as ISO 8601 writes it; empty where the job was not submitted by us.
    runs
        Its runs that ended, with nodes, times and codes.
    ranks
        What each rank of the last run was given, as it read it back: host, cores, GPUs.
    last_lines
        Of a job that failed: what the first rank that failed wrote last, else the job.
    outputs
        Files of all tasks, where the job is an array; the rest tells of the task in `id`.
    record
        Folder with the script and its plan; empty where the job was not submitted by us.
    """

    id: str
    state: str
    kind: str
    meaning: str
    reason: str
    nodes: str
    output: str
    code: int
    restarts: int
    record: str
    first: RankEnd | None = None
    advice: str = ""
    submitted: str = ""
    runs: tuple[Run, ...] = ()
    ranks: tuple[RankFacts, ...] = ()
    last_lines: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """Say in one line how it ended."""
        why = f": {self.first.text}" if self.first else ""
        advice = f"\n  -> {self.advice}" if self.advice else ""
        return f"job {self.id} {self.meaning} (code {self.code}){why}{advice}"


def list_jobs(session: Session) -> tuple[JobRow, ...]:
    """List the user's own jobs that wait or run."""
    return parse_squeue(ask_slurm(session, plan_squeue(user=session.host.person.name), doing="asking for your jobs"))


def find_job(session: Session, job: str) -> JobFacts:
    """Ask the scheduler about one job, and join what the record of its run says.

    Raises
    ------
    UsageError
        When neither knows such a job.
    CheckFailed
        When the controller does not answer.
    """
    record = find_record(session, job)
    session = session_of(session, record)
    reply = run_slurm(session, Command(("scontrol", "show", "job", "--oneliner", job)))
    if says_no_answer(reply.stderr):
        raise no_answer(reply)
    rows = [parse_scontrol_job(line) for line in reply.stdout.splitlines() if line.strip()] if reply.code == 0 else []
    facts = choose_task(rows) or _ask_accounting(session, job)
    if not facts and record is None:
        raise UsageError(
            f"there is no job {job}", evidence=reply.stderr.strip(), hint="see your jobs with 'argosy jobs'"
        )
    outputs = tuple(dict.fromkeys(of_batch(row) for row in rows if row.get("StdOut")))
    if record and read_submitted(record).get("ssh"):
        facts, outputs = _with_copies(session, facts, outputs, record, job)
    found = _join(job, facts, record, session.host.person.name)
    if len(rows) < 2:  # noqa: PLR2004 - one row is no array
        return found
    task = f"{facts.get('ArrayJobId', job)}_{facts.get('ArrayTaskId', '')}"
    return replace(found, id=task if found.kind != ENDED or found.code else job, outputs=outputs)


def choose_task(rows: Sequence[dict[str, str]]) -> dict[str, str]:
    """Choose the row that tells of a whole array: a task that runs, else one that waits, else one that failed."""
    order = {RUNNING: 0, WAITING: 1, ENDED: 2}

    def rank(row: dict[str, str]) -> tuple[int, bool]:
        state = row.get("JobState", "")
        return order[judge_state(state)[0]], judge_code(state, parse_exit_code(row.get("ExitCode", ""))) == 0

    return min(rows, key=rank, default={})


def session_of(session: Session, record: Path | None) -> Session:
    """Give the session that a job's questions are asked with: one by ssh, where it was submitted so."""
    if not read_submitted(record).get("ssh"):
        return session
    from argosy.launch import far_record  # noqa: PLC0415 - few jobs are far away

    return far_record.session_of(session, record)


def _with_copies(
    session: Session, facts: dict[str, str], outputs: tuple[str, ...], record: Path, job: str
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Copy what a job that is far away left; give its facts and outputs with the copies in their place."""
    from argosy.launch.far_record import copy_notes, copy_output  # noqa: PLC0415 - few jobs are far away

    copy_notes(session.runner, record)
    own = of_batch(facts) if facts.get("StdOut") else find_output(record, job, session.host.person.name)
    copies = {path: copy_output(session.runner, record, path) for path in dict.fromkeys((own, *outputs))}
    return facts | {"StdOut": copies[own]}, tuple(copies[path] for path in outputs)


def _ask_accounting(session: Session, job: str) -> dict[str, str]:
    """Ask about a job that left the queue; nothing where the cluster keeps no accounts."""
    try:
        reply = session.runner.run(Command(plan_sacct(job)))
    except ToolMissing:
        return {}
    return parse_sacct(reply.stdout, job) if reply.code == 0 else {}


def _join(job: str, facts: dict[str, str], record: Path | None, user: str) -> JobFacts:
    """Join what Slurm says with the record, which stays when Slurm has forgotten the job."""
    runs, submitted = read_runs(record), read_submitted(record)
    last = last_run(runs)
    state = facts.get("JobState", "COMPLETED" if last and last.code == 0 else "FAILED")
    kind, _ = judge_state(state)
    code = parse_exit_code(facts["ExitCode"]) if "ExitCode" in facts else last.code if last else 1
    code = judge_code(state, code) if kind == ENDED else 0
    output = of_batch(facts) if facts.get("StdOut") else find_output(record, job, user)
    told = true_state(state, _last_text(output)) if code else state
    # What ended for its time, or was cancelled, was ended from outside: no rank failed first.
    failed_itself = code and state.split()[0] == "FAILED"
    first = (judge_end(_last_text(output)) or read_first(record)) if failed_itself else None
    return JobFacts(
        id=job,
        state=state,
        kind=kind,
        meaning=judge_state(told)[1],
        reason=facts.get("Reason", ""),
        nodes=facts.get("NodeList", "") or (last.nodes if last else ""),
        output=output,
        code=first.code if first else code,
        restarts=int(facts.get("Restarts", "0") or 0),
        record=str(record or ""),
        first=first,
        advice=(no_output(facts, output) or _advice(told, record)) if code else "",
        submitted=submitted.get("time", ""),
        runs=runs,
        ranks=read_ranks(record),
        last_lines=read_last_lines(output, record, job, first) if code else (),
    )


def _advice(state: str, record: Path | None) -> str:
    """Say the line to change: in the file that an option came from, else in the script."""
    try:
        script = (record / "job.sh").read_text() if record else ""
        choices = json.loads((record / "job.json").read_text())["choices"] if record else []
        sources = {str(choice["what"]): str(choice["source"]) for choice in choices}
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return advise_end(state, script, sources)


def find_record(session: Session, job: str) -> Path | None:
    """Give the folder that our record of a job is in, the newest where numbers began again.

    Of a job that we submitted its own record counts, and not those of steps that were carried out within it.
    """
    steps: Path | None = None
    for file in sorted((session.places.state / "runs").glob("*/submitted.json"), reverse=True):
        told = read_submitted(file.parent)
        if told.get("job") == job:
            if not told.get("here"):
                return file.parent
            steps = steps or file.parent
    return steps


def _last_text(output: str) -> str:
    try:
        with Path(output).open("rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - LAST_BYTES))
            return source.read().decode(errors="replace")
    except OSError:
        return ""


def read_plan(facts: JobFacts) -> dict[str, object]:
    """Read the plan that a job was submitted with; empty where there is none."""
    try:
        plan = json.loads(Path(facts.record, "job.json").read_text()) if facts.record else {}
    except (OSError, ValueError):
        return {}
    return plan if isinstance(plan, dict) else {}


def cancel_jobs(session: Session, jobs: tuple[str, ...]) -> None:
    """Cancel jobs, each where it was submitted.

    Raises
    ------
    UsageError
        When a word is no number of a job, or nobody knows one: scancel says nothing of that (24.11).
    """
    for job in jobs:
        if not re.fullmatch(r"\d+(_(\d+|\[[\d,%-]+\]))?(\+\d+)?", job):
            raise UsageError(f"{job!r} is no number of a job", hint="see your jobs with 'argosy jobs'")
    near = tuple(job for job in jobs if not read_submitted(find_record(session, job)).get("ssh"))
    if near:
        ask_slurm(session, ("scancel", *near), doing="cancelling")
    for job in jobs:
        if job in near:
            find_job(session, re.split("[_+]", job)[0])
        else:
            ask_slurm(session_of(session, find_record(session, job)), ("scancel", job), doing="cancelling")


def is_output_elsewhere(facts: JobFacts) -> bool:
    """Tell whether a job ran and ended, and what it wrote lies where this machine does not see it."""
    return facts.kind == ENDED and bool(facts.nodes and facts.output) and not can_read(facts.output)


def read_output(facts: JobFacts) -> Iterator[str]:
    """Give what a job wrote so far.

    Raises
    ------
    UsageError
        When it has written nothing yet.
    """
    file = Path(facts.output)
    if not can_read(facts.output):
        over = is_output_elsewhere(facts)
        raise UsageError(
            f"job {facts.id} has left no output here" if over else f"job {facts.id} has written nothing yet",
            evidence=f"it {facts.meaning}; its output goes to {facts.output}",
            hint=f"is that a folder of {facts.nodes} alone? start it from one that all nodes see" if over else "",
        )
    with file.open(errors="replace") as source:
        yield from source


def ask_slurm(session: Session, words: Words, *, doing: str) -> str:
    """Ask Slurm something; give what it prints.

    Raises
    ------
    ToolMissing, CheckFailed, ToolFailed
        When there is no Slurm here, its controller does not answer, or it says no.
    """
    command = Command(words)
    reply = run_slurm(session, command)
    if reply.code != 0:
        raise no_answer(reply) if says_no_answer(reply.stderr) else failed(command, reply, doing=doing)
    return reply.stdout


def run_slurm(session: Session, command: Command) -> Reply:
    """Run a program of Slurm.

    Raises
    ------
    ToolMissing
        When there is no Slurm here.
    """
    try:
        return session.runner.run(command)
    except ToolMissing as error:
        raise ToolMissing(
            "there is no Slurm on this machine", evidence=error.evidence, hint="run this on a login node of the cluster"
        ) from error


def no_answer(reply: Reply) -> CheckFailed:
    """Make the error for a controller that does not answer."""
    return CheckFailed(
        "the Slurm controller does not answer",
        evidence=reply.stderr.strip(),
        hint="nothing was submitted or changed; try again in some minutes",
    )
