"""Ask the nodes of a job what its ranks and GPUs use, by one short step; and the records for a view of it."""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from argosy.core.process import Argv, Command, Reply
from argosy.core.render import count
from argosy.core.session import Session
from argosy.host.gpu_use import GpuUse, parse_amd, parse_intel, parse_nvidia
from argosy.jobs.record import VISIBLE

DATA = Path(__file__).with_name("data")

STEP_SECONDS = "45"
"""Time limit of a step: srun waits for minutes if the controller does not answer."""

OF_CLUSTER = frozenset({"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"})
"""Variables that a step keeps; others would give it the options of a job in which the user types the command."""

TIMED_OUT = 124
"""Exit code of timeout(1)."""

TOOLS = {"nvidia": parse_nvidia, "amd": parse_amd, "intel": parse_intel}
"""Vendor of the GPUs -> function that parses the replies of its tool."""


class RankState(enum.StrEnum):
    """The state of a rank.

    A rank is `HUNG` if it used no CPU and no GPU and wrote nothing for some time.  It is `SILENT` if it only wrote
    nothing, and `IDLE` if it used no CPU since the last measurement.  Ranks that wait for others in a collective
    operation often use their CPU.
    """

    RUNNING = "running"
    IDLE = "idle"
    SILENT = "silent"
    HUNG = "hung"
    ENDED = "ended"


class RankView(msgspec.Struct, frozen=True):
    """One rank of a job."""

    rank: int
    host: str
    state: RankState
    cores: str = ""
    """Cores that it may use, as a list of ranges."""
    cpu: float | None = None
    """CPU use in percent of one core; None until it is measured."""
    memory: int = 0
    """Bytes in memory of all its processes."""
    gpus: tuple[GpuUse, ...] = ()
    """Its GPUs; empty if they are not known."""
    quiet: float | None = None
    """Seconds since its last output; None if the output does not identify its lines."""
    last_line: str = ""
    """Its last line of output; empty if the output does not identify its lines."""
    pids: tuple[int, ...] = ()
    """Its processes on its node, the first one first."""


class NodeView(msgspec.Struct, frozen=True):
    """One node of a job."""

    host: str
    cpus: int
    """CPUs of the node."""
    used: int
    memory: int
    """Bytes of memory in use, by all users, and in total."""
    gpus: tuple[GpuUse, ...] | None
    """GPUs that the job sees; None if the node has no tool that reports them."""


class JobView(msgspec.Struct, frozen=True):
    """A job at one moment."""

    id: str
    name: str
    kind: str
    """``waiting``, ``running`` or ``ended``."""
    meaning: str
    """Description of its state."""
    code: int | None = 0
    """Exit code of an ended job; None if it is unknown."""
    measured: float = 0.0
    """Time of the measurement in seconds since 1970; 0 if there was none."""
    nodes: tuple[NodeView, ...] = ()
    ranks: tuple[RankView, ...] = ()
    last_line: str = ""
    """Last line of the job's output."""
    problem: str = ""
    """Why the newest values are missing; the others are older."""

    @property
    def counts(self) -> str:
        """The number of ranks in each state, for example ``2 ranks: 1 running, 1 hung``."""
        numbers = Counter(each.state for each in self.ranks)
        states = ", ".join(f"{numbers[state]} {state}" for state in RankState if numbers[state])
        return f"{count(len(self.ranks), 'rank')}: {states}" if self.ranks else "no ranks yet"


class ProbeTarget(msgspec.Struct, frozen=True):
    """The processes to ask about."""

    job: str = ""
    """Number of the Slurm job as its processes see it: for a task of an array, the task's own; empty for a local
    run."""
    nodes: int = 1
    """Number of nodes of the job."""
    process: int = 0
    """Id of the process that started a local run."""
    step_options: Argv = ()
    """Options that the site needs with every srun."""


class RankUse(msgspec.Struct, frozen=True):
    """The resources that the processes of one rank use."""

    rank: int
    local: int
    pids: tuple[int, ...]
    """Its processes, the first one first."""
    ticks: int
    """CPU time of its processes, in ticks of the clock."""
    memory: int
    """Bytes in memory; a page that several processes share counts several times."""
    cores: str
    """Cores that it may use, as a list of ranges."""
    visible: tuple[tuple[str, str], ...] = ()
    """Its variables that select GPUs."""


class Moment(msgspec.Struct, frozen=True):
    """The ranks of a node at one moment; `at` is the time since the node started, in seconds."""

    at: float
    ranks: tuple[RankUse, ...]


class NodeUse(msgspec.Struct, frozen=True):
    """The resources that the job uses on one node."""

    host: str
    cpus: int
    hertz: int
    """Ticks of the clock per second."""
    memory: int
    available: int
    """Bytes of the node."""
    moments: tuple[Moment, ...]
    gpus: tuple[GpuUse, ...] | None = None
    """Its GPUs; None if it has no tool that reports them."""


