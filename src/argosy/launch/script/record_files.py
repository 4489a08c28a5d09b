"""The two small programs that lie beside a job script and leave its record: text only.

Ranks note what they were given, and the end of each run is noted and judged, by plain sh: nothing of Argosy is needed
on the node.  A script that was only kept has no record, and does without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from argosy.core.shell import quote, read_shell

DATA = Path(__file__).with_name("data")
RANK_FILE = "rank.sh"
END_FILE = "end.sh"

CORES = "@CORES@"
"""Where the end's program has the cores of the plan."""

PLACE = "@PLACE@"
"""Where the rank's program says in what it looked for a program."""


def rank_file(record: str) -> str:
    """Give the file by which each rank notes what it was given; empty where nothing is noted."""
    return f"{record}/{RANK_FILE}" if record else ""


def well_file(record: str) -> str:
    """Give the common beginning of the files that an elastic run leaves, one for each node on which it ended well."""
    return f"{record}/well" if record else ""


def render_well(record: str, least_nodes: int) -> Iterator[str]:
    """Render the end of an elastic run: it was good if it ended well on as many nodes as it needs."""
    yield f"judge_elastic_run {quote(well_file(record))} {least_nodes}"


def render_end_call(record: str) -> str:
    """Render the line of a job script that notes the end of a run, where its record is still there."""
    return f"note_end {quote(f'{record}/{END_FILE}')}"


def render_rank(image: str) -> str:
    """Give the program that notes what a rank was given, and refuses a program that is not there.

    Parameters
    ----------
    image
        Its path; empty without a container.
    """
    place = f"in the container of {image}" if image else "on this node"
    return read_shell(DATA / RANK_FILE).replace(PLACE, quote(place)) + "\n"


def render_end(cores: tuple[str, ...]) -> str:
    """Give the program of a run's end.

    Parameters
    ----------
    cores
        The cores that each local rank is bound to, as range lists; empty where ranks are not bound.
    """
    return (DATA / END_FILE).read_text(encoding="utf-8").replace(CORES, " ".join(cores))
