"""Measure collectives inside an image: the program that the ranks run, as words of a command; pure.

The program needs torch and nothing of Argosy, so its text is part of the job script, and any launcher may start it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from argosy.core.errors import UsageError

__all__ = ["OPERATIONS", "benchmark_command", "parse_size"]

OPERATIONS: Final = ("all_reduce", "all_gather", "broadcast")
"""What can be measured."""

PROGRAM = Path(__file__).with_name("collectives_program.py")
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST, MOST = 4, 64 << 30


def benchmark_command(operation: str, most: str) -> tuple[str, ...]:
    """Give the command of a rank.

    Parameters
    ----------
    most
        The largest message of a rank, as ``256M``; empty lets the device decide.

    Raises
    ------
    UsageError
        When `most` is no size, or none that can be measured.
    """
    return ("python", "-c", PROGRAM.read_text(encoding="utf-8"), operation, str(parse_size(most) if most else 0))


def parse_size(text: str) -> int:
    """Read a size in bytes: a number, with K, M or G for powers of 1024.

    Raises
    ------
    UsageError
        When it is not one, or not between 4 bytes (one number) and 64 GiB.
    """
    digits = text.upper().removesuffix("B").removesuffix("I")
    number, unit = (digits[:-1], digits[-1:]) if digits[-1:] in UNITS else (digits, "")
    size = int(number) * UNITS[unit] if number.isascii() and number.isdigit() else 0
    if not LEAST <= size <= MOST:
        raise UsageError(f"{text!r} is no size of a message", hint="write it as 64K, 256M or 4G; 64G at most")
    return size
