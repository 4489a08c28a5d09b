"""The kept result, and the pages of the manual that are made from it.

docs/reference/figures.md shows all rows with their plots. docs/explanation/growth.md computes large jobs from measured
rows and from assumptions about a cluster.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.plots import draw
from argosy.core.store import write_text
from bench.figures_page import render_page
from bench.plots import PLOTS as PARTS_WITH_PLOT
from bench.plots import plot_parts
from bench.records import Result, render_number

REPO = Path(__file__).parents[1]
RESULT = Path(__file__).with_name("result.json")
PAGE = REPO / "docs/reference/figures.md"
PLOTS = REPO / "docs/reference/figures"
README = REPO / "README.md"
CLAIM = re.compile(r"\[\d+ times faster\](?=\(docs/reference/figures\.md#building\))")
CLAIMED = "building.cold.faster"
"""The claim of the README, and the key of the row that it quotes."""

INTRODUCTION = """\
# Figures

This page compares Argosy with the usual methods. All figures come from one run; the last section describes it. A figure
with several runs is the median; the folded tables have its quartiles. *Ratio* compares a figure with the usual method,
and *budget* is the project's own limit. In the plots, the line below a bar is the range between the quartiles.

`make bench` measures everything and writes this page, its plots and `bench/result.json`. `python -m bench --only PART`
measures one part and writes nothing. `python -m bench --compare` compares a run with the kept result.

"""

GROWTH_PAGE = REPO / "docs/explanation/growth.md"
TABLE = re.compile(r"(?<=<!-- computed -->\n).*?(?=<!-- end -->)", re.DOTALL)
NODES = (64, 1000, 10_000)

FILES_PER_SECOND = 5000
"""Files that the metadata server of a shared file system creates or opens in a second, in one folder."""
IMAGE_GB = 5
SHARED_GB_PER_SECOND = 200
"""Rate at which a shared file system serves one file to all nodes together."""
NODE_GB_PER_SECOND = 1
"""Rate at which slurmd passes on a file over TCP."""
FANOUT = 8
"""Nodes to which a node passes on a file (sbcast --fanout)."""


def write_result(result: Result) -> None:
    """Keep a complete result instead of the one before."""
    write_text(RESULT, render_result(result))


def render_result(result: Result) -> str:
    """Render a result as JSON that reads well in a review."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"


def read_result(path: Path) -> Result:
    """Read a kept result."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise SystemExit(f"bench: {path} is no kept result: {error}") from error


def write_pages(result: Result) -> None:
    """Write the manual's pages and plots, and the README's claim."""
    plots = plot_parts(result.rows)
    PLOTS.mkdir(exist_ok=True)
    for old in PLOTS.glob("*.svg"):
        if old.stem not in PARTS_WITH_PLOT:
            old.unlink()
    for part, plot in plots.items():
        write_text(PLOTS / f"{part}.svg", draw(plot))
    pictures = {part: f"![{plot.title}]({PLOTS.name}/{part}.svg)" for part, plot in plots.items()}
    write_text(PAGE, INTRODUCTION + render_page(result, pictures))
    write_text(README, render_claim(README.read_text(encoding="utf-8"), result))
    values = {row.key: row.value for row in result.rows}
    if f"growth.after.{NODES[-1]}" in values and "planning.large" in values:
        table = render_growth_table(values)
        write_text(GROWTH_PAGE, TABLE.sub(lambda _: table, GROWTH_PAGE.read_text(encoding="utf-8")))


def render_claim(text: str, result: Result) -> str:
    """Render the README with the measured factor, rounded down; unchanged if it was not measured."""
    times = next((render_number(row.value).partition(".")[0] for row in result.rows if row.key == CLAIMED), "")
    return CLAIM.sub(f"[{times} times faster]", text) if times else text


def render_growth_table(values: Mapping[str, float]) -> str:
    """Render the seconds that a job of each size spends in each phase.

    Parameters
    ----------
    values
        Key of a row -> its figure, in the row's unit.
    """
    start = max(0.0, values["growth.argosy.1"] - values["growth.slurm.1"])
    phases = (
        ("plan and script, on the login node", [values["planning.large"] / 1000] * len(NODES)),
        ("the script until `srun`", [values[f"growth.before.{nodes}"] for nodes in NODES]),
        ("container, on all nodes at once", [start] * len(NODES)),
        ("files of the record, one per node", [nodes / FILES_PER_SECOND for nodes in NODES]),
        ("verdict: read these files", [values[f"growth.after.{nodes}"] + nodes / FILES_PER_SECOND for nodes in NODES]),
        (f"an image of {IMAGE_GB} GB, read by all nodes", list(map(read_seconds, NODES))),
        ("the same by `sbcast` (`--stage-to`)", list(map(sbcast_seconds, NODES))),
    )
    head = f"| seconds for | {' | '.join(f'{nodes:,} nodes' for nodes in NODES)} |"
    lines = (f"| {what} | {' | '.join(map(render_number, seconds))} |" for what, seconds in phases)
    return "\n".join([head, "|---|" + "---:|" * len(NODES), *lines]) + "\n"


def read_seconds(nodes: int) -> float:
    """Return the seconds in which all nodes read the image from the shared file system."""
    return max(IMAGE_GB / NODE_GB_PER_SECOND, nodes * IMAGE_GB / SHARED_GB_PER_SECOND)


def sbcast_seconds(nodes: int) -> float:
    """Return the seconds of sbcast, which sends a block through all levels of its tree before the next block."""
    levels = max(1, math.ceil(math.log(nodes, FANOUT) - 1e-9))
    return levels * IMAGE_GB / NODE_GB_PER_SECOND
