"""Render the shell functions of a job script; their text is in ``data``, the same in every script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

from argosy.core.shell import Helpers, ShellExpr, Word, choose_functions, load_helper, render_command, render_helpers

DATA = Path(__file__).with_name("data")
JOB, NODES = DATA / "job.sh", DATA / "nodes.sh"
"""Functions of the job script, and those that it passes to the nodes."""

FREE_PORT = load_helper(NODES, "free_port")
CHECK_NODE = load_helper(NODES, "check_node")
CHECK_CONTAINER = load_helper(NODES, "check_container")
OWN_FOLDERS = load_helper(NODES, "own_folders")
CREATE_STAGE = load_helper(NODES, "create_stage")

WIDTH = 99


def heading(text: str) -> str:
    """Render a comment that begins a part of the script."""
    return f"# --- {text} ---"


def render_script_functions(main: str) -> Iterator[str]:
    """Render the functions that the main part calls, and those that these call."""
    for text in choose_functions(JOB, main):
        yield text
        yield ""


def render_program(main: list[str], helpers: Helpers) -> Iterator[str]:
    """Render the main part, the functions that it needs, and the call at the end.

    Parameters
    ----------
    main
        Statements; further lines of one are indented already.
    """
    yield "main() {"
    yield from (f"    {statement}" if statement else "" for statement in main)
    yield "}"
    yield ""
    yield heading("Helpers: the same text in every script")
    yield ""
    yield from render_script_functions("\n".join(main))
    if helpers.definitions or helpers.texts:
        yield "# Slurm copies this file to the first node only, so functions for all nodes are passed as text:"
        yield '# sh -c "$argosy_helpers" NAME ARGUMENTS... calls the function NAME.'
        yield from render_helpers(helpers)
        yield ""
    yield "set -eu"
    yield "main"


STEP = "        "
SHELLS = ("sh", "/bin/sh", "/bin/bash")
STARTER = (ShellExpr("$argosy_start_ranks"),)
"""The program that starts the ranks of a node; three arguments and the command of the ranks follow."""


def render_call(words: tuple[Word, ...], program: str = "") -> str:
    """Render the command of a step over several lines: the runtime, each helper and the ranks on lines of their own.

    Parameters
    ----------
    program
        The program of the runtime.
    """
    starts = [
        place
        for place, word in enumerate(words)
        if (word in SHELLS and words[place + 1 : place + 2] == ("-c",))
        or words[place + 1 : place + 2] == ("-I",)
        or words[place - 4 : place - 3] == STARTER
        or (word == program and program and words[place - 2] != CHECK_NODE.name)
    ]
    bounds = sorted({0, *starts, len(words)})
    groups = [words[first:last] for first, last in pairwise(bounds)]
    return " \\\n".join(render_command(group, indent=STEP, width=WIDTH - 2) for group in groups)


def continued(pieces: Iterable[str]) -> str:
    """Render options of a step over as many lines as they need."""
    return f" \\\n{STEP}".join(packed(pieces, WIDTH - len(STEP) - 2))


def packed(words: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of arguments that are at most `width` characters wide."""
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    yield line
