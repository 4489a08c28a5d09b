"""What was measured, against what, and whether a budget is met: records and arithmetic only."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from argosy.bench.result import quartiles

NOT_MET = "NOT MET"
"""Verdict on a row that does not keep its budget."""


@dataclass(frozen=True, slots=True)
class Budget:
    """A limit of the design, in the unit of its row."""

    limit: float
    at_least: bool = False
    """Whether the figure must reach the limit; otherwise it must stay below it."""

    def __str__(self) -> str:
        """Render with its sign; the unit is the row's."""
        return f"{'>=' if self.at_least else '<='} {render_number(self.limit)}"


@dataclass(frozen=True, slots=True)
class Row:
    """One figure."""

    key: str
    """Stable name, by which runs are compared: ``packing.delta.wall``."""
    group: str
    """The part of the bench that measured it."""
    what: str
    value: float
    """The figure; a median where it was taken several times."""
    unit: str
    low: float
    high: float
    """Quartiles of the single values; equal to `value` where there is one."""
    runs: int = 1
    """How many single values there are."""
    against: str = ""
    """Key of the row that this one is set in proportion to; empty for none."""
    budget: Budget | None = None

    @property
    def verdict(self) -> str:
        """Tell whether the row keeps its budget; empty without one."""
        if self.budget is None:
            return ""
        kept = self.value >= self.budget.limit if self.budget.at_least else self.value <= self.budget.limit
        return "met" if kept else NOT_MET


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one part of the bench found: its rows, and remarks that belong beside them."""

    rows: tuple[Row, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """A whole run: what was measured, where, and with what."""

    date: str
    """ISO date on which it was run."""
    command: str
    """The words that ran it."""
    machine: tuple[tuple[str, str], ...]
    tools: tuple[tuple[str, str], ...]
    """Pairs of name and fact."""
    rows: tuple[Row, ...] = field(default=())
    remarks: tuple[str, ...] = ()


def one(key: str, what: str, value: float, unit: str, *, against: str = "", budget: Budget | None = None) -> Row:
    """Make a row of a figure that was taken once; the group is the key's first word."""
    return Row(key, key.partition(".")[0], what, value, unit, value, value, against=against, budget=budget)


def many(
    key: str, what: str, values: Sequence[float], unit: str, *, against: str = "", budget: Budget | None = None
) -> Row:
    """Make a row of a figure that was taken several times: its median and quartiles."""
    low, high = quartiles(values)
    median = statistics.median(values)
    return Row(key, key.partition(".")[0], what, median, unit, low, high, len(values), against, budget)


def ratio_of(row: Row, rows: Iterable[Row]) -> float | None:
    """Give a row's figure in proportion to the row it names; None where there is none, or it is 0."""
    other = next((each for each in rows if each.key == row.against), None)
    return row.value / other.value if other is not None and other.value else None


def render_number(value: float) -> str:
    """Render a figure with three digits that count, and without a trailing ``.0``."""
    if value == 0 or abs(value) >= 100:  # noqa: PLR2004 - three digits
        return f"{value:,.0f}"
    digits = 2 if abs(value) < 10 else 1  # noqa: PLR2004
    digits = 3 if abs(value) < 1 else digits
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")
