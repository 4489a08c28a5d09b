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
    """One measured value."""

    name: str
    """Device, setting or case; empty for collectives."""
    quantity: str
    unit: str
    """For example ``bus bandwidth`` in ``GB/s``."""
    value: float
    low: float
    high: float
    """Quartiles; equal to `value` if it was measured once."""
    nodes: int = 0
    size: int = 0
    at_once: int = 0
    """Number of nodes, bytes of the message, and simultaneous starts; 0 if they do not apply."""
    each: tuple[float, ...] = ()
    """The single values."""

    @property
    def key(self) -> tuple[str, str, int, int, int]:
        """Return what two figures must share to be compared."""
        return self.name, self.quantity, self.nodes, self.size, self.at_once


class BenchResult(msgspec.Struct, frozen=True):
    """The result of a benchmark."""

    kind: Kind
    label: str
    """Its source: ``job 12``, ``jobs 12 to 16`` or a file."""
    title: str
    """The measured operation, value or program."""
    figures: tuple[Figure, ...]
    site: str = ""
    date: str = ""
    """Empty if they are unknown; the date is in ISO 8601."""
    expected: dict[int, float] = {}
    """Nodes -> bus bandwidth in GB/s that the site's profile expects."""
    notes: tuple[str, ...] = ()
    """Missing values, each with the reason."""

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
