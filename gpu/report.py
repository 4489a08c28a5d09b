"""The report of `make gpu`: records, JSON and the page of the manual; pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA = 1

NOT_RUN = """\
# GPUs

`make gpu` was tested with fake drivers only: no report of a machine with GPUs exists.
[The GPU kit](../../CONTRIBUTING.md#the-gpu-kit) describes how to run it.
"""

UNTESTED = {
    "amd": "`make gpu` has never run on an AMD GPU.",
    "intel": "`make gpu` has never run on an Intel GPU.",
}


class State(StrEnum):
    """How a step ended."""

    OK = "ok"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the report."""

    name: str
    """For example ``run bwrap``."""
    state: State
    reason: str = ""
    """Why the step failed or was skipped."""
    seconds: float = 0.0
    command: str = ""
    """The command line, as a person would type it."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The results, for example the reports of the probes."""


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report."""

    date: str
    """UTC, for example ``2026-11-23 06:00``."""
    version: str
    vendor: str
    machine: Mapping[str, str]
    """Facts by name: GPUs, driver, kernel, Python, user."""
    seconds: float
    steps: Sequence[Step]

    @property
    def failed(self) -> tuple[str, ...]:
        """Return the names of the steps that failed."""
        return tuple(step.name for step in self.steps if step.state is State.FAIL)


def render_report(report: Report) -> str:
    """Render the JSON of a report."""
    return json.dumps({"schema": SCHEMA, **asdict(report)}, indent=1) + "\n"


def parse_report(text: str) -> Report:
    """Parse the JSON of a report.

    Raises
    ------
    ValueError
        If it is not a report of this schema.
    """
    data = json.loads(text)
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        raise ValueError(f"not a report of schema {SCHEMA}")
    try:
        steps = tuple(Step(**{**step, "state": State(step["state"])}) for step in data["steps"])
        names = ("date", "version", "vendor", "machine", "seconds")
        return Report(**{name: data[name] for name in names}, steps=steps)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a report of schema {SCHEMA}: {error!r}") from None


def render_page(report: Report | None) -> str:
    """Render docs/reference/gpu.md; without a report, the page says that none exists."""
    if report is None:
        return NOT_RUN
    lines = [
        "# GPUs",
        "",
        f"`make gpu` ran on {report.date} UTC with Argosy {report.version}, in {report.seconds:.0f} s.",
        "",
        *_table(("machine", ""), report.machine.items()),
        "",
        "## Steps",
        "",
        *_table(
            ("step", "result", "seconds", "reason"),
            ((step.name, step.state, f"{step.seconds:.1f}", step.reason) for step in report.steps),
        ),
        "",
        "## Memory bandwidth",
        "",
        "Copies within the memory of a GPU, by `cuMemcpyDtoD` of the driver from inside the container. Bytes read and",
        "bytes written both count.",
        "",
        *_table(("step", "GPU", "name", "GB/s (median)", "GB/s (best)"), _bandwidths(report.steps)),
        "",
        *(text for vendor, text in UNTESTED.items() if vendor != report.vendor),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _bandwidths(steps: Iterable[Step]) -> list[tuple[str, ...]]:
    return [
        (
            step.name,
            str(device["index"]),
            device["name"],
            str(device["bandwidth"]["gb_per_s"]),
            str(device["bandwidth"]["gb_per_s_best"]),
        )
        for step in steps
        for probe in step.values.get("probes", ())
        for device in probe["devices"]
        if "bandwidth" in device
    ]


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    return [_row(head), "|" + "---|" * len(head), *(_row(row) for row in rows)]


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
