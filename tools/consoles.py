# noqa: INP001 - a program's part, not a package
"""Read the console blocks of a page, and compare or complete the outputs that the page shows.

In the expected output of a command, a line `…` matches any number of lines, and `…` within a line matches any text.
`tests/docs` runs the commands and compares. With `ARGOSY_RECORD=1` it also stores the whole outputs in `docs/outputs`,
from which `tools/site_hooks.py` fills the gaps in the website.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

REPO = Path(__file__).parents[1]
OUTPUTS = REPO / "docs/outputs"
GAP = "…"

PROGRESS = re.compile(r"^(packages {4}|(base|pack) {8})\S.*\n?", re.MULTILINE)
"""A line that a log gets if a step prints nothing for long: on a busy machine, and not on another."""
MEASURED = (
    (re.compile(r"\b\d+(\.\d+)? (bytes|[kMG]B)\b(?!/s)"), "N MB"),
    (re.compile(r"\b\d+(\.\d+)?(?= (s|seconds)\b)"), "N"),
    (re.compile(r"(?<=\(base )\d+, packages \d+, pack \d+(, clean up \d+)?"), "N"),
    (re.compile(r"(?<=loss )\d+\.\d+"), "N"),
    (re.compile(r"sha256:[0-9a-f]{64}"), "sha256:N"),
)
NUMBER = re.compile(r"\d+(?:\\\.\d+)?")
"""A number in text that `re.escape` has quoted."""

LINES_SHOWN, LINES_OF_CUT, WIDTH_SHOWN = 12, 8, 240
"""A gap of more lines than the first is cut to the second; a longer line is cut to the third, in characters."""

RECORDED_DAY = "2026-01-15"
"""The date in recorded outputs, instead of the date of the recording."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a page, and the output that the page shows for it."""

    words: str
    expected: str
    line: int
    lab: bool = False


def read_commands(body: str, first: int, *, lab: bool = False) -> Iterator[Command]:
    """Split the body of a console block at its prompts; a command that ends with a backslash continues."""
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


def without_progress(text: str) -> str:
    """Return a text without lines of progress, without empty lines at its ends, and without trailing spaces."""
    text = PROGRESS.sub("", text)
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def neutral(text: str) -> str:
    """Return a text without the parts that depend on the machine's speed: measured numbers, lines of progress."""
    text = without_progress(text)
    for pattern, letter in MEASURED:
        text = pattern.sub(letter, text)
    return text


def agrees(expected: str, printed: str) -> bool:
    """Tell whether a command printed the output that the page shows."""
    return _match(expected, printed) is not None


def _match(expected: str, printed: str) -> re.Match[str] | None:
    parts = (f"({_line(line)})" for line in neutral(expected).splitlines())
    return re.fullmatch("".join(parts), neutral(printed) + "\n" * bool(printed.strip("\n")))


def _line(expected: str) -> str:
    return "(?:.*\n)*?" if expected.strip() == GAP else ".*".join(map(re.escape, expected.split(GAP))) + "\n"


def complete(expected: str, printed: str) -> str | None:
    """Fill the gaps of an expected output from a recorded one; None if they do not agree.

    Long gaps are cut, and a line in brackets gives the number of lines that are left out.
    """
    match = _match(expected, printed)
    if match is None:
        return None
    recorded, shown = without_progress(printed).splitlines(), list[str]()
    start = 0
    for number, line in enumerate(without_progress(expected).splitlines(), 1):
        end = start + match[number].count("\n")
        shown += _cut(recorded[start:end]) if line.strip() == GAP else [_complete_line(line, recorded[start])]
        start = end
    return "\n".join(line if len(line) <= WIDTH_SHOWN else _cut_line(line) for line in shown)


def _complete_line(expected: str, recorded: str) -> str:
    """Fill the gaps of one line; the numbers that were measured remain those of the page."""
    parts = expected.split(GAP)
    pattern = "(.*)".join(NUMBER.sub(r"\\d+(?:\\.\\d+)?", re.escape(part)) for part in parts)
    found = re.fullmatch(pattern, recorded)
    if found is None:
        return recorded if len(parts) > 1 else expected
    return "".join(part + gap for part, gap in zip(parts, (*found.groups(), ""), strict=True))


def _cut(lines: Sequence[str]) -> list[str]:
    if len(lines) <= LINES_SHOWN:
        return list(lines)
    return [*lines[:LINES_OF_CUT], f"[{len(lines) - LINES_OF_CUT} more lines]"]


def _cut_line(line: str) -> str:
    start = line[:WIDTH_SHOWN].rpartition(" ")[0] or line[:WIDTH_SHOWN]
    return f"{start} [{len(line) - len(start)} more characters]"


def outputs_file(page: Path) -> Path:
    """Return the file with the recorded outputs of a page."""
    return (OUTPUTS / page.relative_to(REPO / "docs" if page.is_relative_to(REPO / "docs") else REPO)).with_suffix(
        ".json"
    )


def read_outputs(page: Path) -> list[tuple[str, str]]:
    """Return the recorded commands of a page with their outputs; empty if there is no record."""
    file = outputs_file(page)
    return [(words, text) for words, text in json.loads(file.read_text("utf-8"))] if file.exists() else []


def write_outputs(page: Path, outputs: Sequence[tuple[str, str]], places: Mapping[str, str]) -> None:
    """Store the outputs of a page's commands; `places` maps paths of this machine to those that readers see."""
    tidied = [(words, _tidy(text, places)) for words, text in outputs]
    file = outputs_file(page)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tidied, indent=1, ensure_ascii=False) + "\n", "utf-8")


def _tidy(text: str, places: Mapping[str, str]) -> str:
    for path in sorted(places, key=len, reverse=True):
        text = text.replace(path, places[path])
    now = datetime.now(UTC)
    days = "|".join(str((now + timedelta(days=days)).date()) for days in (-1, 0, 1))
    text = re.sub(rf"\b({days})([T ]\d\d:\d\d(:\d\d)?)", rf"{RECORDED_DAY}\g<2>", text)
    text = re.sub(rf"\b({RECORDED_DAY}[T ])\d\d:\d\d:\d\d(\.\d+)?", r"\g<1>12:00:00", text)
    text = re.sub(rf"\b({RECORDED_DAY}[T ])\d\d:\d\d\b(?!:)", r"\g<1>12:00", text)
    return re.sub(rf"\b({days})\b", RECORDED_DAY, text)


def complete_block(body: str, outputs: Sequence[tuple[str, str]]) -> str:
    """Fill the gaps in a console block from recorded outputs; a command without a matching record stays as it is."""
    shown: list[str] = []
    for command in read_commands(body, 1):
        expected: str | None = command.expected
        if GAP in command.expected:
            found = (complete(command.expected, text) for words, text in outputs if words == command.words)
            expected = next((text for text in found if text is not None), command.expected)
        shown += [f"$ {command.words}", expected] if expected else [f"$ {command.words}"]
    return "\n".join(shown) + "\n"
