"""Create the folder of a job's record, and read records: submission, plan, runs, ranks, the first failure."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import ArgosyError
from argosy.core.model import Host
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import parse_int, read_json_object
from argosy.core.process import Reply
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import write_text
from argosy.jobs.first_failure import RankEnd, exit_code
from argosy.jobs.launch_plan import NO_PLAN, LaunchPlan
from argosy.slurm.calls import may_be_done
from argosy.slurm.queries import base_number, has_task

SUBMITTED, PLAN, SCRIPT, COMMAND_LINE = "submitted.json", "job.json", "job.sh", "command-line.sh"
"""Files of a record: the submission of a job, its plan, its script, and the command line that launched it."""

ATTACH = "attach.sh"
"""File of a record: the script that runs another command in the container of the job."""

ENDS = "ends"
"""File of a record to which the script adds a line at the end of each run (``note_end``)."""

FIRST = "first"
"""File of a record: the rank that failed first in each run, by the script or by the launch of a run on this machine."""

STARTED, END = "started.json", "end.json"
"""Files of the record of a run on this machine: its process, and its exit code."""

CANCELLED, CANCELLED_TASKS = "cancelled", "cancelled-tasks"
"""Files of a record: ``argosy cancel`` cancelled the job, or the tasks of its array in the lines of the second file."""

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that choose GPUs, the lowest level first."""

STATE_OPTION = "ARGOSY_STATE"
"""Variable that chooses another folder for records."""

SIGNALLED = 128
"""A shell adds this to the number of the signal that ended a program."""

RECORD_NAME = r"\d{8}-\d{6}-\d{6}-[0-9a-f]{4}"
"""Pattern of the name of a record's folder."""


def new_record_folder(session: Session) -> Path:
    """Return a new path for the record of a launch; the folder is not created.

    Records are listed in the order of their names, so the name has the local time with microseconds.
    """
    name = f"{dt.datetime.now().astimezone():%Y%m%d-%H%M%S-%f}-{os.urandom(2).hex()}"
    return session.paths.runs / name


def time_of_record(record: Path) -> dt.datetime | None:
    """Return the time in the name of a record; None if the name has another form."""
    try:
        return dt.datetime.strptime(record.name[: len("20260102-030405")], "%Y%m%d-%H%M%S").astimezone()
    except (ValueError, OverflowError):
        return None


def make_private_folder(folder: Path) -> None:
    """Create the folder of a record, which only its owner may read: it may hold values of variables."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)


def discard_record(record: Path, reply: Reply | None = None) -> bool:
    """Remove the record of a job that does not exist: no command shows it, and it would keep images in the cache.

    Return whether it was removed.

    Parameters
    ----------
    reply
        Of sbatch if it failed; the job may exist if the answer was lost, or if a signal ended sbatch. None if sbatch
        was not started.
    """
    if reply is None or (0 < reply.code < SIGNALLED and not may_be_done(reply.stderr)):
        shutil.rmtree(record, ignore_errors=True)
        return True
    return False


class Submission(msgspec.Struct, frozen=True):
    """The submission of a job; a record without one has the default values."""

    job: str = ""
    """Number of the job; empty until sbatch has printed it."""
    output: str = ""
    """File of its output, with the patterns of sbatch(1)."""
    site: str = ""
    profile: str = ""
    """Name of the site, and the name or the absolute path of its profile."""
    time: str = ""
    """Time of submission in ISO 8601."""
    in_allocation: bool = False
    """Whether it ran as steps of an existing allocation."""
    ssh: str = ""
    there: str = ""
    """Login node, and the folder of the record there, for a job submitted by ssh."""

    @property
    def is_known(self) -> bool:
        """Whether the record has a submission that can be read."""
        return self != Submission()


def new_submission(host: Host, *, site: str, profile: str, output: str) -> Submission:
    """Return a submission of now, without the number of the job.

    Parameters
    ----------
    profile
        Name or path of the profile, as typed; a path is stored as an absolute path, to be found from other folders.
    """
    if profile.endswith(".toml"):
        profile = str(Path(host.cwd, profile))
    return Submission("", output, site, profile, time.strftime("%Y-%m-%dT%H:%M:%S%z"))


def render_submission(submission: Submission) -> str:
    """Render the text of the file with the submission of a job."""
    return json.dumps(asdict(submission)) + "\n"


def write_submission(record: Path, submission: Submission) -> None:
    """Write the submission of a job into its record."""
    with translate_os_errors(record, STATE_OPTION):
        write_text(record / SUBMITTED, render_submission(submission))


def record_job(session: Session, record: Path, submission: Submission) -> None:
    """Write the submission of a job that Slurm has; if that fails, note the number, which the user needs."""
    try:
        write_submission(record, submission)
    except ArgosyError as error:
        session.reporter.note(
            f"job {submission.job} is submitted, but its number cannot be written to the record: {error}"
        )


class RankFacts(msgspec.Struct, frozen=True):
    """The cores and GPUs of one rank."""

    rank: int
    local: int
    """Rank number on its node."""
    host: str
    restart: int = 0
    """Number of the run, for a requeued job."""
    cores: str = ""
    """Cores that it may use, as a list of ranges; measured, not planned."""
    devices: int = 0
    """Number of GPU device nodes that it sees."""
    visible: tuple[tuple[str, str], ...] = ()
    """Its variables that select GPUs, unchanged."""

    @property
    def gpus(self) -> int:
        """Number of GPUs that it can use: the device nodes, or fewer if a variable lists fewer."""
        return min([self.devices, *(len(value.split(",")) for _, value in self.visible)])


def parse_ranks(text: str, job: str = "") -> tuple[RankFacts, ...]:
    """Parse the lines of ranks of the last run; other lines are skipped.

    The tasks of an array share a record; `job` is the number of one of them.
    """
    ranks = list(_ranks(text, job))
    last = max((each.restart for each in ranks), default=0)
    mine = {(each.rank, each.host): each for each in ranks if each.restart == last}
    return tuple(sorted(mine.values(), key=lambda each: (each.rank, each.host)))


def _ranks(text: str, job: str) -> Iterator[RankFacts]:
    for line in text.splitlines():
        words = dict(word.partition("=")[::2] for word in line.split())
        if "rank" in words and "host" in words and not (job and words.get("job", job) != job):
            yield RankFacts(
                rank=parse_int(words["rank"]),
                local=parse_int(words.get("local", "")),
                host=words["host"],
                restart=parse_int(words.get("restart", "")),
                cores=words.get("cores", ""),
                devices=parse_int(words.get("devices", "")),
                visible=tuple((name, words[name]) for name in VISIBLE if name in words),
            )


class Run(msgspec.Struct, frozen=True):
    """One run of a job; one that was requeued has several."""

    job: str
    restart: int
    code: int
    nodes: str
    started: int = 0
    ended: int = 0
    """Seconds since 1970; 0 if not recorded."""
    task: str = ""
    """Number of a task of an array, for example ``7_2``; empty for another job."""

    @property
    def name(self) -> str:
        """The number of its job, as users type it."""
        return self.task or self.job


def sort_runs(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Sort runs by the index of their task; the runs of one task, and those without an index, stay in their order."""
    return tuple(sorted(runs, key=lambda run: parse_int(run.task.partition("_")[2])))


