"""Draw on a terminal with rich: the progress of steps, or a live view. Imported only if there is a terminal."""

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
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column
from rich.text import Text

from argosy.core.render import escape_controls
from argosy.core.session import Step

FRAMES_PER_SECOND = 2
QUIT = b"qQ"


class TerminalReporter:
    """Shows the running step with a spinner and its duration, and prints one line for each step that ended."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._moving: Progress | None = None
        self._step = ""

    def begin(self, step: Step) -> None:
        """Start the spinner."""
        self._stop()
        self._step = step.name
        text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        self._moving = Progress(SpinnerColumn(), text, TimeElapsedColumn(), console=self._console, transient=True)
        self._moving.add_task(f"[bold]{step.name:<9}[/] {escape(escape_controls(step.what))}")
        self._moving.start()

    def end(self, step: Step, *, failed: bool) -> None:
        """Print one line for the step; the terminal wraps it."""
        self._stop()
        if step.refused:
            return
        mark = "[red]✗[/]" if failed else "[green]✓[/]"
        text = "failed" if failed else step.result or step.what
        line = f"{mark} [bold]{step.name:<9}[/] {escape(escape_controls(text))} [dim]{step.seconds:.1f} s[/]"
        self._console.print(line, soft_wrap=True)

    def progress(self, step: Step, text: str) -> None:
        """Show the current activity next to the spinner."""
        self._show(step.name, text)

    def amount(self, text: str) -> None:
        """Show how much is done next to the spinner."""
        self._show(self._step, text)

    def _show(self, name: str, text: str) -> None:
        if self._moving is not None:
            self._moving.update(
                self._moving.task_ids[0], description=f"[bold]{name:<9}[/] [dim]{escape(escape_controls(text))}[/]"
            )

    def note(self, text: str) -> None:
        """Print a line above the spinner."""
        self._console.print(escape(escape_controls(text)), soft_wrap=True)

    def _stop(self) -> None:
        if self._moving is not None:
            self._moving.stop()
            self._moving = None


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
