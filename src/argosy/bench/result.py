"""The stored form of a measurement, by which results of different jobs, sites and days are compared."""

from __future__ import annotations

from enum import StrEnum

import msgspec

SWEEP = "sweep.json"
"""File in the records of jobs that were submitted together: their numbers."""

GBIT = 8
"""Gigabits in a gigabyte."""


class Kind(StrEnum):
    """The benchmark that made a result."""

    COLLECTIVES = "collectives"
    NODES = "nodes"
    SETTINGS = "settings"
    STARTUP = "startup"


class Figure(msgspec.Struct, frozen=True):
    """One measured value.

    Attributes
    ----------
    name
        Device, setting or case; empty for collectives.
    quantity, unit
        For example ``bus bandwidth`` in ``GB/s``.
    low, high
        Quartiles; equal to `value` if it was measured once.
    nodes, size, at_once
        Number of nodes, bytes of the message, and simultaneous starts; 0 if they do not apply.
    each
        The single values.
    """

    name: str
    quantity: str
    unit: str
    value: float
    low: float
    high: float
    nodes: int = 0
    size: int = 0
    at_once: int = 0
    each: tuple[float, ...] = ()

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Return what two figures must share to be compared."""
        return self.name, self.quantity, self.nodes, self.size, self.at_once


class BenchResult(msgspec.Struct, frozen=True):
    """The result of a benchmark.

    Attributes
    ----------
    label
        Its source: ``job 12``, ``jobs 12 to 16`` or a file.
    title
        The measured operation, value or program.
    site, date
        Empty if they are unknown; the date is in ISO 8601.
    expected
        Nodes -> bus bandwidth in GB/s that the site's profile expects.
    notes
        Missing values, each with the reason.
    """

    kind: Kind
    label: str
    title: str
    figures: tuple[Figure, ...]
    site: str = ""
    date: str = ""
    expected: dict[int, float] = {}
    notes: tuple[str, ...] = ()

    @property
    def node_counts(self) -> tuple[int, ...]:
        """Return the numbers of nodes that were measured."""
        return tuple(sorted({figure.nodes for figure in self.figures if figure.nodes}))

    def peak(self, nodes: int, quantity: str) -> Figure | None:
        """Return a collective's figure for the message with the largest bus bandwidth on a number of nodes."""
        buses = [each for each in self.figures if each.nodes == nodes and each.quantity == BUS]
        size = max(buses, key=lambda each: each.value).size if buses else -1
        return next((each for each in self.figures if each.key == ("", quantity, nodes, size, 0)), None)


BUS, ALGORITHM = "bus bandwidth", "algorithm bandwidth"
