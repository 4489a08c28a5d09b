"""The commands on files that a job runs before its program, each in its folder of the script; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from argosy.slurm.script_words import Part, Word, source_text

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
    number
        Line of the script.
    """

    line: str
    moves: tuple[str, ...] = ()
    number: int = 0


def made_again(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of ``mkdir`` with ``-p``: a script continues if the folder exists, and a job would stop."""
    options = [source_text(word) for word in words[1:]]
    if any(re.fullmatch(r"--parents|-[a-zA-Z]*p[a-zA-Z]*", each) for each in options):
        return words
    return (words[0], (Part("text", "-p"),), *words[1:])


def render_preparations(preparations: Sequence[Preparation], *, start: Sequence[str] | None, first: str) -> list[str]:
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
