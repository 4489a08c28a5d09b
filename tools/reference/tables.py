"""Render rows of Markdown tables."""

from __future__ import annotations


def render_row(*cells: str) -> str:
    """Render a row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
