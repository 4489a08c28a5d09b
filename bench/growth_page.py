"""The page of the manual about large jobs: computed from measured rows and from assumptions about a cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from argosy.core.store import write_text
from bench.records import Row, render_number

PAGE = Path(__file__).parents[1] / "docs/explanation/growth.md"
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


def write_growth_page(rows: Sequence[Row]) -> None:
    """Write the computed table of the page; leave the page as it is if growth was not measured."""
    by_key = {row.key: row.value for row in rows}
    if f"growth.after.{NODES[-1]}" in by_key and "planning.large" in by_key:
        table = render_table(by_key)
        write_text(PAGE, TABLE.sub(lambda _: table, PAGE.read_text(encoding="utf-8")))


def render_table(values: Mapping[str, float]) -> str:
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
