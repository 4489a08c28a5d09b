"""Parse what `argosy bench collectives`, nccl-tests, rccl-tests and all_reduce_bench.py print; pure."""

from __future__ import annotations

import re

import msgspec

OPERATION = re.compile(
    r"^# (?:Collective test starting: )?(all_\w+?|broadcast|reduce\w*?)(?:_perf)?(?: · |$)", re.MULTILINE
)
FIGURE = r"(\d{1,15}(?:\.\d{0,15})?)"
PEAK = re.compile(rf"^#\s*Peak bus bandwidth\s*:\s*{FIGURE} GB/s at {FIGURE} ([KMG]i)?B", re.MULTILINE)
AVERAGE = re.compile(rf"^#\s*Avg bus bandwidth\s*:\s*{FIGURE}", re.MULTILINE)
UNITS = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "K": 10**3, "M": 10**6, "G": 10**9}
LABEL = re.compile(r"^(?: *\d+: ?|\[\d+,\d+\]<std(?:out|err)>: ?)", re.MULTILINE)
"""The rank that `srun --label` or `mpirun --tag-output` writes before each line."""
PAYLOAD = re.compile(rf"bandwidth of (\w+) with a {FIGURE}([KMG]i?)B payload")
SWEEP = re.compile(rf"^\|\s*{FIGURE}([KMG]i?)?B\s*\|\s*{FIGURE}\s*GBps\s*\|", re.MULTILINE)
"""A row of the table of all_reduce_bench.py (https://github.com/stas00/ml-engineering): payload, then bus bandwidth."""
BUS = re.compile(rf"\bbusbw: *{FIGURE} *(GBps|GB/s|Gbps|Gb/s)|\bbusbw_avg \((GBps|Gbps)\): *{FIGURE}")
BITS = 8
"""Gigabits in a gigabyte: ``Gbps`` is bits, ``GBps`` bytes."""

OWN_ROW = re.compile(
    rf"^ *{FIGURE} ([KMG]i)?B +{FIGURE} ms +{FIGURE} +{FIGURE}(?: +{FIGURE} +{FIGURE})? *$", re.MULTILINE
)
"""Size, time, algorithm bandwidth, bus bandwidth, and the ends of its spread."""

NCCL_ROW = re.compile(
    r"^[ \t]*(\d{1,18})\s+\d+\s+(?:u?int\d+|float\w*|half|double|bfloat16|fp8\w*)\s+\w+(?:\s+-?\d+)?\s+"
    rf"{FIGURE}\s+{FIGURE}\s+{FIGURE}\s",
    re.MULTILINE,
)
"""Size in bytes, count, type, reduction, root, time in us, algorithm bandwidth, bus bandwidth."""

NODES = re.compile(r"^# \w+ · (\d+) ranks on (\d+) nodes?\b", re.MULTILINE)
MILLI, MICRO = 1e-3, 1e-6


class Measured(msgspec.Struct, frozen=True):
    """A bus bandwidth that a benchmark printed."""

    gigabytes: float
    """GB/s (1e9 bytes)."""
    size: int = 0
    """Bytes of the message; 0 if the benchmark printed only an average over sizes."""
    operation: str = ""
    """For example ``all_reduce``; empty if the benchmark did not print it."""


class SizeBandwidth(msgspec.Struct, frozen=True):
    """The bandwidth of one message size."""

    size: int
    """Bytes."""
    seconds: float
    """Time of one operation."""
    algorithm: float
    bus: float
    low: float
    high: float
    """Algorithm and bus bandwidth in GB/s, and the quartiles of the bus bandwidth; both are `bus` if it was
    measured once."""


class CollectivesOutput(msgspec.Struct, frozen=True):
    """A table of bandwidths; `operation` is empty and `nodes` is 0 if the program did not print them."""

    operation: str
    nodes: int
    rows: tuple[SizeBandwidth, ...]


def parse_collectives(text: str) -> CollectivesOutput | None:
    """Parse the output of a job; None if it has no table. If a job ran twice, the last row of a size counts."""
    text = LABEL.sub("", text)
    rows = {row.size: row for row in (*_nccl_rows(text), *_own_rows(text))}
    if not rows:
        return None
    operations, nodes = OPERATION.findall(text), NODES.findall(text)
    return CollectivesOutput(
        operations[-1] if operations else "",
        int(nodes[-1][1]) if nodes else 0,
        tuple(rows[size] for size in sorted(rows)),
    )


def _own_rows(text: str) -> list[SizeBandwidth]:
    return [
        SizeBandwidth(
            int(float(size) * UNITS[unit]), float(time) * MILLI, float(algorithm), float(bus),
            float(low or bus), float(high or bus),
        )
        for size, unit, time, algorithm, bus, low, high in OWN_ROW.findall(text)
    ]  # fmt: skip


def _nccl_rows(text: str) -> list[SizeBandwidth]:
    return [
        SizeBandwidth(int(size), float(time) * MICRO, float(algorithm), float(bus), float(bus), float(bus))
        for size, time, algorithm, bus in NCCL_ROW.findall(text)
    ]


def parse_bandwidth(text: str) -> Measured | None:
    """Return the bandwidth in a benchmark's output, or None if there is none.

    The last peak of `argosy bench` comes first, then the largest message of a table, then nccl-tests' average, then
    all_reduce_bench.py.
    """
    text = LABEL.sub("", text)
    operations = OPERATION.findall(text)
    operation = operations[-1] if operations else ""
    if peaks := PEAK.findall(text):
        speed, size, unit = peaks[-1]
        return Measured(float(speed), int(float(size) * UNITS[unit]), operation)
    if table := parse_collectives(text):
        return Measured(table.rows[-1].bus, table.rows[-1].size, operation)
    if averages := AVERAGE.findall(text):
        return Measured(float(averages[-1]), 0, operation)
    return _parse_all_reduce_bench(text)


def _parse_all_reduce_bench(text: str) -> Measured | None:
    """Return the bandwidth that all_reduce_bench.py printed: of the largest payload of its table, or the last one."""
    if rows := SWEEP.findall(text):
        size, speed = max((float(size) * UNITS[unit], float(speed)) for size, unit, speed in rows)
        return Measured(speed, int(size), "all_reduce")
    speeds = BUS.findall(text)
    if not speeds:
        return None
    speed = speeds[-1][0] or speeds[-1][3]
    unit = speeds[-1][1] or speeds[-1][2]
    gigabytes = float(speed) if unit.startswith("GB") else round(float(speed) / BITS, 3)
    payloads = PAYLOAD.findall(text)
    if not payloads:
        return Measured(gigabytes, 0, "all_reduce")
    operation, size, unit = payloads[-1]
    return Measured(gigabytes, int(float(size) * UNITS[unit]), operation)
