"""Write numbers, durations, sizes and tables for people."""

from __future__ import annotations

import re
from collections.abc import Sequence

MINUTE, HOUR, DAY = 60, 3600, 86400
KILO, TWO_DIGITS = 1000, 10


CONTROLS = re.compile(r"[^\n\t\x20-\x7e\xa0-\U0010ffff]")
"""Control characters, which could change the terminal. Bytes that are not UTF-8 are not among them."""


def escape_controls(text: str) -> str:
    """Replace control characters, for example in the name of a file, by their escapes."""
    return CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


LONGEST_LINE, MOST_LINES = 1000, 200
"""Characters of a line, and lines of a message, that are shown: a value in it may be a whole file of a stranger."""


def shorten_message(text: str) -> str:
    """Cut long lines and too many lines of a message in the middle, and state their length."""
    lines = text.split("\n")
    if len(lines) > MOST_LINES:
        half = MOST_LINES // 2
        lines = [*lines[:half], f"… ({len(lines)} lines)", *lines[-half:]]
    return "\n".join(map(_shorten_line, lines))


def _shorten_line(line: str) -> str:
    half = LONGEST_LINE // 2
    return line if len(line) <= LONGEST_LINE else f"{line[:half]} … {line[-half:]} ({len(line)} characters)"


def count(number: int, noun: str) -> str:
    """Return a number with a noun in the singular or the plural, for example ``1 node`` or ``2 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def render_seconds(seconds: float) -> str:
    """Render a duration in its largest unit: ``40 s``, ``3 min``, ``5 h`` or ``4 d``."""
    for unit, size, most in (("s", 1, 2 * MINUTE), ("min", MINUTE, 2 * HOUR), ("h", HOUR, 2 * DAY)):
        if seconds < most:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / DAY:.0f} d"


def render_duration(seconds: float) -> str:
    """Render a duration in its two largest units, for example ``75 s``, ``12 min 5 s`` or ``3 h 20 min``."""
    whole = round(seconds)
    if whole < 2 * MINUTE:
        return f"{whole} s"
    if whole < 2 * HOUR:
        return f"{whole // MINUTE} min {whole % MINUTE} s"
    return f"{whole // HOUR} h {whole % HOUR // MINUTE} min"


def render_size(size: int) -> str:
    """Render a number of bytes in decimal units: ``512 bytes``, ``12 MB``, ``3.4 GB``."""
    value, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < KILO:
            break
        value, unit = value / KILO, larger
    digits = 0 if unit == "bytes" or value >= TWO_DIGITS else 1
    return f"{value:.{digits}f} {unit}"


def render_packages(number: int) -> str:
    """Render ``no packages``, ``1 package`` or ``12 packages``."""
    return count(number, "package") if number else "no packages"


def align_rows(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of equal length as lines whose cells are in columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
