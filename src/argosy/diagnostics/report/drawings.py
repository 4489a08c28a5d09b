"""Draw the pictures of a report as SVG: ranks on cores, and the timeline; pure.

The colours come from the page's style sheet, so that the pictures follow its light and dark modes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from argosy.diagnostics.report.model import Moment, RankRow
from argosy.jobs.record import parse_cores

MOST_NODES = 8
"""Nodes that are drawn; the table has all ranks."""

CELL, GAP, COLUMNS = 22, 3, 32
WIDTH = 720
"""Width of the timeline in pixels."""

RANK_COLORS = 8
"""Number of colours for ranks in the style sheet: classes r0 to r7."""


def draw_node(host: str, ranks: Sequence[RankRow], cores: int, gpus: int) -> str:
    """Draw a node: each core with the rank that ran on it; cores that were planned and not used are dashed.

    Parameters
    ----------
    ranks
        Ranks of the node.
    cores, gpus
        Numbers of the node; 0 if they are unknown.
    """
    seen = {core: each for each in ranks for core in parse_cores(each.cores)}
    planned = {core: each for each in ranks for core in parse_cores(each.planned)}
    number = max((cores, *(core + 1 for core in (*seen, *planned))), default=0)
    rows = -(-number // COLUMNS)
    head = 24 + (30 if gpus else 0)
    width, height = COLUMNS * (CELL + GAP) + 2, head + rows * (CELL + GAP) + 4
    label = escape(f"Cores of {host}: " + "; ".join(f"rank {each.rank}: {each.cores}" for each in ranks))
    parts = [f'<svg class="drawing" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">']
    parts.append(f'<text x="1" y="15" class="title">{escape(host)}</text>')
    for gpu in range(gpus):
        parts.append(f'<rect x="{1 + gpu * 62}" y="24" width="56" height="22" rx="4" class="gpu"/>')
        parts.append(f'<text x="{29 + gpu * 62}" y="39" class="middle">GPU {gpu}</text>')
    for core in range(number):
        parts += _draw_core(
            core, (1 + core % COLUMNS * (CELL + GAP), head + core // COLUMNS * (CELL + GAP)), seen, planned
        )
    return "".join((*parts, "</svg>"))


def _draw_core(
    core: int, corner: tuple[int, int], seen: dict[int, RankRow], planned: dict[int, RankRow]
) -> Iterator[str]:
    (left, top), rank, plan = corner, seen.get(core), planned.get(core)
    kind = f"r{rank.local % RANK_COLORS}" if rank else "free"
    title = f"core {core}: " + (f"rank {rank.rank}" if rank else "no rank")
    if plan and (rank is None or rank.rank != plan.rank):
        kind, title = f"{kind} missed", f"{title}, planned for rank {plan.rank}"
    text = str(rank.rank) if rank else ""
    yield f'<g><title>{title}</title><rect x="{left}" y="{top}" width="{CELL}" height="{CELL}" rx="3" class="{kind}"/>'
    yield f'<text x="{left + CELL / 2:g}" y="{top + 15}" class="middle small">{text}</text></g>'


def draw_timeline(moments: Sequence[Moment]) -> str:
    """Draw the events of a job on a line; waiting time and run time are in proportion."""
    if len(moments) < 2:  # noqa: PLR2004 - a line has two ends
        return ""
    first, last = moments[0].seconds, moments[-1].seconds
    span = max(1.0, last - first)
    height = 34 + 22 * len(moments)
    parts = [f'<svg class="drawing" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Timeline of the job">']
    parts.append(f'<line x1="10" x2="{WIDTH - 10}" y1="14" y2="14" class="axis"/>')
    for number, moment in enumerate(moments):
        at = 10 + (moment.seconds - first) / span * (WIDTH - 20)
        row = 34 + 22 * number
        anchor = "end" if at > WIDTH / 2 else "start"
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="14" y2="{row - 10}" class="grid"/>')
        parts.append(f'<circle cx="{at:.1f}" cy="14" r="5" class="point"/>')
        after = f"+{moment.seconds - first:.0f} s" if number else ""
        text = escape(f"{moment.text} {after}".strip())
        parts.append(f'<text x="{at:.1f}" y="{row + 4}" text-anchor="{anchor}">{text}</text>')
    return "".join((*parts, "</svg>"))
