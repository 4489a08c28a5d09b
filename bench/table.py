"""Tables of a result as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from bench.records import Result, Row, ratio_of, render_number

HEAD = ("what", "figure", "quartiles", "runs", "ratio", "budget", "verdict")
COMPARED = ("then", "now : then")
RIGHT = frozenset({"Argosy", "figure", "quartiles", "runs", "ratio", *COMPARED})
"""Columns that are aligned to the right."""


def render_result_page(result: Result, before: Result | None = None) -> str:
    """Render a result as Markdown with aligned columns: the table of each part, and then the run.

    Parameters
    ----------
    before
        An earlier result, whose figures are shown beside the new ones.
    """
    lines: list[str] = []
    for part, rows in groupby(result.rows, key=lambda row: row.group):
        lines += [f"## {part}", "", *part_table(tuple(rows), result, before), ""]
    return "\n".join([*lines, "## run", "", *(f"- {fact}" for fact in facts(result))]) + "\n"


def part_table(rows: Sequence[Row], result: Result, before: Result | None = None) -> Iterator[str]:
    """Yield the table of a part of the bench, with the figures of an earlier result beside the new ones."""
    old = {row.key: row.value for row in before.rows} if before else None
    head = (*HEAD, *(COMPARED if before else ()))
    yield from table_lines(head, [_cells(row, result.rows, old) for row in rows])


def facts(result: Result) -> tuple[str, ...]:
    """Return what is known about a run: its date, machine, tools and remarks."""
    machine = ", ".join(f"{name} {fact}" for name, fact in result.machine)
    tools = ", ".join(f"{name} {version}" for name, version in result.tools)
    return (f"Run on {result.date}: {result.command}", f"Machine: {machine}", f"Tools: {tools}", *result.remarks)


def _cells(row: Row, rows: Sequence[Row], old: Mapping[str, float] | None) -> tuple[str, ...]:
    ratio = ratio_of(row, rows)
    cells = (
        row.what.replace("|", "/"),
        f"{render_number(row.value)} {row.unit}".rstrip(),
        f"{render_number(row.low)} – {render_number(row.high)}" if row.runs > 1 else "",  # noqa: RUF001 - a range
        str(row.runs),
        f"{render_number(ratio)} x" if ratio is not None else "",
        f"{row.budget} {row.unit}".rstrip() if row.budget else "",
        row.verdict,
    )
    if old is None:
        return cells
    then = old.get(row.key)
    return (
        *cells,
        render_number(then) if then is not None else "",
        f"{render_number(row.value / then)} x" if then else "",
    )


def table_lines(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    """Yield a table as lines of Markdown with aligned columns."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    right = [name in RIGHT for name in head]
    rule = "|".join(f"{'-' * (width + 1)}{':' if end else '-'}" for width, end in zip(widths, right, strict=True))
    for at, row in enumerate((head, *rows)):
        cells = zip(row, widths, right, strict=True)
        yield f"| {' | '.join(cell.rjust(width) if end else cell.ljust(width) for cell, width, end in cells)} |"
        if at == 0:
            yield f"|{rule}|"
