"""Create the folder of a job's record, and read records: runs, ranks, the rank that failed first, the output."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from argosy.core.parse import parse_int, read_json_object, read_tail
from argosy.core.process import Runner
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.ssh import OverSsh, parse_remote, run_text
from argosy.core.store import write_text
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.launch_plan import has_types_of_plan

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that choose GPUs, the lowest level first."""


RECORD_NAME = r"\d{8}-\d{6}-\d{6}-[0-9a-f]{4}"
"""Pattern of the name of a record's folder."""


def new_record_folder(session: Session) -> Path:
    """Return a new path for the record of a launch; the folder is not created.

    Records are listed in the order of their names, so the name has the local time with microseconds.
    """
    name = f"{dt.datetime.now().astimezone():%Y%m%d-%H%M%S-%f}-{os.urandom(2).hex()}"
    return session.paths.state / "runs" / name


def make_private_folder(folder: Path) -> None:
    """Create the folder of a record, which only its owner may read: it may hold values of variables."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    folder.mkdir(mode=0o700)


class RankFacts(msgspec.Struct, frozen=True):
    """The cores and GPUs of one rank.

    Attributes
    ----------
    local
        Rank number on its node.
    restart
        Number of the run, for a requeued job.
    cores
        Cores that it may use, as a list of ranges; measured, not planned.
    devices
        Number of GPU device nodes that it sees.
    visible
        Its variables that select GPUs, unchanged.
    """

    rank: int
    local: int
    host: str
    restart: int = 0
    cores: str = ""
    devices: int = 0
    visible: tuple[tuple[str, str], ...] = ()

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


LAST_LINES, LAST_BYTES = 12, 65_536
WIDEST = 10
"""Most digits of a number in a file name (sbatch(1), filename pattern)."""
OF_RANK = re.compile(r"(?:\[?rank ?| *(?=\d+: ))(?P<rank>\d{1,9})\b", re.IGNORECASE)
"""The beginning of a line that names its rank: of the program, of torch, or the label of srun."""
TRACEBACK = "Traceback (most recent call last)"
COMMAND_LINE = "command-line.sh"
"""File of a record: the command line that launched the job."""
STARTED, SUBMITTED, END = "started.json", "submitted.json", "end.json"
"""Files of a record: the process of a run on this machine, the submission of a job, the exit code of a run here."""
CANCELLED = "cancelled"
"""File of a record: ``argosy cancel`` cancelled the job."""
REPORT = re.compile(r"torch/distributed/elastic/multiprocessing/api\.py:\d+\] (failed|Sending process)|srun: error: ")


class Run(msgspec.Struct, frozen=True):
    """One run of a job; one that was requeued has several.

    Attributes
    ----------
    started, ended
        Seconds since 1970; 0 if not recorded.
    """

    job: str
    restart: int
    code: int
    nodes: str
    started: int = 0
    ended: int = 0


def read_runs(record: Path | None) -> tuple[Run, ...]:
    """Read the ends of a job's runs; an incomplete line (disk full) is skipped."""
    rows = (line.split() for line in _text(record, "ends").splitlines())
    return tuple(
        Run(row[0], parse_int(row[1]), parse_int(row[2]), row[3], *map(parse_int, row[4:6]))
        for row in rows
        if len(row) >= 4 and row[2].isdecimal()  # noqa: PLR2004
    )


def last_run(runs: Sequence[Run]) -> Run | None:
    """Return the run that decides how a job ended: the last one; for an array, a failed task if there is one."""
    last = {run.job: run for run in runs}
    return next((run for run in last.values() if run.code), runs[-1] if runs else None)


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
    rows = [line.split() for line in _text(record, "first").splitlines()]
    whole = [row for row in rows if len(row) == 5 and job in ("", row[0])]  # noqa: PLR2004
    runs = [run for run in read_runs(record) if job in ("", run.job)]
    if not whole or (runs and parse_int(whole[-1][1]) != runs[-1].restart):
        return None
    _, _, rank, host, code = whole[-1]
    signal_or_code = parse_int(code.removeprefix("-"), 1)
    return RankEnd(parse_int(rank), host, signal_or_code + (128 if code.startswith("-") else 0))


