"""Time limits: the short forms ``1h`` and ``30m`` in Slurm's notation."""

from __future__ import annotations

import re

SHORT = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+)s)?", re.IGNORECASE)
"""Days, hours, minutes and seconds, for example ``1d12h`` or ``90m``."""


def slurm_time(text: str) -> str:
    """Return a time limit in a form that sbatch(1) reads; a text in any other form is returned unchanged.

    ``1h`` becomes ``1:00:00``, ``90m`` becomes ``1:30:00`` and ``2d`` becomes ``2-00:00:00``.
    """
    match = SHORT.fullmatch(text.strip())
    if not text or match is None:
        return text
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    total = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    hours, rest = divmod(total, 3600)
    clock = f"{rest // 60:02}:{rest % 60:02}"
    return f"{hours // 24}-{hours % 24:02}:{clock}" if hours >= 24 else f"{hours}:{clock}"  # noqa: PLR2004 - hours