def read_runs(record: Path | None) -> tuple[Run, ...]:
    """Read the ends of a job's runs; an incomplete line (disk full) is skipped.

    A run that failed has the code of the rank that failed first, as its job: srun reports the highest one.
    """
    runs = filter(None, map(_read_run, _text(record, ENDS).splitlines()))
    ends = {(row[0], parse_int(row[1])): _read_end(row) for row in _read_first_rows(record)}
    return tuple(
        replace(run, code=ends[run.job, run.restart].code) if run.code and (run.job, run.restart) in ends else run
        for run in runs
    )


def _read_run(line: str) -> Run | None:
    match line.split():
        case [job, restart, code, nodes, begun, ended, *task] if code.isdecimal():  # only an array has tasks
            return Run(
                job, parse_int(restart), parse_int(code), nodes, parse_int(begun), parse_int(ended), "".join(task)
            )
    return None


def last_run(runs: Sequence[Run]) -> Run | None:
    """Return the run that decides how a job ended: the last one; for an array, a failed task if there is one."""
    last = {run.job: run for run in runs}
    return next((run for run in last.values() if run.code), runs[-1] if runs else None)


def write_cancelled(record: Path, job: str) -> None:
    """Note in a record that ``argosy cancel`` cancelled the job, or some tasks of its array: ``7_2``, ``7_[3-5]``."""
    _, _, tasks = job.partition("_")
    if not tasks:
        write_text(record / CANCELLED, "")
        return
    with (record / CANCELLED_TASKS).open("a", encoding="utf-8") as file:
        file.write(f"{tasks}\n")


def is_cancelled(record: Path | None, job: str) -> bool:
    """Return whether ``argosy cancel`` cancelled a job, or a task of its array.

    When a whole array is cancelled, some of its tasks may have ended before.
    """
    if record is None:
        return False
    _, _, task = job.partition("_")
    all_tasks = (record / CANCELLED).is_file() and not (task and read_runs(record))
    return all_tasks or bool(
        task and any(has_task(line, parse_int(task, -1)) for line in _text(record, CANCELLED_TASKS).splitlines())
    )


def read_ranks(record: Path | None, job: str = "") -> tuple[RankFacts, ...]:
    """Read the ranks of the last run; `job` is the number of a task of an array."""
    files = sorted(record.glob("ranks-*")) if record else []
    return parse_ranks("".join(file.read_text(errors="replace", encoding="utf-8") for file in files), job)


def read_first_output(record: Path | None) -> dict[tuple[str, int], int]:
    """Read when the ranks of each run wrote their first line: job and restart -> seconds since 1970."""
    rows = [line.split() for line in _text(record, "first-output").splitlines()]
    return {(row[0], parse_int(row[1])): parse_int(row[2]) for row in rows if len(row) == 3}  # noqa: PLR2004


