"""Measure collective operations: the command that every rank runs.

The program needs only PyTorch, so its text is part of the job script, and any launcher can start it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.launch.model import LaunchRequest

OPERATIONS: Final = ("all_reduce", "all_gather", "broadcast")
"""Operations that can be measured."""

PROGRAM = Path(__file__).with_name("collectives_program.py")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST, MOST = 4, 64 << 30


def benchmark_command(operation: str, most: str) -> tuple[str, ...]:
    """Return the command of a rank.

    Parameters
    ----------
    most
        Largest message of a rank, for example ``256M``; empty for the default of the device.

    Raises
    ------
    UsageError
        If `most` is not a size, or too small or too large.
    """
    return ("python", "-c", PROGRAM.read_text(encoding="utf-8"), operation, str(parse_size(most) if most else 0))


def as_benchmark(request: LaunchRequest, operation: str) -> LaunchRequest:
    """Change a request of `benchmark_command`: a name of its own, and an image with PyTorch."""
    return replace(request, name=request.name or f"bench-{operation}", needs_torch=True)


def parse_size(text: str) -> int:
    """Parse a size: a number of bytes, with K, M or G for powers of 1024.

    Raises
    ------
    UsageError
        If it is not a size, or not between 4 bytes (one number) and 64 GiB.
    """
    digits = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (digits[:-1], digits[-1:]) if digits[-1:] in UNITS else (digits, "")
    size = int(number) * UNITS[unit] if number.isascii() and number.isdigit() else 0
    if not LEAST <= size <= MOST:
        raise UsageError(f"invalid message size {text!r}", hint="for example 64K, 256M or 4G; at most 64G")
    return size
