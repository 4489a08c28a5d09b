"""Read the pages of the documentation, and run their console blocks; it knows nothing of what the commands mean.

A page is run from top to bottom in a folder of its own:

=====================  =============================================================================================
```console             each ``$ command`` is run here, and what it prints is compared
```console lab         likewise, on the login node of the lab's Slurm cluster
```console lab soak    likewise, where time is (``make soak``)
```LANGUAGE file=NAME  is written to that file first
``<!-- needs: … -->``  what lies in the folder before the first command: ``digits.sif``, ``examples``, …
=====================  =============================================================================================

A line that is ``…`` stands for any lines, ``…`` within a line for any text; times, sizes and digests may differ.  A
command that fails must be followed by ``$ echo $?``.  Every other block is for reading only.

With ``ARGOSY_RECORD=1`` the whole outputs of such commands are stored in ``docs/outputs``, for the website.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tools.consoles import GAP, Command, agrees, neutral, read_commands

REPO = Path(__file__).parents[2]
SOAK = bool(os.environ.get("ARGOSY_SOAK"))
RECORD = bool(os.environ.get("ARGOSY_RECORD"))

FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: (?P<names>[^>]*) -->")


@dataclass(frozen=True, slots=True)
class Page:
    """What is to be done for one page."""

    path: Path
    needs: tuple[str, ...]
    files: tuple[tuple[str, str], ...]
    commands: tuple[Command, ...]


Said = tuple[int, str]
"""Exit code of a command, and what it printed, both streams as on a terminal."""

Run = Callable[[str], Said]


def read_page(path: Path) -> Page:
    """Read a page's blocks."""
    text = path.read_text()
    files: list[tuple[str, str]] = []
    commands: list[Command] = []
    for block in FENCE.finditer(text):
        kind, *more = block["info"].split()
        files += [(word.removeprefix("file="), block["body"]) for word in more if word.startswith("file=")]
        if kind == "console" and (SOAK or "soak" not in more):
            first = text.count("\n", 0, block.start("body")) + 1
            commands += read_commands(block["body"], first, lab="lab" in more)
    needs = tuple(name for found in NEEDS.finditer(text) for name in found["names"].split())
    return Page(path, needs, tuple(files), tuple(commands))


def run_page(page: Page, run: Run, lab: Run | None = None) -> list[tuple[str, str]]:
    """Run a page's commands in order and fail at the first that differs from the page.

    Return the commands whose output has gaps in the page, with their whole outputs.
    """
    before = 0
    whole: list[tuple[str, str]] = []
    for index, command in enumerate(page.commands):
        start = lab if command.lab else run
        assert start is not None
        code, text = start(f"(exit {before})\n{command.words}")
        place = f"{os.path.relpath(page.path, REPO)}:{command.line}: $ {command.words}"
        if not agrees(command.expected, text):
            pytest.fail(f"{place}\nprints something else (exit {code}):\n{_difference(command.expected, text)}")
        following = page.commands[index + 1].words if index + 1 < len(page.commands) else ""
        if code and following != "echo $?":
            pytest.fail(f"{place}\nends with code {code}, and the page does not say so:\n{text}")
        before = code
        if GAP in command.expected:
            whole.append((command.words, text))
    return whole


def _difference(expected: str, printed: str) -> str:
    page, program = neutral(expected).splitlines(), neutral(printed).splitlines()
    return "\n".join(difflib.unified_diff(page, program, "the page", "the program", lineterm=""))