def _plan_step(target: ProbeTarget, script: str, *arguments: str) -> Argv:
    """Return the command that runs a script once on each node of a job, next to its ranks, or on this machine."""
    program = ("sh", "-c", (DATA / script).read_text(encoding="utf-8"), script, *arguments)
    if not target.job:
        return program
    nodes = str(target.nodes)
    step = ("srun", *target.step_options, f"--jobid={target.job}", "--overlap", f"--nodes={nodes}", f"--ntasks={nodes}")
    shape = ("--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none", "--label", "--export=ALL")
    return ("timeout", STEP_SECONDS, *step, *shape, *program)


def run_step(session: Session, target: ProbeTarget, script: str, *arguments: str) -> Reply:
    """Run a script once on each node of a job, or on this machine."""
    environment = {
        name: value
        for name, value in session.host.environment.items()
        if name in OF_CLUSTER or not name.startswith(("SLURM_", "SRUN_"))
    }
    return session.runner.run(Command(_plan_step(target, script, *arguments), env=environment))


def read_nodes(session: Session, target: ProbeTarget, *, moments: int) -> tuple[tuple[NodeUse, ...], Reply]:
    """Read what a job uses on its nodes.

    Parameters
    ----------
    moments
        1, or 2 for two moments with a second between them: the use of CPUs is the difference of two.
    """
    process = (str(target.process),) if target.process else ()
    awk = (DATA / "sum_ranks.awk").read_text(encoding="utf-8")
    reply = run_step(session, target, "read_node.sh", awk, str(moments), *process)
    return parse_nodes(reply.stdout), reply


def split_tasks(text: str) -> list[list[str]]:
    """Return the lines of each task of a step from the output of ``srun --label``; without labels, all lines."""
    tasks: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = re.match(r" *(\d+): ?(.*)", line)
        tasks.setdefault(match[1] if match else "", []).append(match[2] if match else line)
    return list(tasks.values())


def parse_nodes(text: str) -> tuple[NodeUse, ...]:
    """Parse the reply of a step; a node without a complete reply is left out."""
    found = (_parse_node(lines) for lines in split_tasks(text) if lines[-1:] == ["end"])
    return tuple(sorted(filter(None, found), key=lambda node: _natural(node.host)))


def _parse_node(lines: Sequence[str]) -> NodeUse | None:
    parts: list[tuple[str, list[str]]] = []
    for line in lines:
        if re.match(r"(node|at|gpus|processes|end)\b", line):
            parts.append((line, []))
        elif parts:
            parts[-1][1].append(line)
    head = parts[0][0].split()
    if len(head) != 6 or head[0] != "node" or not all(map(str.isdigit, head[2:])):  # noqa: PLR2004
        return None
    moments = tuple(
        Moment(float(title.split()[1]), tuple(map(_parse_rank, rows)))
        for title, rows in parts
        if title.startswith("at ")
    )
    cpus, hertz, memory, available = map(int, head[2:])
    return NodeUse(head[1], cpus, hertz, memory << 10, available << 10, moments, _parse_gpus(parts))


def _parse_rank(line: str) -> RankUse:
    words = dict(word.partition("=")[::2] for word in line.split())
    first, *others = int(words["pid"]), *sorted(map(int, words["pids"].split(",")))
    return RankUse(
        rank=int(words["rank"]),
        local=int(words["local"]),
        pids=(first, *(pid for pid in others if pid != first)),
        ticks=int(words["ticks"]),
        memory=int(words["memory"]) << 10,
        cores=words["cores"],
        visible=tuple((name, words[name]) for name in VISIBLE if name in words),
    )


def _parse_gpus(parts: Sequence[tuple[str, list[str]]]) -> tuple[GpuUse, ...] | None:
    """Return the GPUs of a node; None if no tool reported any."""
    texts = {
        tuple(title.split()): "\n".join(rows) for title, rows in parts if title.startswith(("gpus ", "processes "))
    }
    vendor = next((title[1] for title in texts if title[0] == "gpus"), "")
    if vendor == "intel":
        return parse_intel(texts["gpus", vendor]) or None
    if vendor not in TOOLS:
        return None
    parse = parse_nvidia if vendor == "nvidia" else parse_amd
    return parse(texts["gpus", vendor], texts.get(("processes", vendor), "")) or None


def _natural(host: str) -> list[tuple[int, str]]:
    """Return the key that sorts node10 after node9."""
    return [(len(part) if part.isdigit() else 0, part) for part in re.findall(r"\d+|\D+", host)]


def rank_gpus(rank: RankUse, gpus: Sequence[GpuUse]) -> tuple[GpuUse, ...]:
    """Return the GPUs that a rank uses: those that report one of its processes, else those that its variables select.

    Empty if neither tells.
    """
    used = tuple(gpu for gpu in gpus if set(gpu.processes) & set(rank.pids))
    if used:
        return used
    for _, value in rank.visible:
        numbers = {int(number) for number in value.split(",") if number.isdigit()}
        chosen = tuple(gpu for gpu in gpus if gpu.index in numbers)
        if chosen and len(chosen) < len(gpus):
            return chosen
    return tuple(gpus) if len(gpus) == 1 else ()
