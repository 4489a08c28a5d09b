"""The manual's page of figures: a summary, then one section per command with the plots, and the tables folded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from bench.records import NOT_MET, Result, Row, render_number
from bench.table import facts, part_table, table_lines

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "argosy build": ("building", "packing"),
    "argosy wrap": ("wrapping",),
    "argosy run": ("start", "memory"),
    "argosy launch": ("planning", "script", "job", "growth", "training"),
    "all commands": ("commands", "peers"),
}
"""Heading -> the parts of the bench that measure it."""


class Compared(msgspec.Struct, frozen=True):
    """A row of the summary.

    Attributes
    ----------
    key, other
        Keys of the figure and of that of the usual method; `other` is empty if there is none.
    usual
        Name of the usual method.
    """

    command: str
    what: str
    key: str
    other: str = ""
    usual: str = ""


SUMMARY = (
    Compared("argosy build", "first build", "building.cold.wall", "building.cotainr.wall", "cotainr's steps"),
    Compared("argosy build", "packages in the cache", "building.warm.wall", "building.cotainr.wall", "cotainr's steps"),
    Compared("argosy build", "one package more", "building.changed"),
    Compared("argosy build", "pack a layer", "packing.flat.wall", "packing.apptainer.wall", "apptainer build"),
    Compared("argosy wrap", "update with one package, Apptainer", "wrapping.apptainer.update"),
    Compared(
        *("argosy wrap", "start of a wrapped Python, bubblewrap"),
        *("wrapping.bwrap.start.wrapper", "wrapping.bwrap.start.runtime", "bwrap by hand"),
    ),
    Compared(
        *("argosy wrap", "start of a wrapped Python, Apptainer"),
        *("wrapping.apptainer.start.wrapper", "wrapping.apptainer.start.runtime", "apptainer exec"),
    ),
    Compared(
        *("argosy run", "start of Python, bubblewrap"),
        *("start.bwrap.python.1.flat", "start.bwrap.python.1.plain", "image by mksquashfs"),
    ),
    Compared(
        *("argosy run", "start of Python, Apptainer"),
        *("start.apptainer.python.1.flat", "start.apptainer.python.1.plain", "image by mksquashfs"),
    ),
    Compared("argosy launch", "write a job script: CPU", "peers.script.argosy", "peers.script.submitit", "submitit"),
    Compared("argosy launch", "2 nodes, to the last rank", "job.last.argosy", "job.last.hand", "job script by hand"),
    Compared("argosy launch", "64 nodes, to the last rank", "growth.argosy.64", "growth.hand.64", "job script by hand"),
    Compared(
        *("argosy launch", "train on 2 nodes, wrapped"),
        *("training.nodes.wrapper.whole", "training.nodes.container.whole", "apptainer exec"),
    ),
)
"""The figures of the summary; one that was not measured is left out."""


def render_page(result: Result, pictures: Mapping[str, str]) -> str:
    """Render the summary, the parts by command, and the run.

    Parameters
    ----------
    pictures
        Part -> Markdown of its picture.
    """
    lines = [*_summary(result.rows), ""]
    measured = {row.group for row in result.rows}
    for command, parts in SECTIONS.items():
        if measured.intersection(parts):
            lines += [f"## {command}", ""]
            lines += [
                line for part in parts if part in measured for line in _part(part, result, pictures.get(part, ""))
            ]
    of_parts = tuple(f"{part}: " for part in measured)
    general = [f"- {fact}" for fact in facts(result) if not fact.startswith(of_parts)]
    return "\n".join([*lines, "## The run", "", *general]) + "\n"


def _summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the summary: figures beside those of the usual method, and the budgets that are not met."""
    by_key = {row.key: row for row in rows}
    cells = [("command", "what", "Argosy", "usual method", "ratio")]
    for each in SUMMARY:
        row, other = by_key.get(each.key), by_key.get(each.other)
        if row is not None:
            ratio = f"{render_number(row.value / other.value)} x" if other and other.value else ""
            usual = f"{_figure(other)}, {each.usual}" if other else ""
            cells.append((f"`{each.command}`", each.what, _figure(row), usual, ratio))
    if len(cells) > 1:
        yield from table_lines(cells[0], cells[1:])
        yield ""
    missed = [row for row in rows if row.verdict == NOT_MET]
    yield f"{_count_met(rows)}{'. Not met:' if missed else '.'}"
    if missed:
        yield ""
        yield from (f"- [{row.group}](#{row.group}): {_missed(row)}" for row in missed)


def _figure(row: Row) -> str:
    return f"{render_number(row.value)} {row.unit}".rstrip()


def _count_met(rows: Sequence[Row]) -> str:
    verdicts = [row.verdict for row in rows if row.budget]
    return f"{len(verdicts) - verdicts.count(NOT_MET)} of {len(verdicts)} budgets are met"


def _missed(row: Row) -> str:
    return f"*{row.what}* is {_figure(row)}, its budget {row.budget} {row.unit}".rstrip()


def _part(part: str, result: Result, picture: str) -> Iterator[str]:
    """Yield the section of a part: its picture, how it was measured, its budgets, and the folded table."""
    rows = [row for row in result.rows if row.group == part]
    yield from (f"### {part}", "", *((picture, "") if picture else ()))
    remarks = [each.removeprefix(f"{part}: ") for each in result.remarks if each.startswith(f"{part}: ")]
    yield from (f"- {text[:1].upper()}{text[1:]}." for text in remarks)
    if any(row.budget for row in rows):
        yield f"- {_count_met(rows)}."
        yield from (f"- Not met: {_missed(row)}." for row in rows if row.verdict == NOT_MET)
    yield f"- Measured by `python -m bench --only {part}`."
    yield from ("", '<details markdown="1">', f"<summary>All {len(rows)} figures of {part}</summary>", "")
    yield from (*part_table(rows, result), "", "</details>", "")
