"""Progress for people: a line per step that moves while it runs; imported only when standard error is a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from argosy.session import Step

LONGEST = 90


class TerminalReporter:
    """Shows the running step with a spinner, and leaves one line for each step that ended."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status: Status | None = None

    def begin(self, step: Step) -> None:
        """Start the spinner."""
        self._stop()
        self._status = self._console.status(f"[bold]{step.name:<9}[/] {escape(step.what)}")
        self._status.start()

    def end(self, step: Step, *, failed: bool) -> None:
        """Leave one line."""
        self._stop()
        mark = "[red]✗[/]" if failed else "[green]✓[/]"
        text = "failed" if failed else step.result or step.what
        self._console.print(f"{mark} [bold]{step.name:<9}[/] {escape(text)} [dim]{step.seconds:.1f} s[/]")

    def progress(self, step: Step, text: str) -> None:
        """Show what is going on beside the spinner."""
        if self._status is not None:
            shown = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
            self._status.update(f"[bold]{step.name:<9}[/] {escape(step.what)}: [dim]{escape(shown)}[/]")

    def note(self, text: str) -> None:
        """Print a line above the spinner."""
        self._console.print(escape(text))

    def _stop(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None
