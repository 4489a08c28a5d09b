"""Collect the Python stacks of all ranks of a job with py-spy, and group equal ones."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.parse import decode_json, render_cpulist
from argosy.core.process import find_program
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.jobs.live.probe import TIMED_OUT, read_nodes, run_step, split_tasks
from argosy.jobs.live.sources import open_source
from argosy.slurm.states import RUNNING

GET_PY_SPY = "install py-spy next to Argosy, in a folder that the nodes see: pip install py-spy"

MOST_PROCESSES = 8
"""Processes of a rank among which its Python program is searched; the first ones started the others."""

HEAD = re.compile(r"rank (\d+) (\d+) (\S+) (.*)")
"""The line that `read_stacks.sh` prints for each rank: rank, process, kernel function, program."""


class Thread(msgspec.Struct, frozen=True):
    """A thread of a Python program."""

    name: str
    frames: tuple[str, ...]
    """``function (file:line)``, the innermost first."""


class Stack(msgspec.Struct, frozen=True):
    """The stacks of one rank."""

    rank: int
    host: str
    threads: tuple[Thread, ...] = ()
    """Its threads, the main thread first; empty if they cannot be read."""
    waits_in: str = ""
    """Kernel function in which its first thread waits; empty if it runs."""
    problem: str = ""
    """Why there are no threads."""


class StackGroup(msgspec.Struct, frozen=True):
    """Ranks with equal stacks; `stack` is that of the first."""

    ranks: tuple[int, ...]
    stack: Stack


def collect_stacks(session: Session, job: str) -> tuple[StackGroup, ...]:
    """Collect the Python stacks of all ranks of a running job, and group equal ones, the largest group first.

    A step on each node calls py-spy: from the PATH of the node, else the one next to this program.  py-spy needs no
    root and nothing in the image, because the processes belong to the user.

    Raises
    ------
    UsageError
        If the job does not run, or has no ranks.
    CheckFailed
        If no node replied.
    """
    source, view = open_source(session, job)
    if view.kind != RUNNING:
        raise UsageError(f"job {job} is not running: it {view.meaning}", hint=f"see 'argosy jobs show {job}'")
    nodes, reply = read_nodes(source.session, source.target, moments=1)
    ranks = [(node.host, rank) for node in nodes for rank in node.moments[-1].ranks]
    if not ranks:
        raise UsageError(f"job {job} has no ranks now", evidence=reply.stderr.strip(), hint="wait until they start")
    words = [f"{host}:{rank.rank}:{','.join(map(str, rank.pids[:MOST_PROCESSES]))}" for host, rank in ranks]
    reply = run_step(source.session, source.target, "read_stacks.sh", _find_py_spy(), *words)
    stacks = parse_stacks(reply.stdout, {rank.rank: host for host, rank in ranks})
    if not stacks:
        slow = "the step took too long" if reply.code == TIMED_OUT else reply.stderr.strip()
        raise CheckFailed(f"cannot read the stacks of job {job}", evidence=slow, hint="try again")
    return group_stacks(stacks)


def _find_py_spy() -> str:
    """Return the path of the py-spy that is installed with Argosy; only its name if there is none."""
    own = Path(sys.executable).with_name("py-spy")
    return str(own) if own.is_file() else find_program("py-spy") or "py-spy"


def parse_stacks(text: str, hosts: Mapping[int, str]) -> tuple[Stack, ...]:
    """Parse the reply of a step."""
    found: list[Stack] = []
    for lines in split_tasks(text):
        starts = [n for n, line in enumerate(lines) if HEAD.fullmatch(line)]
        for start, end in pairwise([*starts, len(lines)]):
            match = HEAD.fullmatch(lines[start])
            if match:
                found.append(_parse_stack(match, lines[start + 1 : end], hosts.get(int(match[1]), "")))
    return tuple(sorted(found, key=lambda stack: stack.rank))


def _parse_stack(head: re.Match[str], lines: Sequence[str], host: str) -> Stack:
    waits_in = "" if head[3] == "0" else head[3]
    stack = Stack(int(head[1]), host, waits_in=waits_in)
    if head[4] != "python":
        return replace(stack, problem=f"its program {head[4]} is not Python")
    if lines[:1] == ["missing py-spy"]:
        return replace(stack, problem=f"there is no py-spy on {host}")
    try:
        threads = decode_json("\n".join(lines), tuple[_SpyThread, ...])
    except msgspec.DecodeError:
        reasons = [line for line in lines if line.strip() and not line.startswith("failed ")]
        return replace(stack, problem=f"py-spy failed: {reasons[-1].strip() if reasons else 'it took too long'}")
    known = (Thread(each.thread_name or "?", tuple(map(_render_frame, each.frames))) for each in threads)
    return replace(
        stack, threads=tuple(sorted(known, key=lambda each: (each.name != "MainThread", each.name, each.frames)))
    )


class _SpyFrame(msgspec.Struct, frozen=True):
    """A frame as py-spy prints it with ``--json``."""

    name: str
    filename: str
    line: int


class _SpyThread(msgspec.Struct, frozen=True):
    """A thread as py-spy prints it with ``--json``."""

    frames: tuple[_SpyFrame, ...]
    thread_name: str | None = None


def _render_frame(frame: _SpyFrame) -> str:
    return f"{frame.name} ({frame.filename}:{frame.line})"


def group_stacks(stacks: Sequence[Stack]) -> tuple[StackGroup, ...]:
    """Group ranks with equal threads, the largest group first."""
    groups: dict[tuple[object, ...], list[Stack]] = {}
    for stack in stacks:
        own = stack.waits_in if not stack.threads else ""
        groups.setdefault((stack.threads, stack.problem, own), []).append(stack)
    found = (StackGroup(tuple(each.rank for each in group), group[0]) for group in groups.values())
    return tuple(sorted(found, key=lambda group: (-len(group.ranks), group.ranks)))


def render_groups(groups: Sequence[StackGroup]) -> Iterator[str]:
    """Render the groups as lines."""
    for group in groups:
        stack = group.stack
        ranks = "rank" if len(group.ranks) == 1 else f"{len(group.ranks)} ranks:"
        where = f" on {stack.host}" if len(group.ranks) == 1 else ""
        wait = f", waits in {stack.waits_in} (kernel)" if stack.waits_in else ""
        yield f"{ranks} {render_cpulist(group.ranks)}{where}{wait}"
        if stack.problem:
            yield f"  unknown: {stack.problem}"
        for thread in stack.threads:
            yield f"  {thread.name}"
            yield from (f"    {frame}" for frame in thread.frames or ("no Python frames",))
    if any("no py-spy" in group.stack.problem for group in groups):
        yield f"-> {GET_PY_SPY}"
