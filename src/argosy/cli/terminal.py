"""Progress on a terminal: one animated line per step. Imported only if standard error is a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column

from argosy.core.render import escape_controls
from argosy.core.session import Step


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
