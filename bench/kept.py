"""Results on disk: one JSON file per run, and the page of the manual made of the last that measured each part."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.core.store import write_text
from bench.machine import machine_id
from bench.records import Result, render_number
from bench.table import render_page

REPO = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("results")
PAGE = REPO / "docs/reference/figures.md"
README = REPO / "README.md"
CLAIM = re.compile(r"\[\d+ times faster\](?=\(docs/reference/figures\.md#building\))")
CLAIMED = "building.cold.faster"
"""The claim of the README, and the key of the row that it quotes."""

INTRODUCTION = """\
# Figures

This page compares Argosy with the usual methods. All figures of a table come from one run on one machine; the last
section describes the runs. A figure with several runs is the median, with its quartiles. *Ratio* compares a figure with
the usual method of its table, and *budget* is the project's own limit.

`make bench` and `python -m bench --only PART --write-docs` generate this page from `bench/results/`: each part is from
the last run that measured it. `python -m bench --compare FILE` compares a run with an earlier one.

"""


def write_result(result: Result, *, part: str = "") -> Path:
    """Keep a result under its date and its kind of machine; `part` names what a partial run measured."""
    RESULTS.mkdir(exist_ok=True)
    name = f"{result.date[:10]}-{machine_id(result.machine)}{f'-{part}' if part else ''}.json"
    write_text(RESULTS / name, render_result(result))
    return RESULTS / name


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


def latest_runs(results: Iterable[Result], parts: Sequence[str]) -> dict[str, Result]:
    """Give for each part, in this order, the last run that measured it."""
    last = {row.group: result for result in sorted(results, key=lambda each: each.date) for row in result.rows}
    return {part: last[part] for part in parts if part in last}


def write_page(parts: Sequence[str]) -> None:
    """Write the manual's page of all results that are kept, and the README's claim out of them."""
    latest = latest_runs(map(read_result, sorted(RESULTS.glob("*.json"))), parts)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_text(PAGE, INTRODUCTION + render_page(latest))
    write_text(README, render_claim(README.read_text(), latest))


def render_claim(text: str, latest: Mapping[str, Result]) -> str:
    """Render the README with the factor of the last run, its fraction left out; as it is where none was."""
    values = (row.value for result in latest.values() for row in result.rows if row.key == CLAIMED)
    times = next((render_number(value).partition(".")[0] for value in values), "")
    return CLAIM.sub(f"[{times} times faster]", text) if times else text
