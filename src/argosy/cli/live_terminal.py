"""Show a view that is refreshed on the whole terminal, until it ends or the user leaves it. Needs rich."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from argosy.cli.live_view import HEADS, choose_ranks, rank_cells, render_hint, render_node, render_title
from argosy.jobs.live.probe import JobView, RankState, RankView

FRAMES_PER_SECOND = 2
STYLES = {RankState.HUNG: "bold red", RankState.SILENT: "yellow", RankState.IDLE: "yellow", RankState.ENDED: "dim"}
CORES_WIDTH, NARROW = 12, 100
QUIT = b"qQ"


def show_live(draw: Callable[[Console], RenderableType], refresh: Callable[[], bool], every: float) -> bool:
    """Draw on the whole terminal, and refresh at an interval, until `refresh` returns False or the user presses q.

    Parameters
    ----------
    draw
        Returns the present picture; called several times per second, so that a resized terminal is filled again.
    refresh
        Gets new values; returns False at the end.
    every
        Seconds between two calls of `refresh`.

    Returns
    -------
    bool
        Whether the end was reached; False if the user left.
    """
    console = Console(highlight=False)
    with (
        _raw_keys() as keys,
        Live(
            get_renderable=lambda: draw(console),
            console=console,
            screen=True,
            refresh_per_second=FRAMES_PER_SECOND,
            redirect_stderr=False,
            redirect_stdout=False,
        ),
    ):
        while True:
            asked = time.monotonic()
            if not refresh():
                return True
            if _quits(keys, asked + every):
                return False


def _quits(keys: int, until: float) -> bool:
    """Wait until a time, and return whether the user pressed q before; `keys` is -1 without a keyboard."""
    while (left := until - time.monotonic()) > 0:
        ready = select.select([keys] if keys >= 0 else [], [], [], left)[0]
        if not ready:
            return False
        pressed = os.read(keys, 64)
        if not pressed:  # the terminal was closed
            keys = -1
        if any(key in QUIT for key in pressed):
            return True
    return False


@contextlib.contextmanager
def _raw_keys() -> Iterator[int]:
    """Read single keys from the terminal without showing them; its settings are restored at the end."""
    if not sys.stdin.isatty():
        yield -1
        return
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    try:
        tty.setcbreak(keys)
        yield keys
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


def text_lines(lines: Sequence[str]) -> RenderableType:
    """Return lines of plain text; the last line is a hint."""
    *shown, hint = lines
    return Group(*(Text(line, no_wrap=True, overflow="ellipsis") for line in shown), Text(hint, style="dim"))


def draw_job(view: JobView, console: Console, every: float) -> RenderableType:
    """Draw a job for the size of a terminal."""
    title = Text(render_title(view, time.time()), style="bold", overflow="ellipsis", no_wrap=True)
    keys = Text(f"every {every:g} s · q leaves, the job continues", style="dim", no_wrap=True)
    hints = [Text(f"-> {text}", no_wrap=True) for text in filter(None, (render_hint(view),))]
    problem = [Text(view.problem, style="bold red", overflow="ellipsis", no_wrap=True)] if view.problem else []
    room = console.height - 4 - len(problem) - len(hints)
    nodes = [Text(render_node(node), style="dim", overflow="ellipsis", no_wrap=True) for node in view.nodes]
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
        cells = rank_cells(rank)
        table.add_row(*(escape(cells[n]) for n in shown), style=STYLES.get(rank.state, ""))
    return table
