"""The kept result: one file with the latest complete run, and the page of the manual that is made from it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from argosy.core.plots import draw
from argosy.core.store import write_text
from bench.figures_page import render_page
from bench.growth_page import write_growth_page
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


def write_result(result: Result) -> None:
    """Keep a complete result instead of the one before."""
    write_text(RESULT, render_result(result))


def render_result(result: Result) -> str:
    """Render a result as JSON that reads well in a review."""
    return msgspec.json.format(msgspec.json.encode(result), indent=1).decode() + "\n"


def read_result(path: Path) -> Result:
    """Read a kept result.

    Raises
    ------
    SystemExit
        When the file is not there, or is no result.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        raise SystemExit(f"bench: {path} is no kept result: {error}") from error


def write_page(result: Result) -> None:
    """Write the manual's page, its plots, the README's claim, and the page about large jobs."""
    plots = plot_parts(result.rows)
    PLOTS.mkdir(exist_ok=True)
    for old in PLOTS.glob("*.svg"):
        if old.stem not in PARTS_WITH_PLOT:
            old.unlink()
    for part, plot in plots.items():
        write_text(PLOTS / f"{part}.svg", draw(plot))
    pictures = {part: f"![{plot.title}]({PLOTS.name}/{part}.svg)" for part, plot in plots.items()}
    write_text(PAGE, INTRODUCTION + render_page(result, pictures))
    write_text(README, render_claim(README.read_text(), result))
    write_growth_page(result.rows)


def render_claim(text: str, result: Result) -> str:
    """Render the README with the measured factor, rounded down; unchanged if it was not measured."""
    times = next((render_number(row.value).partition(".")[0] for row in result.rows if row.key == CLAIMED), "")
    return CLAIM.sub(f"[{times} times faster]", text) if times else text
