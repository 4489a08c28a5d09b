"""Read the record that a job left beside its script: its runs, its ranks, the rank that failed first."""

from __future__ import annotations

import base64
import contextlib
import glob
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from argosy.core.process import Runner
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.ssh import OverSsh, parse_remote, run_text
from argosy.core.store import write_text
from argosy.jobs.first_failure import RankEnd

VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
"""Variables that choose GPUs, the lowest level first."""


class RankFacts(msgspec.Struct, frozen=True):
    """What one rank was given.

    Attributes
    ----------
    local
        Its number on its node.
    restart
        Of which run of a job that was requeued it is.
    cores
        The cores it may use, as a list of ranges: read back, not what was asked for.
    devices
        GPU device nodes that it sees.
    visible
        Its variables of visible GPUs, as they are.
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
        """GPUs that it can use: the device nodes, or fewer where a variable lists fewer."""
        return min([self.devices, *(len(value.split(",")) for _, value in self.visible)])


def parse_ranks(text: str, job: str = "") -> tuple[RankFacts, ...]:
    """Read the lines of a run, of the last one where a job ran several times; what is no such line is passed over.

    The tasks of an array note theirs in one place; `job` is the number of one of them.
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
                rank=_number(words["rank"]),
                local=_number(words.get("local", "")),
                host=words["host"],
                restart=_number(words.get("restart", "")),
                cores=words.get("cores", ""),
                devices=_number(words.get("devices", "")),
                visible=tuple((name, words[name]) for name in VISIBLE if name in words),
            )


def parse_cores(text: str) -> frozenset[int]:
    """Read a list of ranges: ``1-7,9``; a stride (``0-6:2``) as taskset may print it, too."""
    out: set[int] = set()
    for part in filter(None, text.split(",")):
        span, _, step = part.partition(":")
        first, _, last = span.partition("-")
        if first.isdigit() and (last or first).isdigit():
            out |= set(range(int(first), int(last or first) + 1, _number(step) or 1))
    return frozenset(out)


LAST_LINES = 12
REPORT = re.compile(r"torch/distributed/elastic/multiprocessing/api\.py:\d+\] (failed|Sending process)|srun: error: ")


class Run(msgspec.Struct, frozen=True):
    """One run of a job; one that was requeued has several.

    Attributes
    ----------
    started, ended
        Seconds since 1970; 0 where nobody noted it.
    """

    job: str
    restart: int
    code: int
    nodes: str
    started: int = 0
    ended: int = 0


def read_runs(record: Path | None) -> tuple[Run, ...]:
    """Read what the job noted of the ends of its runs; a line that a full disk cut is passed over."""
    rows = (line.split() for line in _text(record, "ends").splitlines())
    return tuple(
        Run(row[0], _number(row[1]), _number(row[2]), row[3], *map(_number, row[4:6]))
        for row in rows
        if len(row) >= 4  # noqa: PLR2004
    )


def last_run(runs: Sequence[Run]) -> Run | None:
    """Return the run that decides how a job ended: the last one; for an array, a failed task if there is one."""
    last = {run.job: run for run in runs}
    return next((run for run in last.values() if run.code), runs[-1] if runs else None)


def read_ranks(record: Path | None, job: str = "") -> tuple[RankFacts, ...]:
    """Read what each rank of the last run noted of itself; `job` is the number of one task, where it is an array."""
    files = sorted(record.glob("ranks-*")) if record else []
    return parse_ranks("".join(file.read_text(errors="replace", encoding="utf-8") for file in files), job)


def read_first(record: Path | None, job: str = "") -> RankEnd | None:
    """Return the rank that the job itself, or one task of an array, noted as the first to fail in its last run."""
    rows = [line.split() for line in _text(record, "first").splitlines()]
    whole = [row for row in rows if len(row) == 5 and job in ("", row[0])]  # noqa: PLR2004
    runs = [run for run in read_runs(record) if job in ("", run.job)]
    if not whole or (runs and _number(whole[-1][1]) != runs[-1].restart):
        return None
    _, _, rank, host, code = whole[-1]
    own = int(code) if code.lstrip("-").isdigit() else 1
    return RankEnd(_number(rank), host, own if own >= 0 else 128 - own)


