"""Parse the tables of `argosy bench collectives`, nccl-tests and rccl-tests; pure."""

from __future__ import annotations

import re

import msgspec

from argosy.diagnostics.verify.network_log import LABEL, OPERATION, UNITS

OWN_ROW = re.compile(
    r"^ *([\d.]+) (Ki|Mi|Gi|)B +([\d.]+) ms +([\d.]+) +([\d.]+)(?: +([\d.]+) +([\d.]+))? *$", re.MULTILINE
)
"""Size, time, algorithm bandwidth, bus bandwidth, and the ends of its spread."""

NCCL_ROW = re.compile(
    r"^ *(\d+) +\d+ +(?:u?int\d+|float\w*|half|double|bfloat16|fp8\w*) +\w+(?: +-?\d+)? +([\d.]+) +([\d.]+) +([\d.]+) ",
    re.MULTILINE,
)
"""Size in bytes, count, type, reduction, root, time in us, algorithm bandwidth, bus bandwidth."""

NODES = re.compile(r"^# \w+ · (\d+) ranks on (\d+) node\(s\)", re.MULTILINE)
MILLI, MICRO = 1e-3, 1e-6


class Bandwidth(msgspec.Struct, frozen=True):
    """The bandwidth of one message size.

    Attributes
    ----------
    size
        Bytes.
    seconds
        Time of one operation.
    algorithm, bus, low, high
        Algorithm and bus bandwidth in GB/s, and the quartiles of the bus bandwidth; both are `bus` if it was measured
        once.
    """

    size: int
    seconds: float
    algorithm: float
    bus: float
    low: float
    high: float


class CollectivesOutput(msgspec.Struct, frozen=True):
    """A table of bandwidths; `operation` is empty and `nodes` is 0 if the program did not print them."""

    operation: str
    nodes: int
    rows: tuple[Bandwidth, ...]


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


def _own_rows(text: str) -> list[Bandwidth]:
    return [
        Bandwidth(
            int(float(size) * UNITS[unit]), float(time) * MILLI, float(algorithm), float(bus),
            float(low or bus), float(high or bus),
        )
        for size, unit, time, algorithm, bus, low, high in OWN_ROW.findall(text)
    ]  # fmt: skip


def _nccl_rows(text: str) -> list[Bandwidth]:
    return [
        Bandwidth(int(size), float(time) * MICRO, float(algorithm), float(bus), float(bus), float(bus))
        for size, time, algorithm, bus in NCCL_ROW.findall(text)
    ]