def find_record(session: Session, job: str) -> Path | None:
    """Find the newest record of a job: a cluster may reset its job numbers.

    The job's own record takes precedence over records of launches inside it (``--in-allocation``).  The tasks of an
    array share a record.
    """
    steps: Path | None = None
    job = re.split("[_+]", job)[0]
    for file in sorted((session.paths.state / "runs").glob(f"*/{SUBMITTED}"), reverse=True):
        submitted = read_submitted(file.parent)
        if submitted.get("job") == job:
            if not submitted.get("in_allocation"):
                return file.parent
            steps = steps or file.parent
    return steps


def read_submitted(record: Path | None) -> dict[str, str]:
    """Read the facts of a submission: the job's number, output, site and time.

    If Argosy was killed during the submission, the number is the one that the job itself recorded.
    """
    submitted = _read_submission(record)
    return submitted | {"job": _own_number(record)} if submitted.get("job") == "" else submitted


def _read_submission(record: Path | None) -> dict[str, str]:
    found = read_json_object(record / SUBMITTED) if record else {}
    return found if all(isinstance(value, str | bool) for value in found.values()) else {}


def _own_number(record: Path | None) -> str:
    """Return the number that a job recorded at its end, or its first rank; empty if there is none."""
    runs = read_runs(record)
    files = sorted(record.glob("ranks-*")) if record and not runs else []
    match = re.search(r"\bjob=(\d+)", _text(record, files[0].name)) if files else None
    return runs[0].job if runs else match[1] if match else ""


def adopt_record(session: Session, facts: Mapping[str, str]) -> Path | None:
    """Find the record of a job by the path of its script, and write the job's number into it.

    The number is missing if Argosy was killed during the submission.
    """
    record = Path(facts.get("Command", "")).parent
    job = facts.get("ArrayJobId") or facts.get("JobId", "")
    if not job or record.parent != session.paths.state / "runs":
        return None
    submitted = _read_submission(record)
    if submitted.get("job") != "":
        return None
    with contextlib.suppress(OSError):
        write_text(record / SUBMITTED, json.dumps(submitted | {"job": job}) + "\n")
    return record


def can_read(file: str | Path) -> bool:
    """Return whether a job's output can be read here: it may be on another machine or not readable."""
    return os.path.isfile(file) and os.access(file, os.R_OK)  # noqa: PTH113 - Path's raises where a folder is closed


def find_output(record: Path | None, job: str, user: str, number: str = "") -> str:
    """Return the output file of a job from the pattern in its record (sbatch(1), filename pattern).

    Patterns that the job number does not determine stay unchanged.  `number` is the job number of an array's task.
    """
    array, _, task = job.partition("_")
    known = {"A": array, "u": user, "x": str(read_plan(record).get("name", "")), "%": "%"}
    known |= {"a": task, "b": task[-1:], "j": number} if task else {"j": job}

    def fill(match: re.Match[str]) -> str:
        text = known.get(match[2], "")
        return text.zfill(min(parse_int(match[1]), WIDEST)) if text else match[0]

    return re.sub(r"%(\d*)([a-zA-Z%])", fill, read_submitted(record).get("output", ""))


def find_outputs(record: Path | None, job: str, user: str) -> tuple[str, ...]:
    """Find the output files of the tasks of an array that Slurm does not list any more.

    The record has the job numbers of the tasks but not their indices, so files with any index match.
    """
    numbers = list(dict.fromkeys(run.job for run in read_runs(record)))
    if "_" in job or numbers in ([], [job]):
        return ()
    patterns = dict.fromkeys(find_output(record, f"{job}_\0", user, number) for number in numbers)
    globs = (re.sub("0*\0", "*", glob.escape(pattern)) for pattern in patterns)
    found = {file for each in globs for file in glob.glob(each)}  # noqa: PTH207 - text to text
    return tuple(sorted(found, key=lambda file: [(len(part), part) for part in re.findall(r"\d+|\D+", file)]))


