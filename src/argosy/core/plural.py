"""Write a number with its noun."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or the plural, for example ``1 node`` or ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
