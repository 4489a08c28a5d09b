"""Find bad nodes in the output of `argosy bench nodes`: no answer, wrong results or slow; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_high

import msgspec

LINE = re.compile(r"^# node (?P<host>\S+) (?P<device>cpu|gpu \d+) \((?P<kind>.*?)\): (?P<results>.*)$", re.MULTILINE)
FIGURE = re.compile(r"(?P<name>[a-z ]+) (?P<value>\d{1,15}\.\d{1,15}) (?P<unit>[TG]\S+/s)")
LEAST_SHARE = {"gpu": 0.75, "cpu": 0.5}
"""Share of the median of a model below which a device counts as slow. GPUs of one model differ by up to 22 % on healthy
clusters (Sinha et al., SC22, https://arxiv.org/abs/2208.11035). A node's CPU may also serve other jobs."""


class DeviceTest(msgspec.Struct, frozen=True):
    """The test results of one device of a node.

    Attributes
    ----------
    device
        ``gpu 3`` or ``cpu``.
    kind
        Its model. Only devices of the same model are compared.
    figures
        Measurement -> value and unit: ``matmul`` in TFLOP/s; ``memory``, ``from host`` and ``to the next`` in
        GB/s.
    faults
        Failures and wrong results, as the test program prints them.
    """

    host: str
    device: str
    kind: str
    figures: Mapping[str, tuple[float, str]]
    faults: tuple[str, ...] = ()


class BadNode(msgspec.Struct, frozen=True):
    """A node to exclude, with the reason."""

    host: str
    why: str


def parse_node_tests(text: str) -> tuple[DeviceTest, ...]:
    """Parse the output of a job; if a job ran twice, the last line of each device counts."""
    found = {(match["host"], match["device"]): _parse_test(match) for match in LINE.finditer(text)}
    return tuple(found.values())


def _parse_test(match: re.Match[str]) -> DeviceTest:
    measured, *faults = match["results"].split(" | ")
    figures = {each["name"].strip(): (float(each["value"]), each["unit"]) for each in FIGURE.finditer(measured)}
    return DeviceTest(match["host"], match["device"], match["kind"], figures, tuple(faults))


def find_bad_nodes(tests: Sequence[DeviceTest], hosts: Sequence[str], gpus: int) -> tuple[BadNode, ...]:
    """Find the nodes to exclude, each with its first reason.

    Parameters
    ----------
    hosts
        The nodes of the job. A node without a line did not answer.
    gpus
        GPUs that each node should have; 0 if the job requested none.
    """
    medians = _medians(tests)
    by_host: dict[str, list[DeviceTest]] = {host: [] for host in hosts}
    for test in tests:
        by_host.setdefault(test.host, []).append(test)
    reasons = ((host, next(_reasons(own, medians, gpus), "")) for host, own in by_host.items())
    return tuple(BadNode(host, why) for host, why in reasons if why)


def _medians(tests: Sequence[DeviceTest]) -> Mapping[tuple[str, str], float]:
    """Return the median of each figure of each model; the higher value of two."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for test in tests:
        for name, (value, _) in test.figures.items():
            values[test.kind, name].append(value)
    return {key: median_high(each) for key, each in values.items()}


def _reasons(own: Sequence[DeviceTest], medians: Mapping[tuple[str, str], float], gpus: int) -> Iterator[str]:
    if not own:
        yield "did not answer"
    for test in own:
        yield from (f"{test.device}: {fault}" for fault in test.faults)
    seen = sum(test.device != "cpu" for test in own)
    if seen < gpus:
        yield f"shows {seen} of {gpus} GPUs"
    for test in own:
        for name, (value, unit) in test.figures.items():
            usual = medians[test.kind, name]
            if value < LEAST_SHARE[test.device[:3]] * usual:
                yield f"{test.device} is slow: {name} {value:g} of {usual:g} {unit}, the median"
