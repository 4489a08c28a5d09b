"""Render a result: markdown for people and the manual, plain columns for pipes; it reads and measures nothing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from bench.records import Result, Row, judge_budget, ratio_of, render_number

HEAD = ("what", "figure", "quartiles", "runs", "ratio", "budget", "verdict")
COMPARED = ("then", "now : then")
RIGHT = frozenset({"Argosy", "figure", "quartiles", "runs", "ratio", "then", "now : then"})

Cells = tuple[str, ...]


def table_cells(result: Result, before: Result | None = None) -> tuple[Cells, dict[str, list[Cells]]]:
    """Give the head and, for each group in its order, the rows as text; with `before`, its figures beside them."""
    old = {row.key: row.value for row in before.rows} if before else {}
    head = (*HEAD, *(COMPARED if before else ()))
    groups = {
        group: [(*_cells(row, result.rows), *(_compared(row, old) if before else ())) for row in rows]
        for group, rows in groupby(result.rows, key=lambda row: row.group)
    }
    return head, groups


def _cells(row: Row, rows: Sequence[Row]) -> Cells:
    ratio = ratio_of(row, rows)
    spread = f"{render_number(row.low)} – {render_number(row.high)}" if row.runs > 1 else ""  # noqa: RUF001 - a range
    return (
        row.what,
        f"{render_number(row.value)} {row.unit}".rstrip(),
        spread,
        str(row.runs),
        f"{render_number(ratio)} x" if ratio is not None else "",
        f"{row.budget} {row.unit}".rstrip() if row.budget else "",
        str(judge_budget(row)),
    )


def _compared(row: Row, old: dict[str, float]) -> Cells:
    then = old.get(row.key)
    if then is None:
        return "", ""
    return render_number(then), f"{render_number(row.value / then)} x" if then else ""


def render_markdown(result: Result, before: Result | None = None) -> str:
    """Render the tables as markdown, columns aligned so that the text reads as it stands."""
    head, groups = table_cells(result, before)
    lines = [line for group, rows in groups.items() for line in _section(group, head, rows)]
    return "\n".join([*lines, *facts(result, bullet="- ")]) + "\n"


def _section(group: str, head: Cells, rows: Sequence[Cells]) -> list[str]:
    return [f"## {group}", "", *table_lines(head, rows), ""]


def table_lines(head: Cells, rows: Sequence[Cells]) -> list[str]:
    """Render a table as lines of markdown."""
    widths = _widths(head, rows)
    return [_bars(head, head, widths), _rule(head, widths), *(_bars(head, row, widths) for row in rows)]


def render_plain(result: Result, before: Result | None = None) -> str:
    """Render the tables as columns without any mark, for pipes and logs."""
    head, groups = table_cells(result, before)
    widths = _widths(head, [row for rows in groups.values() for row in rows])
    lines = [_columns(head, head, widths)]
    for group, rows in groups.items():
        lines += ["", group, *(_columns(head, row, widths) for row in rows)]
    return "\n".join([*lines, "", *facts(result, bullet="")]) + "\n"


def facts(result: Result, *, bullet: str) -> list[str]:
    """Return what is known about a run, one line each."""
    machine = ", ".join(f"{name} {fact}" for name, fact in result.machine)
    tools = ", ".join(f"{name} {version}" for name, version in result.tools)
    lines = [f"Run on {result.date}: {result.command}", f"Machine: {machine}", f"Tools: {tools}", *result.remarks]
    return [bullet + line for line in lines]


def _widths(head: Cells, rows: Sequence[Cells]) -> list[int]:
    return [max(map(len, column)) for column in zip(head, *rows, strict=True)]


def _pad(head: Cells, row: Cells, widths: list[int]) -> list[str]:
    return [
        cell.rjust(width) if name in RIGHT else cell.ljust(width)
        for name, cell, width in zip(head, row, widths, strict=True)
    ]


def _bars(head: Cells, row: Cells, widths: list[int]) -> str:
    return f"| {' | '.join(_pad(head, tuple(cell.replace('|', '/') for cell in row), widths))} |"


def _rule(head: Cells, widths: list[int]) -> str:
    marks = [
        f"{'-' * (width + 1)}:" if n in RIGHT else "-" * (width + 2) for n, width in zip(head, widths, strict=True)
    ]
    return f"|{'|'.join(marks)}|"


def _columns(head: Cells, row: Cells, widths: list[int]) -> str:
    return "  ".join(_pad(head, row, widths)).rstrip()
