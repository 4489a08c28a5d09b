"""Read what a job wrote as its reader wants it: every task of an array under its file's name, or one rank alone."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.jobs.query import JobFacts, is_output_elsewhere, read_plan
from argosy.jobs.record import can_read

BLOCK = 65536


class RankLines:
    """Of lines that begin with the rank that wrote them, as srun, torchrun and hydra label them, those of one rank."""

    def __init__(self, rank: int) -> None:
        self._begins = re.compile(rb" *(?:%d: ?|\[%d\] ?)" % (rank, rank))
        self._rest = b""

    def feed(self, block: bytes) -> bytes:
        """Return the whole lines that are complete with this block, without their label."""
        *lines, self._rest = (self._rest + block).split(b"\n")
        return b"".join(line[found.end() :] + b"\n" for line in lines if (found := self._begins.match(line)))


def read_output(facts: JobFacts, *, rank: int | None = None) -> Iterator[bytes]:
    """Return what a job wrote so far, block by block; of several files each after a line with its name.

    Raises
    ------
    UsageError
        When it has written nothing yet, or its output does not tell ranks apart.
    """
    files = output_files(facts, rank)
    there = [file for file in files if can_read(file)]
    if not there:
        raise _nothing(facts, files, f"job {facts.id}" if rank is None else f"rank {rank} of job {facts.id}")
    if rank is not None and not is_split(facts):
        yield from _of_rank(facts, there, rank)
        return
    for file in there:
        if len(files) > 1:
            yield f"==> {file} <==\n".encode(errors="surrogateescape")
        yield from _blocks(file)
    missing = len(files) - len(there)
    if missing:
        yield f"==> {missing} more {'has' if missing == 1 else 'have'} written nothing yet <==\n".encode()


def output_files(facts: JobFacts, rank: int | None) -> tuple[str, ...]:
    """Return the files that a job, or one rank of it, writes to."""
    if rank is None or not is_split(facts):
        return facts.outputs or (facts.output,)
    numbers = dict.fromkeys((*(run.job for run in facts.runs), facts.id))
    files = [str(Path(str(read_plan(facts)["logs"]), number, f"rank-{rank}.log")) for number in numbers]
    return tuple(file for file in files if can_read(file)) or (files[-1],)


def is_split(facts: JobFacts) -> bool:
    """Return whether each rank of a job writes to a file of its own."""
    return bool(read_plan(facts).get("logs"))


def _of_rank(facts: JobFacts, files: Iterable[str], rank: int) -> Iterator[bytes]:
    """Return the lines of one rank out of the output of all."""
    labelled = False
    for file in files:
        lines = RankLines(rank)
        for block in (*_blocks(file), b"\n"):
            found = lines.feed(block)
            labelled |= bool(found)
            yield found
    if not labelled:
        raise UsageError(
            f"no line in the output of job {facts.id} is of rank {rank}",
            evidence=", ".join(files),
            hint="ranks are told apart in jobs that were launched with --label or --log-dir",
        )


def _blocks(file: str) -> Iterator[bytes]:
    with Path(file).open("rb") as source:
        yield from iter(lambda: source.read(BLOCK), b"")


def _nothing(facts: JobFacts, files: tuple[str, ...], who: str) -> UsageError:
    over = is_output_elsewhere(facts)
    return UsageError(
        f"{who} has left no output here" if over else f"{who} has written nothing yet",
        evidence=f"the job {facts.meaning}; its output goes to {files[0]}",
        hint=f"is that a folder of {facts.nodes} alone? start it from one that all nodes see" if over else "",
    )