def find_record(session: Session, job: str) -> Path | None:
    """Find the folder with our record of a job; the newest, since a cluster may begin its numbers anew.

    The job's own record comes before records of launches inside it (``--in-allocation``).  The tasks of an array share
    the record of the array.
    """
    steps: Path | None = None
    job = re.split("[_+]", job)[0]
    for file in sorted((session.paths.state / "runs").glob("*/submitted.json"), reverse=True):
        told = read_submitted(file.parent)
        if told.get("job") == job:
            if not told.get("in_allocation"):
                return file.parent
            steps = steps or file.parent
    return steps


def read_submitted(record: Path | None) -> dict[str, str]:
    """Read what was noted when the job was submitted: its number, output, site and time.

    Who was killed while a job was submitted noted no number: then it is what the job itself noted.
    """
    told = _words(record, "submitted.json")
    return told | {"job": _own_number(record)} if told.get("job") == "" else told


def _own_number(record: Path | None) -> str:
    """Return the number that a job noted of itself at its end, or its first rank; empty where none did."""
    runs = read_runs(record)
    files = sorted(record.glob("ranks-*")) if record and not runs else []
    match = re.search(r"\bjob=(\d+)", _text(record, files[0].name)) if files else None
    return runs[0].job if runs else match[1] if match else ""


def adopt_record(session: Session, facts: Mapping[str, str]) -> Path | None:
    """Find the record of a job by the script that Slurm says it runs, and note the number there.

    Who was killed while the job was submitted could not note it.
    """
    record = Path(facts.get("Command", "")).parent
    job = facts.get("ArrayJobId") or facts.get("JobId", "")
    if not job or record.parent != session.paths.state / "runs":
        return None
    told = _words(record, "submitted.json")
    if told.get("job") != "":
        return None
    with contextlib.suppress(OSError):
        write_text(record / "submitted.json", json.dumps(told | {"job": job}) + "\n")
    return record


def can_read(file: str | Path) -> bool:
    """Return whether a job's output can be read here: it may be on another machine, or closed to this user."""
    return os.path.isfile(file) and os.access(file, os.R_OK)  # noqa: PTH113 - Path's raises where a folder is closed


def find_output(record: Path | None, job: str, user: str, number: str = "") -> str:
    """Say where a job wrote to that Slurm has forgotten: the pattern of its plan (sbatch(1), filename pattern), filled.

    What a job's number does not tell, such as the number of an array's task, stays as it is; `number` is the one that
    such a task has beside its place in the array.
    """
    array, _, task = job.partition("_")
    known = {"A": array, "u": user, "x": str(_words(record, "job.json").get("name", "")), "%": "%"}
    known |= {"a": task, "b": task[-1:], "j": number} if task else {"j": job}

    def fill(match: re.Match[str]) -> str:
        text = known.get(match[2], "")
        return text.zfill(int(match[1] or 0)) if text else match[0]

    return re.sub(r"%(\d*)([a-zA-Z%])", fill, read_submitted(record).get("output", ""))


def find_outputs(record: Path | None, job: str, user: str) -> tuple[str, ...]:
    """Find where the tasks of an array wrote to that Slurm has forgotten; nothing of another job's.

    Their numbers are noted where they ended, their places in the array are not: those are whatever is there.
    """
    numbers = list(dict.fromkeys(run.job for run in read_runs(record)))
    if "_" in job or numbers in ([], [job]):
        return ()
    patterns = dict.fromkeys(find_output(record, f"{job}_\0", user, number) for number in numbers)
    globs = (re.sub("0*\0", "*", glob.escape(pattern)) for pattern in patterns)
    found = {file for each in globs for file in glob.glob(each)}  # noqa: PTH207 - text to text
    return tuple(sorted(found, key=lambda file: [(len(part), part) for part in re.findall(r"\d+|\D+", file)]))


def of_batch(facts: Mapping[str, str]) -> str:
    """Fill what scontrol leaves of an output's pattern: node, step and task, which are the batch shell's (24.11)."""
    known = {"N": facts.get("BatchHost", "").partition(".")[0], "n": "0", "t": "0", "s": "batch"}
    pattern = re.compile(r"%(\d*)([Nnts])")
    return pattern.sub(lambda match: known[match[2]].zfill(int(match[1] or 0)) or match[0], facts["StdOut"])


