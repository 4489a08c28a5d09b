"""Read and write time limits as sbatch(1) does; pure."""

from __future__ import annotations

import math
import re

from argosy.core.errors import SiteError
from argosy.core.render import count

NUMBER = re.compile(r"[0-9]{1,9}")
"""A number in a time limit."""


def parse_minutes(text: str) -> float:
    """Parse a time limit of sbatch(1), in minutes; `math.inf` for no limit, which is also what zero means.

    The forms are ``MM``, ``MM:SS``, ``HH:MM:SS``, ``D-HH``, ``D-HH:MM``, ``D-HH:MM:SS`` and ``UNLIMITED``.

    Raises
    ------
    SiteError
        When the text is not a time limit.
    """
    if text.upper() in {"UNLIMITED", "INFINITE", "-1"}:
        return math.inf
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(map(NUMBER.fullmatch, [*parts, *([days] if dash else [])])) or len(parts) > 3:  # noqa: PLR2004
        raise SiteError(
            f"invalid time limit {text!r}",
            hint="use HH:MM:SS, D-HH:MM:SS, or a number with m, h or d, for example 1:30:00 or 90m",
        )
    numbers = [int(part) for part in parts]
    if dash:
        hours, mins, seconds = [*numbers, 0, 0][:3]
        return int(days) * 1440 + hours * 60 + mins + seconds / 60 or math.inf
    hours, mins, seconds = {1: [0, *numbers, 0], 2: [0, *numbers], 3: numbers}[len(numbers)]
    return hours * 60 + mins + seconds / 60 or math.inf


LIKE_HOURS = frozenset({*range(1, 10), 12, 24, 36, 48, 72})
"""Numbers that people write for hours."""


def describe_short_time(value: str) -> str:
    """Return what Slurm makes of a time limit that looks like hours but is minutes; empty for any other limit.

    Slurm reads ``1:00`` as minutes and seconds, and ``1`` as minutes (sbatch(1), --time).
    """
    match = re.fullmatch(r"0*(\d{1,9})(:\d+)?", value)
    if match is None or int(match[1]) not in LIKE_HOURS:
        return ""
    number, form = int(match[1]), "minutes:seconds" if match[2] else "minutes"
    return f"Slurm reads {form}, so this is {count(number, 'minute')}; write {number}h for hours"


SHORT_TIME = re.compile(
    r"(?:(\d{1,9})\s*d(?:ays?)?)?\s*(?:(\d{1,9})\s*h(?:ours?)?)?\s*"
    r"(?:(\d{1,9})\s*m(?:in(?:utes?)?)?)?\s*(?:(\d{1,9})\s*s)?",
    re.IGNORECASE,
)
"""Days, hours, minutes and seconds, for example ``1d12h``, ``90m`` or ``1 hour``."""


def slurm_time(text: str) -> str:
    """Return a time limit in a form that sbatch(1) reads; a text in any other form is returned unchanged.

    ``1h`` and ``1 hour`` become ``1:00:00``, ``90m`` becomes ``1:30:00`` and ``2d`` becomes ``2-00:00:00``.
    """
    match = SHORT_TIME.fullmatch(text.strip())
    if not text.strip() or match is None:
        return text
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, rest = divmod(total, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{hours // 24}-{hours % 24:02}:{clock}" if hours >= 24 else f"{hours}:{clock}"  # noqa: PLR2004 - hours
