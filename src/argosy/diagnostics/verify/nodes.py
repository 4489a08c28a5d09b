"""Judge nodes that were tried each alone (`argosy bench nodes`): no answer, wrong results, or slow; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median_high

import msgspec

LINE = re.compile(r"^# node (?P<host>\S+) (?P<device>cpu|gpu \d+) \((?P<kind>.*?)\): (?P<words>.*)$", re.MULTILINE)
FIGURE = re.compile(r"(?P<name>[a-z ]+) (?P<value>\d+\.\d+) (?P<unit>[TG]\S+/s)")
LEAST_SHARE = {"gpu": 0.75, "cpu": 0.5}
"""Of the median of devices of a model: a slower one is named.  GPUs of one model differ by up to 22 % on clusters that
are in order (Sinha et al., SC22, https://arxiv.org/abs/2208.11035); a node's processor may serve other jobs, too."""


class Trial(msgspec.Struct, frozen=True):
    """What one device of a node did.

    Attributes
    ----------
    device
        ``gpu 3`` or ``cpu``.
    kind
        Its model: only devices of one model are compared.
    figures
        What was measured -> value and unit: ``matmul`` in TFLOP/s; ``memory``, ``from host`` and ``to the next`` in
        GB/s.
    faults
        What failed or was wrong, in the program's words.
    """

    host: str
    device: str
    kind: str
    figures: Mapping[str, tuple[float, str]]
    faults: tuple[str, ...] = ()


class BadNode(msgspec.Struct, frozen=True):
    """A node to leave out, and why."""

    host: str
    why: str


def parse_trials(text: str) -> tuple[Trial, ...]:
    """Read the lines of a job's output; of a job that ran twice a device's last line counts."""
    found = {(match["host"], match["device"]): _trial(match) for match in LINE.finditer(text)}
    return tuple(found.values())


def _trial(match: re.Match[str]) -> Trial:
    measured, *faults = match["words"].split(" | ")
    figures = {each["name"].strip(): (float(each["value"]), each["unit"]) for each in FIGURE.finditer(measured)}
    return Trial(match["host"], match["device"], match["kind"], figures, tuple(faults))


def find_bad_nodes(trials: Sequence[Trial], hosts: Sequence[str], gpus: int) -> tuple[BadNode, ...]:
    """Name the nodes to leave out, each with its first reason.

    Parameters
    ----------
    hosts
        The nodes of the job: one without a line gave no answer.
    gpus
        GPUs that each node should show; 0 where none was asked for.
    """
    medians = _medians(trials)
    of_host: dict[str, list[Trial]] = {host: [] for host in hosts}
    for trial in trials:
        of_host.setdefault(trial.host, []).append(trial)
    reasons = ((host, next(_reasons(mine, medians, gpus), "")) for host, mine in of_host.items())
    return tuple(BadNode(host, why) for host, why in reasons if why)


def _medians(trials: Sequence[Trial]) -> Mapping[tuple[str, str], float]:
    """Give the median of each figure of each model; of two devices the better one."""
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for trial in trials:
        for name, (value, _) in trial.figures.items():
            values[trial.kind, name].append(value)
    return {key: median_high(each) for key, each in values.items()}


def _reasons(mine: Sequence[Trial], medians: Mapping[tuple[str, str], float], gpus: int) -> Iterator[str]:
    if not mine:
        yield "gave no answer"
    for trial in mine:
        yield from (f"{trial.device}: {fault}" for fault in trial.faults)
    seen = sum(trial.device != "cpu" for trial in mine)
    if seen < gpus:
        yield f"shows {seen} of {gpus} GPUs"
    for trial in mine:
        for name, (value, unit) in trial.figures.items():
            usual = medians[trial.kind, name]
            if value < LEAST_SHARE[trial.device[:3]] * usual:
                yield f"{trial.device} is slow: {name} {value:g} of {usual:g} {unit}, the median"
