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
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPO = Path(__file__).parents[2]
SOAK = bool(os.environ.get("ARGOSY_SOAK"))

FENCE = re.compile(r"^```(?P<info>[^\n`]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
NEEDS = re.compile(r"<!-- needs: (?P<names>[^>]*) -->")
PROGRESS = re.compile(r"^(packages {4}|(base|pack) {8})\S.*\n?", re.MULTILINE)
"""A line that a log gets where a step is silent for long: on a busy machine, and not on another."""
MEASURED = (
    (re.compile(r"\b\d+(\.\d+)? (bytes|[kMG]B)\b(?!/s)"), "N MB"),
    (re.compile(r"\b\d+(\.\d+)?(?= (s|seconds)\b)"), "N"),
    (re.compile(r"(?<=\(base )\d+, packages \d+, pack \d+(, clean up \d+)?"), "N"),
    (re.compile(r"(?<=loss )\d+\.\d+"), "N"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:N"),
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and what the page says that it prints."""

    words: str
    expected: str
    line: int
    lab: bool = False


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


def read_commands(body: str, first: int, *, lab: bool = False) -> Iterator[Command]:
    """Take a block apart at its prompts; a command that ends with a backslash goes on in the next line."""
    number, lines = first, body.splitlines()
    while lines:
        start, words = number, lines.pop(0)
        if not words.startswith("$ "):
            raise ValueError(f"line {start}: a console block begins with '$ ', not {words!r}")
        while words.endswith("\\") and lines:
            words += "\n" + lines.pop(0)
        expected: list[str] = []
        while lines and not lines[0].startswith("$ "):
            expected.append(lines.pop(0))
        number += words.count("\n") + 1 + len(expected)
        yield Command(words.removeprefix("$ "), "\n".join(expected), start, lab)


def neutral(text: str) -> str:
    """Give a text without what depends on the machine's speed: numbers that were measured, lines of progress."""
    text = PROGRESS.sub("", text)
    for pattern, letter in MEASURED:
        text = pattern.sub(letter, text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def agrees(expected: str, printed: str) -> bool:
    """Tell whether a command printed what the page says."""
    parts = ("(?:.*\n)*?" if line.strip() == "…" else _line(line) for line in neutral(expected).splitlines())
    return re.fullmatch("".join(parts), neutral(printed) + "\n" * bool(printed.strip("\n"))) is not None


def _line(expected: str) -> str:
    return ".*".join(map(re.escape, expected.split("…"))) + "\n"


def run_page(page: Page, run: Run, lab: Run | None = None) -> None:
    """Run a page's commands in order and fail at the first that does not do what the page says."""
    before = 0
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


def _difference(expected: str, printed: str) -> str:
    page, program = neutral(expected).splitlines(), neutral(printed).splitlines()
    return "\n".join(difflib.unified_diff(page, program, "the page", "the program", lineterm=""))
