"""Find the output files of a job, and the last lines of the rank that failed first."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import suggest_file
from argosy.core.parse import parse_int
from argosy.jobs.first_failure import RankEnd
from argosy.jobs.record import read_plan, read_runs, read_submission

LAST_LINES, LAST_BYTES = 12, 65_536
WIDEST = 10
"""Most digits of a number in a file name (sbatch(1), filename pattern)."""

OF_RANK = re.compile(r"(?:\[?rank ?| *(?=\d+: ))(?P<rank>\d{1,9})\b", re.IGNORECASE)
"""The beginning of a line that names its rank: of the program, of torch, or the label of srun."""
TRACEBACK = "Traceback (most recent call"

REPORT = re.compile(r"torch/distributed/elastic/multiprocessing/api\.py:\d+\] (failed|Sending process)|srun: error: ")
"""Beginning of the error report of torchrun or srun, which follows the output of the program."""


def can_read(file: str | Path) -> bool:
    """Return whether a job's output can be read here: it may be on another machine or not readable."""
    return os.path.isfile(file) and os.access(file, os.R_OK)  # noqa: PTH113 - Path's raises where a folder is closed


def read_tail(file: str | Path, most: int) -> str:
    """Return the last bytes of a text file, at most `most`; empty if it cannot be read."""
    try:
        with Path(file).open("rb") as source:
            source.seek(max(0, source.seek(0, os.SEEK_END) - most))
            return source.read(most).decode(errors="replace")
    except (OSError, ValueError):  # ValueError: the path contains a NUL
        return ""


SIF_BYTES = 64
"""Bytes at the beginning of a SIF file, with its mark."""

ENDS_BYTES = 1 << 20
"""Bytes that are read from the beginning of a log, where NCCL and RCCL list the network, and from its end."""


def read_ends_of(path: str) -> str:
    """Read the beginning and the end of a log.

    Raises
    ------
    UsageError
        When it cannot be read.
    """
    try:
        with Path(path).open("rb") as source:
            head = source.read(ENDS_BYTES)
            if head.startswith(b"hsqs") or b"SIF_MAGIC" in head[:SIF_BYTES]:
                raise UsageError(f"{path} is an image, not a log", hint=f"check an image with: argosy check {path}")
            size = source.seek(0, 2)
            source.seek(max(len(head), size - ENDS_BYTES))
            return (head + b"\n" + source.read(ENDS_BYTES)).decode(errors="replace")
    except FileNotFoundError as error:
        near, hint = suggest_file(Path(path)), "give a file, the number or name of a job, or last"
        hint = f"did you mean {near}? {hint}" if near else hint
        problem = f"no such file: {path}" if path.endswith(".json") else f"there is no log {path!r}"
        raise UsageError(problem, hint=hint) from error
    except OSError as error:
        raise UsageError(f"cannot read the log {path}", evidence=str(error), hint="check the path") from error


def find_output(record: Path | None, job: str, user: str, number: str = "") -> str:
    """Return the output file of a job from the pattern in its record (sbatch(1), filename pattern).

    Patterns that the job number does not determine stay unchanged.  `number` is the job number of an array's task;
    without it, the path is empty if it contains that number.
    """
    array, _, task = job.partition("_")
    known = {"A": array, "u": user, "x": read_plan(record).name, "%": "%"}
    known |= {"a": task, "b": task[-1:], "j": number} if task else {"j": job}

    def fill(match: re.Match[str]) -> str:
        text = known.get(match[2], "")
        return text.zfill(min(parse_int(match[1]), WIDEST)) if text else match[0]

    output = read_submission(record).output
    if task and not number and re.search(r"%\d*j", output.replace("%%", "")):
        return ""
    return re.sub(r"%(\d*)([a-zA-Z%])", fill, output)


def find_outputs(record: Path | None, job: str, user: str) -> tuple[str, ...]:
    """Find the output files of the tasks of an array that Slurm does not list any more.

    The record has the job numbers of the tasks but not their indices, so files with any index match.
    """
    numbers = list(dict.fromkeys(run.job for run in read_runs(record)))
    names_task = re.search(r"%\d*a", read_submission(record).output.replace("%%", ""))
    if "_" in job or (numbers in ([], [job]) and not names_task):
        return ()
    patterns = dict.fromkeys(find_output(record, f"{job}_\0", user, number) for number in numbers or [""])
    globs = (re.sub("0*\0", "*", glob.escape(pattern)) for pattern in patterns if pattern)
    found = {file for each in globs for file in glob.glob(each)}  # noqa: PTH207 - text to text
    return tuple(sorted(found, key=lambda file: [(len(part), part) for part in re.findall(r"\d+|\D+", file)]))


def of_batch(facts: Mapping[str, str]) -> str:
    """Replace the patterns that scontrol (24.11) leaves in an output path: node, step and task of the batch shell."""
    known = {"N": facts.get("BatchHost", "").partition(".")[0], "n": "0", "t": "0", "s": "batch"}

    def fill(match: re.Match[str]) -> str:
        return known[match[2]].zfill(min(parse_int(match[1]), WIDEST)) or match[0]

    return re.sub(r"%(\d*)([Nnts])", fill, facts["StdOut"])


NEW_RUN = "argosy: a new run of this rank begins here"
"""Line of a rank's own log before the output of a second run (``log_rank`` in ``ranks.sh``)."""


def read_last_lines(output: str, record: Path | None, job: str, first: RankEnd | None) -> tuple[str, ...]:
    """Return the last lines of the rank that failed first, as far as files or lines name their rank, else of the job.

    The lines of a job with one output belong to a rank if they begin with its number, for example ``[rank3]: `` or
    ``rank 3``. A Python traceback without a number is that of the rank that failed first.
    """
    logs = read_plan(record).logs
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
