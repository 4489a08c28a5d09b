"""Say how much there is, and how far a download is: bytes done of all, the time that is left at its pace; text only."""

from __future__ import annotations

MINUTE = 60
MEGABYTE = 1e6
SOON_SECONDS = 2.0
"""In the first seconds of a download its pace tells nothing of the time that is left."""


def render_amount(done: float, total: float, seconds: float) -> str:
    """Give ``120 of 950 MB, 40 s left``.

    Parameters
    ----------
    done, total
        Bytes.
    seconds
        How long it took to do what is done.
    """
    amount = f"{done / MEGABYTE:.0f} of {total / MEGABYTE:.0f} MB"
    if seconds < SOON_SECONDS or not 0 < done < total:
        return amount
    return f"{amount}, {_render_seconds((total - done) * seconds / done)} left"


def render_packages(count: int) -> str:
    """Give ``1 package`` or ``12 packages``."""
    return f"{count or 'no'} package{'' if count == 1 else 's'}"


def render_commands(count: int) -> str:
    """Give ``1 command`` or ``12 commands``."""
    return f"{count} command{'' if count == 1 else 's'}"


def _render_seconds(seconds: float) -> str:
    """Give ``40 s`` or ``3 min``: nobody waits for the seconds of minutes."""
    return f"{seconds:.0f} s" if seconds < 2 * MINUTE else f"{seconds / MINUTE:.0f} min"
