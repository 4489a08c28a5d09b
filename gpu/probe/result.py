"""The probe's report: a line of JSON that can be found in the output of any launcher."""

from __future__ import annotations

import ctypes
import json
import statistics
from collections.abc import Callable, Sequence
from typing import Any

MARK = "argosy-gpu-probe "
"""Beginning of the line with the report."""

MIB = 1 << 20
GIGA = 1e9

BUFFER = 256 * MIB
"""Bytes of each copy; half of it, and so on, if the GPU has less free memory."""

SMALLEST = MIB
COPIES = 20
REPEATS = 5


class ProbeError(Exception):
    """A step on the GPU failed.

    Attributes
    ----------
    kind
        ``no driver``, ``no device``, ``driver error``, ``out of memory`` or ``wrong result``.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def load_library(name: str) -> ctypes.CDLL:
    """Load the library of a driver.

    Raises
    ------
    ProbeError
        If the dynamic linker cannot find or load it.
    """
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise ProbeError("no driver", f"cannot load {name}: {error}") from None


def allocate_pair(allocate: Callable[[int], Any], release: Callable[[Any], None]) -> tuple[int, Any, Any]:
    """Allocate two buffers of the same size; halve the size while the GPU lacks free memory.

    Returns
    -------
    tuple
        Size in bytes and the two buffers.

    Raises
    ------
    ProbeError
        If the smallest size does not fit.
    """
    size = BUFFER
    while True:
        first = None
        try:
            first = allocate(size)
            return size, first, allocate(size)
        except ProbeError as error:
            if first is not None:
                release(first)
            if error.kind != "out of memory" or size <= SMALLEST:
                raise
            size //= 2


def summarise_copies(size: int, seconds: Sequence[float]) -> dict[str, Any]:
    """Return the bandwidth of repeated copies; a copy reads and writes each byte, so both directions count.

    Parameters
    ----------
    size
        Bytes of one copy.
    seconds
        Time of `COPIES` copies, for each repetition.
    """
    if min(seconds) <= 0:
        raise ProbeError("wrong result", f"the timer measured {min(seconds)} s for {COPIES} copies")
    rates = [2 * size * COPIES / each / GIGA for each in seconds]
    return {
        "buffer_mib": size // MIB,
        "copies": COPIES,
        "repeats": len(seconds),
        "gb_per_s": round(statistics.median(rates), 1),
        "gb_per_s_best": round(max(rates), 1),
    }


def check_bytes(found: bytes, expected: int, what: str) -> None:
    """Compare copied bytes with the value that was written.

    Raises
    ------
    ProbeError
        At the first byte that differs.
    """
    wrong = next((index for index, byte in enumerate(found) if byte != expected), -1)
    if wrong >= 0:
        raise ProbeError("wrong result", f"{what}: byte {wrong} is {found[wrong]}, expected {expected}")


def render_line(report: dict[str, Any]) -> str:
    """Render the line that `parse_lines` finds."""
    return MARK + json.dumps(report, sort_keys=True)


def parse_lines(output: str) -> list[dict[str, Any]]:
    """Return the probes' reports in an output, also from lines that a launcher labelled."""
    texts = (line.partition(MARK)[2] for line in output.splitlines() if MARK in line)
    return [json.loads(text) for text in texts]
