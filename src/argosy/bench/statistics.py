"""Statistics of measurements that are compared round by round.

Rounds are pairs: a variant is compared with the first variant of the same round. The confidence interval of the
differences is that of the sign test, between two of the ordered differences, so it assumes nothing about the
distribution (Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2). It needs six rounds for 95 %.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import accumulate

import msgspec

CONFIDENCE = 0.95
LEAST_ROUNDS = 6
LEAST_FOR_QUARTILES = 4


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
    failed = rounds - len(values)
    pairs = [values[number] - first[number] for number in sorted(values.keys() & first.keys())]
    if not pairs or middle is None:
        verdict = "" if values and not first else "no run to compare"
        return VariantResult(variant, len(values), failed, middle, None, None, None, verdict)
    base = statistics.median(first.values())
    ratio = middle / base if base else None
    found = sign_interval(pairs)
    if found is None:
        verdict = f"{LEAST_ROUNDS} rounds are needed for 95 %"
        return VariantResult(variant, len(values), failed, middle, ratio, None, None, verdict)
    low, high = found
    verdict = "less" if high < 0 else "more" if low > 0 else "no difference shown"
    return VariantResult(variant, len(values), failed, middle, ratio, low, high, verdict)


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