def read_first(record: Path | None, job: str = "") -> RankEnd | None:
    """Return the rank that a job, or one task of an array, recorded as the first to fail in its last run."""
    whole = [row for row in _read_first_rows(record) if job in ("", row[0])]
    runs = [run for run in read_runs(record) if job in ("", run.job)]
    if not whole or (runs and parse_int(whole[-1][1]) != runs[-1].restart):
        return None
    return _read_end(whole[-1])


def _read_first_rows(record: Path | None) -> list[list[str]]:
    """Return the complete lines about the ranks that failed first, one for each run: job, restart, rank, host, code."""
    rows = (line.split() for line in _text(record, FIRST).splitlines())
    return [row for row in rows if len(row) == 5]  # noqa: PLR2004


def _read_end(row: Sequence[str]) -> RankEnd:
    _, _, rank, host, code = row
    number = parse_int(code.removeprefix("-"), 1)
    return RankEnd(parse_int(rank), host, exit_code(number, by_signal=code.startswith("-")))


def write_first(record: Path, first: RankEnd) -> None:
    """Write the rank that failed first in a run on this machine, in the form of the script of a job (``end.sh``)."""
    write_text(record / FIRST, f"{record.name} 0 {first.rank} {first.host} {first.code}\n")


def find_record(session: Session, job: str) -> Path | None:
    """Find the newest record of a job: a cluster may reset its job numbers.

    The job's own record takes precedence over records of launches inside it (``--in-allocation``).  The tasks of an
    array share a record.
    """
    steps: Path | None = None
    job = base_number(job)
    for file in sorted((session.paths.runs).glob(f"*/{SUBMITTED}"), reverse=True):
        submission = read_submission(file.parent)
        if submission.job == job:
            if not submission.in_allocation:
                return file.parent
            steps = steps or file.parent
    return steps


def read_submission(record: str | Path | None) -> Submission:
    """Read the submission of a job.

    If Argosy was killed during the submission, the number is the one that the job itself recorded.
    """
    submission = _read_submission(record)
    return replace(submission, job=_own_number(record)) if submission.is_known and not submission.job else submission


def _read_submission(record: str | Path | None) -> Submission:
    found = read_json_object(Path(record) / SUBMITTED) if record else {}
    try:
        return msgspec.convert(found, Submission)
    except (msgspec.ValidationError, UnicodeEncodeError):  # a key with half a surrogate pair is valid in JSON
        return Submission()


def _own_number(record: str | Path | None) -> str:
    """Return the number that a job recorded at its end, or its first rank; empty if there is none."""
    record = Path(record) if record else None
    if runs := read_runs(record):
        return base_number(runs[0].name)
    files = sorted(record.glob("ranks-*")) if record else []
    match = re.search(r"\bjob=(\d+)", _text(record, files[0].name)) if files else None
    return match[1] if match else ""


def adopt_record(session: Session, facts: Mapping[str, str]) -> Path | None:
    """Find the record of a job by the path of its script, and write the job's number into it.

    The number is missing if Argosy was killed during the submission.
    """
    record = Path(facts.get("Command", "")).parent
    job = facts.get("ArrayJobId") or facts.get("JobId", "")
    if not job or record.parent != session.paths.runs:
        return None
    submission = _read_submission(record)
    if submission.job or not submission.is_known:
        return None
    with contextlib.suppress(OSError):
        write_submission(record, replace(submission, job=job))
    return record


def read_command_line(record: str) -> str:
    """Return the command line that launched a job, with its folder; empty if it was launched from Python."""
    return _text(Path(record), COMMAND_LINE).strip() if record else ""


def read_plan_table(record: str | Path | None) -> dict[str, Any]:
    """Read the file of the plan in a record as it is; empty if there is none, or it is damaged."""
    return read_json_object(Path(record) / PLAN) if record else {}


def read_plan(record: str | Path | None) -> LaunchPlan:
    """Read the plan in a record, without its script; return `NO_PLAN` if there is none, or it is damaged."""
    table = read_plan_table(record)
    try:
        return msgspec.convert({**table, "script": ""}, LaunchPlan) if table else NO_PLAN
    except (msgspec.ValidationError, UnicodeEncodeError):  # a key with half a surrogate pair is valid in JSON
        return NO_PLAN


def damaged_files(record: Path) -> tuple[Path, ...]:
    """Return the files of a job's record that are damaged."""
    read = {SUBMITTED: _read_submission(record).is_known, PLAN: read_plan(record) is not NO_PLAN}
    return tuple(record / name for name, found in read.items() if not found and (record / name).exists())


def _text(record: Path | None, name: str) -> str:
    file = record / name if record else None
    try:
        return file.read_text(errors="replace", encoding="utf-8") if file and file.is_file() else ""
    except OSError:
        return ""


def recording_command(record: Path, examine: str = "why") -> str:
    """Return the command that repeats a run on this machine with its output in a file, and examines that file.

    Parameters
    ----------
    examine
        The command of Argosy that reads the file: ``why`` or ``verify``; empty for none.
    """
    examined = f"; argosy {examine} run.log" if examine else ""
    return f"sh {quote(str(record / SCRIPT))} > run.log 2>&1{examined}"
