"""Compare the ways of a job round by round; pure.

Rounds are pairs: a way is held against the plan of the same round.  The interval of the differences is that of the sign
test, between two of the differences in their order, so it supposes nothing of how times are spread (Conover, Practical
Nonparametric Statistics, 3rd ed., section 3.2); it needs six rounds to hold 95 %.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import median

import msgspec

from argosy.bench.variants.plan import LINE

RUN = re.compile(rf"^{LINE} (\d+) (\d+) (\d+) (\S+)$", re.MULTILINE)
HELD = 0.95
LEAST_ROUNDS = 6


class Run(msgspec.Struct, frozen=True):
    """One run: round and way, the program's exit code, and the number that is compared; None where it told none."""

    round: int
    variant: int
    code: int
    value: float | None


class Compared(msgspec.Struct, frozen=True):
    """What came of one way.

    Attributes
    ----------
    runs, failed
        How many told a number and ended well, and how many did not.
    median
        Of those that did; None where none did.
    low, high
        Between these the difference to the first way lies with 95 %; None for the first, and where rounds are too few.
    verdict
        ``less``, ``more``, ``no difference shown``, or why there is none.
    """

    variant: str
    runs: int
    failed: int
    median: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str


def parse_runs(text: str) -> tuple[Run, ...]:
    """Read the lines of the runs in a job's output."""
    return tuple(
        Run(int(number), int(variant), int(code), _number(value)) for number, variant, code, value in RUN.findall(text)
    )


def compare(variants: Sequence[str], runs: Sequence[Run]) -> tuple[Compared, ...]:
    """Compare each way with the first."""
    values = [{run.round: run.value for run in runs if run.variant == n and not run.code} for n in range(len(variants))]
    told = [{number: value for number, value in each.items() if value is not None} for each in values]
    rounds = len({run.round for run in runs})
    return tuple(_compared(name, told[n], told[0] if n else {}, rounds) for n, name in enumerate(variants))


def _compared(variant: str, mine: Mapping[int, float], first: Mapping[int, float], rounds: int) -> Compared:
    middle = median(mine.values()) if mine else None
    failed = rounds - len(mine)
    pairs = [mine[number] - first[number] for number in sorted(mine.keys() & first.keys())]
    if not pairs or middle is None:
        verdict = "" if mine and not first else "no run to compare"
        return Compared(variant, len(mine), failed, middle, None, None, None, verdict)
    base = median(first.values())
    ratio = middle / base if base else None
    inner = interval(pairs)
    if inner is None:
        verdict = f"{LEAST_ROUNDS} rounds are needed for 95 %"
        return Compared(variant, len(mine), failed, middle, ratio, None, None, verdict)
    low, high = inner
    verdict = "less" if high < 0 else "more" if low > 0 else "no difference shown"
    return Compared(variant, len(mine), failed, middle, ratio, low, high, verdict)


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Give two of the values between which their median lies with 95 %, however they are spread; None if too few."""
    count, ordered = len(values), sorted(values)
    tails = accumulate(math.comb(count, left_out) / 2**count for left_out in range(count // 2))
    held = [left_out for left_out, tail in enumerate(tails) if 2 * tail <= 1 - HELD]
    return (ordered[held[-1]], ordered[-1 - held[-1]]) if held else None


def render_table(rows: Sequence[Compared], what: str) -> str:
    """Render the comparison for people."""
    width = max(len(row.variant) for row in rows)
    lines = [f"{'way':<{width}}  runs  {'median':>10}  {'ratio':>6}  difference ({what})"]
    for row in rows:
        middle = "-" if row.median is None else f"{row.median:.4g}"
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        between = "" if row.low is None or row.high is None else f"{row.low:+.3g} to {row.high:+.3g}: "
        failed = f" ({row.failed} failed)" if row.failed else ""
        told = f"{row.variant:<{width}}  {row.runs:>4}  {middle:>10}  {ratio:>6}  {between}{row.verdict}{failed}"
        lines.append(told.rstrip())
    return "\n".join(lines)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