def read_last_lines(output: str, record: Path | None, job: str, first: RankEnd | None) -> tuple[str, ...]:
    """Return the last lines of the rank that failed first where it had a file of its own, else of the job's output."""
    logs = str(_words(record, "job.json").get("logs", ""))
    own = Path(logs, job, f"rank-{first.rank}.log") if logs and first else None
    for file in (own, Path(output) if output else None):
        if file and can_read(file):
            with file.open("rb") as source:
                source.seek(max(0, source.seek(0, 2) - 65536))
                lines = source.read().decode(errors="replace").splitlines()
            return _own_lines(lines)[-LAST_LINES:]
    return ()


def _own_lines(lines: list[str]) -> tuple[str, ...]:
    """Return what the program itself wrote: what stands before the first report of torchrun or srun that it failed."""
    ends = [n for n, line in enumerate(lines) if REPORT.search(line)]
    own = lines[: ends[0]] if ends else lines
    return tuple(line for line in own if not line.startswith("argosy: "))


def _words(record: Path | None, name: str) -> dict[str, str]:
    try:
        told = json.loads(_text(record, name) or "{}")
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _text(record: Path | None, name: str) -> str:
    file = record / name if record else None
    try:
        return file.read_text(errors="replace", encoding="utf-8") if file and file.is_file() else ""
    except OSError:
        return ""


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


BLOCK_BYTES = 8 << 20
"""Of an output, in one question."""

OUTPUT = "output-"
"""What the name of a copied output begins with in its record."""

MOST_LOGS, LOG_BYTES = 16, 262_144
"""Of the network library: how many ranks' logs are copied, and how much of each; it tells its choices first."""

NOTES = r"""
logs=0
for name in ends first ranks-* nccl-*; do
    [ -f "$name" ] || continue
    size=$(($(wc -c < "$name")))
    [ "$size" -le $most_bytes ] || size=$most_bytes
    case $name in nccl-*) logs=$((logs + 1)); [ "$logs" -le $most_logs ] || break ;; esac
    case $known in *" $name:$size "*) continue ;; esac
    printf "%s %s\n" "$name" "$(head -c "$size" -- "$name" | base64 | tr -d "\n")"
done
"""
"""Prints each note, and of the long logs those that have another size than is known here."""

NAME = re.compile(r"(?:ends|first|(?:ranks|nccl)-[\w.-]+)\Z")


def session_of(session: Session, record: Path | None) -> Session:
    """Return the session that reaches a job submitted by ssh."""
    host = read_submitted(record).get("ssh", "")
    return replace(session, runner=OverSsh(session.runner, parse_remote(host))) if host else session


def copy_notes(runner: Runner, record: Path) -> None:
    """Copy what a job noted, and logs that grew since the last time, into its record here; `runner` is there."""
    there = read_submitted(record).get("there", "")
    known = " ".join(f"{path.name}:{path.stat().st_size}" for path in record.glob("nccl-*"))
    settings = f"known={quote(f' {known} ')} most_bytes={LOG_BYTES} most_logs={MOST_LOGS}"
    for line in run_text(runner, f"cd -- {quote(there)} || exit 1\n{settings}\n{NOTES}").stdout.splitlines():
        name, _, data = line.partition(" ")
        if NAME.match(name):
            write_text(record / name, base64.b64decode(data).decode(errors="replace"))


def copy_output(runner: Runner, record: Path, path: str) -> str:
    """Copy what a file there has grown by since the last time, and give the copy in the record."""
    copy = record / f"{OUTPUT}{PurePosixPath(path).name}"
    while path and _copy_growth(runner, path, copy):
        pass
    return str(copy)


def _copy_growth(runner: Runner, path: str, copy: Path) -> bool:
    """Append to a copy what its original has grown by, and tell whether there may be more.

    A file that is shorter than its copy was begun anew.
    """
    have = copy.stat().st_size if copy.is_file() else 0
    block = f"tail -c +{have + 1} -- {quote(path)} | head -c {BLOCK_BYTES} | base64"
    reply = run_text(runner, f"[ -f {quote(path)} ] || exit 0\nwc -c < {quote(path)}\n{block}")
    size, _, text = reply.stdout.partition("\n")
    if not size.strip().isdigit():
        return False
    if int(size) < have:
        copy.unlink()
        return True
    data = base64.b64decode(text)
    with copy.open("ab") as file:
        file.write(data)
    return len(data) == BLOCK_BYTES
