"""Render Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def render_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table with an empty line after it."""
    return "\n".join((render_row(*head), "|---" * len(head) + "|", *(render_row(*row) for row in rows), ""))


def render_row(*cells: str) -> str:
    """Render a row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
