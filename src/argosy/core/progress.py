"""Render the progress of downloads and counts of things as text."""

from __future__ import annotations

MINUTE, HOUR, DAY = 60, 3600, 86400
KILO, TWO_DIGITS = 1000, 10
MEGABYTE = 1e6
SOON_SECONDS = 2.0
"""The rate of the first seconds of a download does not predict the remaining time."""


def render_amount(done: float, total: float, seconds: float) -> str:
    """Render progress, for example ``120 of 950 MB, 40 s left``.

    Parameters
    ----------
    done, total
        Bytes.
    seconds
        Elapsed time.
    """
    amount = f"{done / MEGABYTE:.0f} of {total / MEGABYTE:.0f} MB"
    if seconds < SOON_SECONDS or not 0 < done < total:
        return amount
    return f"{amount}, {render_seconds((total - done) * seconds / done)} left"


def render_packages(count: int) -> str:
    """Render ``1 package`` or ``12 packages``."""
    return f"{count or 'no'} package{'' if count == 1 else 's'}"


def render_commands(count: int) -> str:
    """Render ``1 command`` or ``12 commands``."""
    return f"{count} command{'' if count == 1 else 's'}"


def render_seconds(seconds: float) -> str:
    """Render a duration in its largest unit: ``40 s``, ``3 min``, ``5 h`` or ``4 d``."""
    for unit, size, most in (("s", 1, 2 * MINUTE), ("min", MINUTE, 2 * HOUR), ("h", HOUR, 2 * DAY)):
        if seconds < most:
            return f"{max(0.0, seconds) / size:.0f} {unit}"
    return f"{seconds / DAY:.0f} d"


def render_size(size: int) -> str:
    """Render a number of bytes in decimal units: ``512 bytes``, ``12 MB``, ``3.4 GB``."""
    value, unit = float(size), "bytes"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < KILO:
            break
        value, unit = value / KILO, larger
    digits = 0 if unit == "bytes" or value >= TWO_DIGITS else 1
    return f"{value:.{digits}f} {unit}"
