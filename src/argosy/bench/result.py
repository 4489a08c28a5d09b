"""The results of benchmarks: their stored form, and the statistics by which they are compared.

Rounds are pairs: a variant is compared with the first variant of the same round. The confidence interval of the
differences is that of the sign test, between two of the ordered differences, so it assumes nothing about the
distribution (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2). It needs six rounds for 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import accumulate

import msgspec

SWEEP = "sweep.json"
"""File in the records of jobs that were submitted together: their numbers."""

GBIT = 8
"""Gigabits in a gigabyte."""

BUS, ALGORITHM = "bus bandwidth", "algorithm bandwidth"

CONFIDENCE = 0.95
LEAST_ROUNDS = 6
LEAST_FOR_QUARTILES = 4


class BenchKind(StrEnum):
    """The benchmark that made a result."""

    COLLECTIVES = "collectives"
    NODES = "nodes"
    SETTINGS = "settings"
    STARTUP = "startup"


class Figure(msgspec.Struct, frozen=True):
    """One measured value."""

    name: str
    """Device, setting or case; empty for collectives."""
    quantity: str
    unit: str
    """For example ``bus bandwidth`` in ``GB/s``."""
    value: float
    low: float
    high: float
    """Quartiles; equal to `value` if it was measured once."""
    nodes: int = 0
    size: int = 0
    at_once: int = 0
    """Number of nodes, bytes of the message, and simultaneous starts; 0 if they do not apply."""
    each: tuple[float, ...] = ()
    """The single values."""

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Return what two figures must share to be compared."""
        return self.name, self.quantity, self.nodes, self.size, self.at_once


class BenchResult(msgspec.Struct, frozen=True):
    """The result of a benchmark."""

    kind: BenchKind
    label: str
    """Its source: ``job 12``, ``jobs 12 to 16`` or a file."""
    title: str
    """The measured operation, value or program."""
    figures: tuple[Figure, ...]
    site: str = ""
    date: str = ""
    """Empty if they are unknown; the date is in ISO 8601."""
    expected: dict[int, float] = {}
    """Nodes -> bus bandwidth in GB/s that the site's profile expects."""
    notes: tuple[str, ...] = ()
    """Missing values, each with the reason."""

    @property
    def node_counts(self) -> tuple[int, ...]:
        """Return the numbers of nodes that were measured."""
        return tuple(sorted({figure.nodes for figure in self.figures if figure.nodes}))

    def peak(self, nodes: int, quantity: str) -> Figure | None:
        """Return a collective's figure for the message with the largest bus bandwidth on a number of nodes."""
        buses = [each for each in self.figures if each.nodes == nodes and each.quantity == BUS]
        size = max(buses, key=lambda each: each.value).size if buses else -1
        return next((each for each in self.figures if each.key == ("", quantity, nodes, size, 0)), None)


class VariantResult(msgspec.Struct, frozen=True):
    """A variant compared with the first one."""

    variant: str
    runs: int
    failed: int
    """Number of runs with a value, and without one."""
    median: float | None
    """Median of the values; None without values."""
    ratio: float | None
    """Ratio of the median to that of the first variant."""
    low: float | None
    high: float | None
    """Confidence interval (95 %) of the difference to the first variant; None for the first, and with too few
    rounds."""
    verdict: str
    """``less``, ``more``, ``no difference shown``, or why there is none."""


def compare_rounds(variant: str, values: Mapping[int, float], first: Mapping[int, float], rounds: int) -> VariantResult:
    """Compare the values of a variant with those of the first variant.

    Parameters
    ----------
    values, first
        Round -> value.
    first
        Empty if `variant` is the first one.
    rounds
        Number of rounds.
    """
    middle = statistics.median(values.values()) if values else None
    pairs = [values[number] - first[number] for number in sorted(values.keys() & first.keys())]
    base = statistics.median(first.values()) if pairs else 0
    low, high = sign_interval(pairs) or (None, None)
    if not pairs:
        verdict = "" if values and not first else "no run to compare"
    elif low is None or high is None:
        verdict = f"{LEAST_ROUNDS} rounds are needed for 95 %"
    else:
        verdict = "less" if high < 0 else "more" if low > 0 else "no difference shown"
    ratio = middle / base if base and middle is not None else None
    return VariantResult(variant, len(values), rounds - len(values), middle, ratio, low, high, verdict)


def sign_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the confidence interval (95 %) of the median, for any distribution; None with too few values."""
    count, ordered = len(values), sorted(values)
    tails = accumulate(math.comb(count, omitted) / 2**count for omitted in range(count // 2))
    inside = [omitted for omitted, tail in enumerate(tails) if 2 * tail <= 1 - CONFIDENCE]
    return (ordered[inside[-1]], ordered[-1 - inside[-1]]) if inside else None


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile; of less than four values, the smallest and the largest."""
    if len(values) < LEAST_FOR_QUARTILES:
        return min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4)
    return low, high