def of_batch(facts: Mapping[str, str]) -> str:
    """Replace the patterns that scontrol (24.11) leaves in an output path: node, step and task of the batch shell."""
    known = {"N": facts.get("BatchHost", "").partition(".")[0], "n": "0", "t": "0", "s": "batch"}

    def fill(match: re.Match[str]) -> str:
        return known[match[2]].zfill(min(parse_int(match[1]), WIDEST)) or match[0]

    return re.sub(r"%(\d*)([Nnts])", fill, facts["StdOut"])


def read_command_line(record: str) -> str:
    """Return the command line that launched a job, with its folder; empty if it was launched from Python."""
    return _text(Path(record), COMMAND_LINE).strip() if record else ""


NEW_RUN = "argosy: a new run of this rank begins here"
"""Line of a rank's own log before the output of a second run (``log_rank`` in ``ranks.sh``)."""


def read_last_lines(output: str, record: Path | None, job: str, first: RankEnd | None) -> tuple[str, ...]:
    """Return the last lines of the rank that failed first, as far as files or lines name their rank, else of the job.

    The lines of a job with one output belong to a rank if they begin with its number, for example ``[rank3]: `` or
    ``rank 3``. A Python traceback without a number is that of the rank that failed first.
    """
    logs = str(read_plan(record).get("logs", ""))
    own = Path(logs, job, f"rank-{first.rank}.log") if logs and first else None
    for file in (own, Path(output) if output else None):
        if file and can_read(file):
            lines = _own_lines(_last_run(read_tail(file, LAST_BYTES).splitlines()))
            return (lines if first is None or file == own else lines_of_rank(lines, first.rank))[-LAST_LINES:]
    return ()


def names_ranks(lines: Sequence[str]) -> bool:
    """Return whether lines begin with the number of their rank."""
    return any(OF_RANK.match(line) for line in lines)


def lines_of_rank(lines: Sequence[str], rank: int) -> tuple[str, ...]:
    """Return the lines of one rank, and the last traceback without a number; all lines if none names its rank."""
    if not names_ranks(lines):
        return tuple(lines)
    begins = [number for number, line in enumerate(lines) if line.startswith(TRACEBACK)]
    begin = begins[-1] if begins else len(lines)
    owners = [OF_RANK.match(line) for line in lines]
    return tuple(
        line
        for number, (line, owner) in enumerate(zip(lines, owners, strict=True))
        if (int(owner["rank"]) == rank if owner else number >= begin)
    )


def _last_run(lines: list[str]) -> list[str]:
    """Return the lines of the last run in the log of a rank: all runs of a job append to it."""
    begins = [number for number, line in enumerate(lines) if line == NEW_RUN]
    return lines[begins[-1] + 1 :] if begins else lines


def _own_lines(lines: list[str]) -> tuple[str, ...]:
    """Return the lines of the program itself: those before the first error report of torchrun or srun."""
    ends = [n for n, line in enumerate(lines) if REPORT.search(line)]
    own = lines[: ends[0]] if ends else lines
    return tuple(line for line in own if not line.startswith("argosy: "))


PLAN = "job.json"
"""File of a record: the plan of the job."""


def read_plan(record: str | Path | None) -> dict[str, Any]:
    """Read the plan in a record; empty if there is none, or it is damaged."""
    plan = read_json_object(Path(record) / PLAN) if record else {}
    return plan if has_types_of_plan(plan) else {}


def damaged_files(record: Path) -> tuple[Path, ...]:
    """Return the files of a job's record that are damaged."""
    read = {SUBMITTED: _read_submission(record), PLAN: read_plan(record)}
    return tuple(record / name for name, found in read.items() if not found and (record / name).exists())


