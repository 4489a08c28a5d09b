"""Watch a job: combine its state, the measurements of its nodes and its output into one view per refresh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec

from argosy.core.errors import CheckFailed, Unreachable
from argosy.core.process import Reply
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.host.gpu_use import GpuUse
from argosy.jobs.live.probe import (
    STEP_SECONDS,
    TIMED_OUT,
    JobView,
    Moment,
    NodeUse,
    NodeView,
    RankState,
    RankUse,
    RankView,
    rank_gpus,
    read_nodes,
)
from argosy.jobs.live.sources import open_source
from argosy.slurm.states import ENDED, RUNNING

IDLE_PERCENT = 2.0
"""CPU use, in percent of a core, below which a rank is idle: threads that only wait wake up now and then."""

IDLE_GPU_PERCENT = 1.0

HUNG_SECONDS = 60.0
"""Default time without CPU use and output after which a rank counts as hung."""


class _Use(msgspec.Struct):
    """The CPU time of a rank at the last refresh."""

    at: float
    ticks: int
    cpu: float | None = None
    idle_since: float | None = None


class JobWatch:
    """Produces a view of a job for each refresh.

    Parameters
    ----------
    hung_after
        Seconds without CPU use and output after which a rank counts as hung.
    clock
        Returns seconds since 1970; for tests.
    """

    def __init__(
        self, session: Session, job: str, *, hung_after: float = HUNG_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._hung_after = hung_after
        self._clock = clock
        self._uses: dict[tuple[str, int], _Use] = {}
        self._source, self.view = open_source(session, job)
        self.every = self._source.every

    def refresh(self) -> JobView:
        """Ask about the job, and return the new view; a Slurm that does not answer is a `problem` in the view."""
        try:
            if self.view.kind != RUNNING or self._source.asks_first:
                self.view = self._source.ask(self.view)
            if self.view.kind == RUNNING:
                self.view = self._measure()
        except (CheckFailed, Unreachable) as error:
            self.view = replace(self.view, problem=error.what)
        return self.view

    def follow(self, every: float = 0.0) -> Iterator[JobView]:
        """Yield a view at an interval, at least that of the site, until the job ends."""
        while True:
            asked = time.monotonic()
            yield self.refresh()
            if self.view.kind == ENDED:
                return
            time.sleep(max(0.0, asked + max(every, self.every) - time.monotonic()))

    def _measure(self) -> JobView:
        nodes, reply = read_nodes(self._source.session, self._source.target, moments=1 if self._uses else 2)
        if not nodes:
            return self._explain(reply)
        output = self._source.output
        output.read([rank.rank for node in nodes for rank in node.moments[-1].ranks])
        now = self._clock()
        ranks = [self._view_rank(node, rank, now) for node in nodes for rank in self._update(node, now)]
        here = {each.rank for each in ranks}
        hosts = {node.host for node in nodes}
        others = (_without_reply(each, hosts) for each in self.view.ranks if each.rank not in here)
        silent = self._source.target.nodes - len(nodes)
        return replace(
            self.view,
            measured=now,
            nodes=tuple(
                NodeView(node.host, node.cpus, node.memory - node.available, node.memory, node.gpus) for node in nodes
            ),
            ranks=tuple(sorted((*ranks, *others), key=lambda each: each.rank)),
            last_line=output.job.line if output.job else "",
            problem=f"{silent} of {self._source.target.nodes} nodes did not reply" if silent > 0 else "",
        )

    def _explain(self, reply: Reply) -> JobView:
        """Return the view if no node replied: the job ended or was requeued, or its nodes or Slurm do not answer.

        srun uses the same words for a node and for the controller that does not answer, so the controller is asked.
        """
        view = self._source.ask(self.view)
        if view.kind != RUNNING:
            return view
        if reply.code == TIMED_OUT:
            return replace(view, problem=f"the nodes did not reply within {STEP_SECONDS} s")
        lines = [line for line in reply.stderr.splitlines() if line.strip()]
        return replace(view, problem=f"no node replied: {lines[0]}" if lines else "no node replied")

    def _update(self, node: NodeUse, now: float) -> tuple[RankUse, ...]:
        """Update the CPU use of the ranks of a node, and return the ranks."""
        for moment in node.moments:
            for rank in moment.ranks:
                self._add(node, moment, rank, now)
        return node.moments[-1].ranks

    def _add(self, node: NodeUse, moment: Moment, rank: RankUse, now: float) -> None:
        key = (node.host, rank.rank)
        before = self._uses.get(key)
        if before is None or rank.ticks < before.ticks or moment.at <= before.at:
            self._uses[key] = _Use(moment.at, rank.ticks)
            return
        seconds = moment.at - before.at
        cpu = 100 * (rank.ticks - before.ticks) / node.hertz / seconds
        idle = cpu < IDLE_PERCENT
        since = (before.idle_since or now - seconds) if idle else None
        self._uses[key] = _Use(moment.at, rank.ticks, cpu, since)

    def _view_rank(self, node: NodeUse, rank: RankUse, now: float) -> RankView:
        use = self._uses[node.host, rank.rank]
        output = self._source.output.ranks.get(rank.rank)
        gpus = rank_gpus(rank, node.gpus or ())
        quiet = max(0.0, now - output.at) if output else None
        idle = None if use.idle_since is None or _is_busy(gpus) else now - use.idle_since
        return RankView(
            rank=rank.rank,
            host=node.host,
            state=self._judge(quiet, idle, now),
            cores=rank.cores,
            cpu=use.cpu,
            memory=rank.memory,
            gpus=gpus,
            quiet=quiet,
            last_line=output.line if output else "",
            pids=rank.pids,
        )

    def _judge(self, quiet: float | None, idle: float | None, now: float) -> RankState:
        """Judge a rank by the seconds since its last output and since it became idle; None: unknown, not idle.

        If the whole job is silent, so is each rank.  Of a rank whose output is not known, the idle time decides.
        """
        job = self._source.output.job
        known = max(quiet or 0.0, now - job.at if job else 0.0)
        silent = known >= self._hung_after
        if idle is not None and (silent or (quiet is None and idle >= self._hung_after)):
            return RankState.HUNG
        if silent:
            return RankState.SILENT
        wrote = quiet is not None and idle is not None and quiet < idle
        return RankState.RUNNING if idle is None or wrote else RankState.IDLE


def _without_reply(rank: RankView, hosts: set[str]) -> RankView:
    """Return the view of a rank without a measurement: it ended, or its node is not among those that replied."""
    return replace(rank, state=RankState.ENDED, cpu=None, memory=0, gpus=()) if rank.host in hosts else rank


def _is_busy(gpus: Sequence[GpuUse]) -> bool:
    """Return whether one of the GPUs computes."""
    return any((gpu.busy or 0) > IDLE_GPU_PERCENT for gpu in gpus)
