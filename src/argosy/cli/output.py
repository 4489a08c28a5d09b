"""Print what a command reports: tables, findings and JSON."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from argosy.core.errors import CheckFailed
from argosy.core.findings import Finding, has_failed, render_findings
from argosy.core.os_errors import translate_os_errors
from argosy.core.records import to_plain
from argosy.core.store import write_text

NARROWEST, NO_LIMIT = 40, 1 << 20
WIDEST_PROSE = 110
WIDEST_CELL = 30
"""Columns of a cell; a longer one stays whole and moves the rest of its row to the next line."""
LEAST_TEXT = 28
"""Columns that the last cell of a table row needs to stay on the row."""


def output_width() -> int:
    """Return the columns of the terminal; practically no limit if standard output is not a terminal."""
    if not sys.stdout.isatty():
        return NO_LIMIT
    try:
        columns = int(os.environ.get("COLUMNS") or 0) or os.get_terminal_size(sys.stdout.fileno()).columns
    except (ValueError, OSError):
        columns = 80
    return max(NARROWEST, columns)


def wrap_width() -> int:
    """Return the columns at which prose is wrapped: at most 110; 0 if standard output is not a terminal."""
    return min(WIDEST_PROSE, output_width()) if sys.stdout.isatty() else 0


def render_table(rows: Sequence[Sequence[str]], width: int) -> str:
    """Render rows in columns; parameters as `table_lines`."""
    return "\n".join(line for lines in table_lines(rows, width) for line in lines)


def table_lines(rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """Return the lines of each row of a table; text that does not fit continues on the next line, and nothing is cut.

    Parameters
    ----------
    width
        Columns of the terminal. Only the last cell of a row wraps; a row stays one line if there is no limit.
    """
    widths = column_widths(rows, width)
    left = table_left(widths)
    found: list[list[str]] = []
    for row in rows:
        lines: list[str] = []
        start = ""
        for number, (cell, size) in enumerate(zip(row, widths, strict=False), 1):
            start += f"{cell:<{size}}  "
            if len(cell) > size:  # the next cells keep their columns
                lines.append(start.rstrip())
                start = " " * table_left(widths[:number])
        text = row[len(widths)] if len(row) > len(widths) else ""
        found.append([*lines, *_render_last(start, text, left, width)])
    return found


def column_widths(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the widths of all columns but the last; long cells count only if there is plenty of space."""
    most = max((len(row) for row in rows), default=1) - 1
    columns = [[len(row[n]) for row in rows if n < len(row)] for n in range(most)]
    widest = [max(column, default=0) for column in columns]
    if table_left(widest) * 2 <= width:
        return widest
    return [max((size for size in column if size <= WIDEST_CELL), default=0) for column in columns]


def table_left(widths: Sequence[int]) -> int:
    """Return the column at which the last cell of a table begins."""
    return sum(widths) + 2 * len(widths)


def _render_last(start: str, text: str, left: int, width: int) -> Iterator[str]:
    """Yield the line that ends with the last cell of a row, and the lines on which this cell continues."""
    if len(start) + len(text) <= width:
        yield (start + text).rstrip()
    elif width - left >= LEAST_TEXT:
        first, *more = wrap_text(text, width - left)
        yield start + first
        yield from (" " * left + line for line in more)
    else:
        yield start.rstrip()
        yield from (f"      {line}" for line in wrap_text(text, width - 6))


def wrap_text(text: str, width: int) -> list[str]:
    """Return a text as lines; a word that is longer than a line, such as a path, stays whole."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]


def fit_table(rows: Sequence[Sequence[str]]) -> str:
    """Render a table that fits the terminal; empty without rows."""
    return render_table(rows, output_width())


def print_findings(findings: Sequence[Finding], *, as_json: bool, **more: object) -> int:
    """Print findings, and return the exit code of the command: 7 if a check failed, else 0.

    Parameters
    ----------
    more
        Further keys of the JSON report, in addition to ``ok`` and ``findings``.
    """
    failed = has_failed(findings)
    if as_json:
        print_json({"ok": not failed, **more, "findings": findings})
    elif findings:
        click.echo(render_findings(findings, colour=use_colour(), columns=output_width()))
    return CheckFailed.code if failed else 0


Differences = Sequence[tuple[str, str, str]]
"""Key, first value and second value of each difference; empty for a value that one side does not have."""


def difference_table(rows: Differences) -> list[dict[str, str]]:
    """Return differences for a JSON report."""
    return [{"key": key, "first": first, "second": second} for key, first, second in rows]


def render_differences(rows: Differences) -> str:
    """Render each key with its two values, as diff does."""
    lines: list[str] = []
    for key, *values in rows:
        lines += [key, *(f"  {sign} {value}" for sign, value in zip("-+", values, strict=True) if value)]
    return "\n".join(lines)


def write_report(path: Path, text: str) -> None:
    """Write a report to the file that the user named."""
    with translate_os_errors(path.parent, "the option that names the file"):
        write_text(path, text)


def has_screen() -> bool:
    """Return whether standard output is a terminal on which a live view can be drawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def print_changes(views: Iterable[Sequence[str]]) -> None:
    """Print the lines of each view that differs from the one before, below the time."""
    before: Sequence[str] = ()
    for lines in views:
        if lines != before:
            click.echo("\n".join(filter(None, [time.strftime("%F %T"), *lines])))
            sys.stdout.flush()
        before = lines


def use_colour() -> bool:
    """Return whether standard output is a terminal, and the user has not set NO_COLOR (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_json(value: object) -> None:
    """Print a value, in which records may occur, as JSON on standard output."""
    click.echo(json.dumps(to_plain(value), indent=1, sort_keys=True))


def print_report(value: object, text: str, *, as_json: bool, quiet: bool = False) -> None:
    """Print what a command reports.

    Parameters
    ----------
    value
        The report for programs, in which records may occur.
    text
        The report for people; an empty text prints no line.
    quiet
        Whether nothing is printed, unless as JSON.
    """
    if as_json:
        print_json(value)
    elif text and not quiet:
        click.echo(text)