def _text(record: Path | None, name: str) -> str:
    file = record / name if record else None
    try:
        return file.read_text(errors="replace", encoding="utf-8") if file and file.is_file() else ""
    except OSError:
        return ""


BLOCK_BYTES = 8 << 20
"""Bytes of an output that one command copies."""

OUTPUT = "output-"
"""Prefix of the name of a copied output in its record."""

MOST_LOGS, LOG_BYTES = 16, 262_144
"""Number of logs of the network library to copy, and bytes of each: it logs its choices first."""

NOTES = r"""
logs=0
for name in ends first first-output ranks-* nccl-*; do
    [ -f "$name" ] || continue
    size=$(($(wc -c < "$name")))
    [ "$size" -le $most_bytes ] || size=$most_bytes
    case $name in nccl-*) logs=$((logs + 1)); [ "$logs" -le $most_logs ] || break ;; esac
    case $known in *" $name:$size "*) continue ;; esac
    printf "%s %s\n" "$name" "$(head -c "$size" -- "$name" | base64 | tr -d "\n")"
done
"""
"""Prints each file of the record, and logs whose size differs from the copy here."""

NAME = re.compile(r"(?:ends|first|first-output|(?:ranks|nccl)-[\w.-]+)\Z")


def session_of(session: Session, record: Path | None) -> Session:
    """Return the session that reaches a job submitted by ssh."""
    host = read_submitted(record).get("ssh", "")
    return replace(session, runner=OverSsh(session.runner, parse_remote(host))) if host else session


def copy_notes(runner: Runner, record: Path) -> None:
    """Copy the files of a remote record, and logs that grew, into the local record."""
    there = read_submitted(record).get("there", "")
    known = " ".join(f"{path.name}:{path.stat().st_size}" for path in record.glob("nccl-*"))
    settings = f"known={quote(f' {known} ')} most_bytes={LOG_BYTES} most_logs={MOST_LOGS}"
    for line in run_text(runner, f"cd -- {quote(there)} || exit 1\n{settings}\n{NOTES}").stdout.splitlines():
        name, _, data = line.partition(" ")
        if NAME.match(name):
            write_text(record / name, _decode(data).decode(errors="replace"))


def _decode(text: str) -> bytes:
    """Decode base64; a text that a lost connection cut has no bytes."""
    try:
        return base64.b64decode(text)
    except ValueError:
        return b""


def copy_output(runner: Runner, record: Path, path: str) -> str:
    """Copy what was appended to a remote file since the last copy, and return the path of the copy."""
    copy = record / f"{OUTPUT}{PurePosixPath(path).name}"
    while path and _copy_growth(runner, path, copy):
        pass
    return str(copy)


def _copy_growth(runner: Runner, path: str, copy: Path) -> bool:
    """Append new bytes of a remote file to its copy, and return whether there may be more.

    A file that is shorter than its copy was written again from the start.
    """
    have = copy.stat().st_size if copy.is_file() else 0
    block = f"tail -c +{have + 1} -- {quote(path)} | head -c {BLOCK_BYTES} | base64"
    reply = run_text(runner, f"[ -f {quote(path)} ] || exit 0\nwc -c < {quote(path)}\n{block}")
    size, _, text = reply.stdout.partition("\n")
    length = parse_int(size, -1)
    if length < 0:
        return False
    if length < have:
        copy.unlink()
        return True
    data = _decode(text)
    with copy.open("ab") as file:
        file.write(data)
    return len(data) == BLOCK_BYTES


def recording_command(record: Path, examine: str = "why") -> str:
    """Return the command that repeats a run on this machine with its output in a file, and examines that file.

    Parameters
    ----------
    examine
        The command of Argosy that reads the file: ``why`` or ``verify``.
    """
    return f"sh {quote(str(record / 'job.sh'))} > run.log 2>&1; argosy {examine} run.log"
