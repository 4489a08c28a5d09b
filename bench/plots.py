"""Which rows of a result are drawn, and how: one plot for each part that has something to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from argosy.core.plots import LinePlot, Plot, PlotLine, PlotRow, Point, RowPlot
from bench.records import Row

Rows = Mapping[str, Row]
"""Key -> row of a result."""

Names = Mapping[str, str]
"""Last part of a key -> name in the plot."""

OURS = {"delta", "flat", "argosy", "cold", "warm", "again", "changed", "wrapper", "together", "help", "dry_run"}
"""Parts of keys of Argosy's own figures, which stand out."""

LEAST_BARS = 2


def plot_parts(rows: Sequence[Row]) -> dict[str, Plot]:
    """Return the plot of each part that was measured; a part without a plot is left out."""
    by_key = {row.key: row for row in rows}
    plots = {part: make(by_key) for part, make in PLOTS.items()}
    return {part: plot for part, plot in plots.items() if plot is not None}


def _bars(rows: Rows, groups: Mapping[str, Names], key: str) -> tuple[PlotRow, ...]:
    """Return the bars of groups of rows.

    Parameters
    ----------
    groups
        Heading of a group -> its rows and their names; ``{}`` in `key` is the row, and may contain the group.
    """
    return tuple(
        _bar(rows[key.format(part)], name, group)
        for group, names in groups.items()
        for part, name in names.items()
        if key.format(part) in rows
    )


def _bar(row: Row, name: str, group: str) -> PlotRow:
    several = row.runs > 1
    return PlotRow(
        name,
        row.value,
        row.low if several else None,
        row.high if several else None,
        limit=row.budget.limit if row.budget and not row.budget.at_least else None,
        accent=not OURS.isdisjoint(row.key.split(".")),
        group=group,
    )


def _plot(
    title: str, unit: str, key: str, groups: Mapping[str, Names], *, log: bool = False
) -> Callable[[Rows], Plot | None]:
    """Return the function that makes a plot of rows from a result; it returns None if they were not measured."""

    def make(rows: Rows) -> Plot | None:
        bars = _bars(rows, groups, key)
        return RowPlot(title, unit, bars, log=log, limit_label="budget") if len(bars) >= LEAST_BARS else None

    return make


def _with_prefix(prefix: str, names: Names) -> Names:
    return {f"{prefix}{key}": name for key, name in names.items()}


PACKING = {
    "delta": "delta image",
    "flat": "flat image",
    "anew": "unpack both, pack all",
    "apptainer": "apptainer: sandbox, copy, build",
}
BUILDING = {
    "again": "the same lock again",
    "changed": "one package more",
    "warm.wall": "with warm caches",
    "cold.wall": "with cold caches",
    "cotainr.wall": "cotainr's steps",
}
STARTS = {
    "native": "no container",
    "bare": "the bare runtime",
    "plain": "plain image",
    "delta": "delta image",
    "flat": "flat image",
}
WRAPPED = {
    "bare": "no container",
    "runtime": "the runtime",
    "line": "the plain command line",
    "wrapper": "wrapped command",
}
MEMORY = {"single": "1 rank", "together": "8 ranks, one container", "apart": "8 ranks, 8 containers"}
TRAINING = {"container.whole": "apptainer exec", "wrapper.whole": "wrapped", "scripted.whole": "wrapped as by tykky"}
RUNTIMES = ("bwrap", "apptainer")

SCRIPTS = {"slurm": "Slurm alone", "hand": "script by hand", "argosy": "Argosy's script"}


def _growth(rows: Rows) -> Plot | None:
    """Return the plot of the time until the last rank, over the number of nodes."""
    lines = []
    for script, name in SCRIPTS.items():
        found = {key.removeprefix(f"growth.{script}."): row for key, row in rows.items()}
        points = [Point(int(nodes), row.value, row.low, row.high) for nodes, row in found.items() if nodes.isdigit()]
        lines.append(PlotLine(name, tuple(points)))
    if not all(line.points for line in lines):
        return None
    return LinePlot("From sbatch to the last rank, all nodes on one machine", "nodes", "seconds", tuple(lines))


PLOTS: Mapping[str, Callable[[Rows], Plot | None]] = {
    "packing": _plot(
        "Packing a layer on a base", "s", "packing.{}",
        {"wall time": {f"{key}.wall": name for key, name in PACKING.items()},
         "CPU time": {f"{key}.cpu": name for key, name in PACKING.items()}},
        log=True,
    ),
    "building": _plot("Building an image", "s", "building.{}", {"": BUILDING}, log=True),
    "wrapping": _plot(
        "Start of a wrapped python -c pass", "ms", "wrapping.{}",
        {runtime: _with_prefix(f"{runtime}.start.", WRAPPED) for runtime in RUNTIMES},
    ),
    "start": _plot(
        "Start of python -c pass in a container", "ms", "start.{}",
        {runtime: _with_prefix(f"{runtime}.python.1.", STARTS) for runtime in RUNTIMES},
    ),
    "memory": _plot(
        "Memory of mapped libraries", "MB", "memory.{}",
        {runtime: _with_prefix(f"{runtime}.", MEMORY) for runtime in RUNTIMES},
    ),
    "commands": _plot(
        "CPU time of commands", "ms", "commands.{}",
        {"": {"nothing.cpu": "python -c pass", "help.cpu": "argosy --help", "dry_run.cpu": "argosy launch --dry-run"}},
    ),
    "planning": _plot(
        "Planning inside one process", "ms", "planning.{}",
        {"": {"local": "a local job", "large": "a job on 10,000 nodes", "profiles": "read and check all profiles"}},
        log=True,
    ),
    "peers": _plot(
        "CPU time of Argosy and other tools", "ms", "peers.{}",
        {"start (--version)": {"start.argosy": "argosy", "start.cotainr": "cotainr", "start.reframe": "ReFrame"},
         "job script": {"script.argosy": "argosy", "script.submitit": "submitit", "script.torchx": "TorchX"}},
    ),
    "job": _plot(
        "From the start of a job to its ranks, 2 nodes with 2 ranks", "ms", "job.{}",
        {"first rank": {"hand": "script by hand", "argosy": "Argosy's script"},
         "last rank": {"last.hand": "script by hand", "last.argosy": "Argosy's script"}},
    ),
    "growth": _growth,
    "training": _plot(
        "Training, start to end", "s", "training.{}",
        {"one rank": _with_prefix("single.", TRAINING), "one node, 2 ranks": _with_prefix("node.", TRAINING),
         "2 nodes, 2 ranks each": _with_prefix("nodes.", TRAINING)},
    ),
}  # fmt: skip
"""Part -> function from the rows of a result to its plot."""
