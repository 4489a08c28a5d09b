"""The commands on files that a job runs before its program, each in its folder of the script; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

LAUNCHED = "${SLURM_SUBMIT_DIR}"
"""The folder of the launch, in a command of a job."""

ABSOLUTE = re.compile(r'cd(?: "(?:/|\$\{(?:SLURM_SUBMIT_DIR|HOME)\}).*)?')
"""A ``cd`` that has the same effect in every folder."""


class Preparation(msgspec.Struct, frozen=True):
    """A command on files.

    Attributes
    ----------
    moves
        The ``cd`` commands that lead to its folder from the first folder of the script.
    """

    line: str
    moves: tuple[str, ...] = ()


def render_preparations(
    preparations: Sequence[Preparation], *, start: Sequence[str] | None, first: str = ""
) -> list[str]:
    """Render ``before``, whose lines one shell runs: each line with the ``cd`` commands that its folder needs.

    Parameters
    ----------
    start
        The commands that lead to the folder where the job starts; None if the script was not there yet.
    first
        The first folder of the script; empty for that of the launch.
    """
    lines: list[str] = []
    for each in preparations:
        lines += [*_path(each.moves, start, first or LAUNCHED), each.line]
        start = each.moves
    return lines


def _path(moves: tuple[str, ...], here: Sequence[str] | None, first: str) -> Iterator[str]:
    """Yield the commands that lead from a folder to another one."""
    if here is not None and moves[: len(here)] == tuple(here):
        yield from moves[len(here) :]
        return
    if not (moves and ABSOLUTE.fullmatch(moves[0])):
        yield f'cd "{first}"'
    yield from moves
