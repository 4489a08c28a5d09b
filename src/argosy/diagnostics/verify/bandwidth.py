"""Parse the bandwidth that a benchmark printed: `argosy bench collectives`, nccl-tests or rccl-tests; pure."""

from __future__ import annotations

import re

import msgspec

OPERATION = re.compile(
    r"^# (?:Collective test starting: )?(all_\w+?|broadcast|reduce\w*?)(?:_perf)?(?: · |$)", re.MULTILINE
)
PEAK = re.compile(r"^#\s*Peak bus bandwidth\s*:\s*([\d.]+) GB/s at ([\d.]+) ([KMG]i)?B", re.MULTILINE)
ROW = re.compile(
    r"^\s*(\d+)\s+\d+\s+(?:u?int\d+|float\w*|half|double|bfloat16|fp8\w*)\s+\w+(?:\s+-?\d+)?\s+[\d.]+\s+[\d.]+\s+([\d.]+)\s",
    re.MULTILINE,
)
"""A row of nccl-tests: size in bytes, count, type, reduction, root, time, then algorithm and bus bandwidth."""
AVERAGE = re.compile(r"^#\s*Avg bus bandwidth\s*:\s*([\d.]+)", re.MULTILINE)
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30}


class Measured(msgspec.Struct, frozen=True):
    """A bus bandwidth that a benchmark printed.

    Attributes
    ----------
    gigabytes
        GB/s (1e9 bytes).
    size
        Bytes of the message; 0 if the benchmark printed only an average over sizes.
    operation
        For example ``all_reduce``; empty if the benchmark did not print it.
    """

    gigabytes: float
    size: int = 0
    operation: str = ""


def parse_bandwidth(text: str) -> Measured | None:
    """Return the bandwidth in a benchmark's output, or None if there is none.

    The last peak of `argosy bench` comes first, then nccl-tests' largest message, then nccl-tests' average.
    """
    operations = OPERATION.findall(text)
    operation = operations[-1] if operations else ""
    if peaks := PEAK.findall(text):
        speed, size, unit = peaks[-1]
        return Measured(float(speed), int(float(size) * UNITS[unit]), operation)
    if rows := ROW.findall(text):
        size, speed = max((int(size), float(speed)) for size, speed in rows)
        return Measured(speed, size, operation)
    averages = AVERAGE.findall(text)
    return Measured(float(averages[-1]), 0, operation) if averages else None
