"""Render the progress of downloads and counts of things as text."""

from __future__ import annotations

MINUTE = 60
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
    return f"{amount}, {_render_seconds((total - done) * seconds / done)} left"


def render_packages(count: int) -> str:
    """Render ``1 package`` or ``12 packages``."""
    return f"{count or 'no'} package{'' if count == 1 else 's'}"


def render_commands(count: int) -> str:
    """Render ``1 command`` or ``12 commands``."""
    return f"{count} command{'' if count == 1 else 's'}"


def _render_seconds(seconds: float) -> str:
    """Render ``40 s`` or ``3 min``."""
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} min"
