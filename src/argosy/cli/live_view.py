"""Draw the live view of a job: a table of rich on a terminal, and plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from argosy.core.render import render_seconds, render_size
from argosy.host.gpu_use import GpuUse
from argosy.jobs.live.probe import JobView, NodeView, RankState, RankView
from argosy.slurm.states import RUNNING

MOST_RANKS = 32
"""Ranks in plain lines; ``--json`` has all."""

URGENCY = {RankState.HUNG: 0, RankState.SILENT: 1, RankState.IDLE: 2, RankState.RUNNING: 3, RankState.ENDED: 4}
"""Order of the ranks if the terminal cannot show all."""

STYLES = {RankState.HUNG: "bold red", RankState.SILENT: "yellow", RankState.IDLE: "yellow", RankState.ENDED: "dim"}
CORES_WIDTH, NARROW = 12, 100
HEADS = ("RANK", "NODE", "CORES", "CPU", "GPU", "MEMORY", "STATE", "LAST OUTPUT")


def choose_ranks(ranks: Sequence[RankView], most: int) -> tuple[RankView, ...]:
    """Return the ranks to show, in their order: all, or those that need attention first."""
    urgent = sorted(ranks, key=lambda each: (URGENCY[each.state], each.rank))
    return tuple(sorted(urgent[:most], key=lambda each: each.rank))


def render_title(view: JobView, now: float = 0.0) -> str:
    """Render the state of the job in one line, with the age of the measurement if the time is given."""
    parts = [f"job {view.id} {view.name}".rstrip(), view.meaning]
    if view.kind == RUNNING:
        parts.append(view.counts)
        parts.append(f"{render_seconds(now - view.measured)} ago" if view.measured and now else "")
    elif view.code:
        parts[-1] += f" (code {view.code})"
    return " · ".join(filter(None, parts))


def _render_hint(view: JobView) -> str:
    """Return the command that shows where the ranks hang; empty if none does."""
    hung = any(rank.state is RankState.HUNG for rank in view.ranks)
    return f"see where the ranks hang: argosy top {view.id} --stacks" if hung else ""


def _render_node(node: NodeView) -> str:
    """Render the memory and the GPUs of a node in one line."""
    memory = f"{render_size(node.used)} of {render_size(node.memory)} memory"
    gpus = "unknown" if node.gpus is None else " ".join(f"{gpu.index}:{_render_percent(gpu.busy)}" for gpu in node.gpus)
    return f"{node.host}: {node.cpus} CPUs, {memory}, GPU use {gpus}"


def _rank_cells(rank: RankView) -> tuple[str, ...]:
    """Return the cells of a rank for `HEADS`."""
    quiet = f" {render_seconds(rank.quiet)}" if rank.quiet is not None and rank.state in SHOW_QUIET else ""
    return (
        str(rank.rank),
        rank.host,
        rank.cores or "?",
        _render_percent(rank.cpu) if rank.state is not RankState.ENDED else "-",
        _render_gpus(rank.gpus) if rank.state is not RankState.ENDED else "-",
        render_size(rank.memory) if rank.memory else "-",
        f"{rank.state.upper() if rank.state is RankState.HUNG else rank.state}{quiet}",
        rank.last_line,
    )


SHOW_QUIET = frozenset({RankState.HUNG, RankState.SILENT})


def _render_percent(value: float | None) -> str:
    """Render a share in percent, or ``?``."""
    return "?" if value is None else f"{value:.0f} %"


def _render_gpus(gpus: Sequence[GpuUse]) -> str:
    return " ".join(f"{gpu.index}:{_render_percent(gpu.busy)}" for gpu in gpus) or "?"


def plain_lines(view: JobView) -> Iterator[str]:
    """Render a view as lines for a log."""
    yield render_title(view)
    if view.problem:
        yield f"  {view.problem}"
    if not view.ranks:
        return
    rows = [HEADS, *map(_rank_cells, choose_ranks(view.ranks, MOST_RANKS))]
    widths = [max(len(row[n]) for row in rows) for n in range(len(HEADS))]
    for row in rows:
        yield ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True))).rstrip()
    if len(view.ranks) > MOST_RANKS:
        yield f"  … {len(view.ranks) - MOST_RANKS} more ranks; --json shows all"
    if view.last_line and not any(rank.last_line for rank in view.ranks):
        yield f"  output: {view.last_line}"
    if hint := _render_hint(view):
        yield f"  -> {hint}"


def draw_job(view: JobView, console: Console, every: float) -> RenderableType:
    """Draw a job for the size of a terminal."""
    title = Text(render_title(view, time.time()), style="bold", overflow="ellipsis", no_wrap=True)
    keys = Text(f"every {every:g} s · q leaves, the job continues", style="dim", no_wrap=True)
    hints = [Text(f"-> {text}", no_wrap=True) for text in filter(None, (_render_hint(view),))]
    problem = [Text(view.problem, style="bold red", overflow="ellipsis", no_wrap=True)] if view.problem else []
    room = console.height - 4 - len(problem) - len(hints)
    nodes = [Text(_render_node(node), style="dim", overflow="ellipsis", no_wrap=True) for node in view.nodes]
    nodes = nodes[: max(0, room // 3)] if len(nodes) + len(view.ranks) > room else nodes
    ranks = choose_ranks(view.ranks, max(1, room - len(nodes)))
    hidden = len(view.ranks) - len(ranks)
    more = [Text(f"… {hidden} more ranks; --json shows all", style="dim")] if hidden else []
    own = any(rank.last_line for rank in view.ranks)
    last = [Text(f"output: {view.last_line}", overflow="ellipsis", no_wrap=True)] if view.last_line and not own else []
    table = [_draw_ranks(ranks, console.width)] if ranks else []
    return Group(title, *problem, *nodes, *table, *more, *last, *hints, keys)


def _draw_ranks(ranks: Sequence[RankView], width: int) -> Table:
    table = Table(box=None, pad_edge=False, expand=True, header_style="dim")
    shown = [n for n, head in enumerate(HEADS) if head != "CORES" or width >= NARROW]
    for n in shown:
        last = n == len(HEADS) - 1
        table.add_column(
            HEADS[n],
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            max_width=CORES_WIDTH if HEADS[n] == "CORES" else None,
            justify="right" if HEADS[n] in {"RANK", "CPU", "MEMORY"} else "left",
        )
    for rank in ranks:
        cells = _rank_cells(rank)
        table.add_row(*(escape(cells[n]) for n in shown), style=STYLES.get(rank.state, ""))
    return table
