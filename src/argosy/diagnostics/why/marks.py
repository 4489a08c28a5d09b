"""Read the phrases that mark a line of a log: as an error, as its consequence, or as one of a program that went on."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import parse_toml

DATA = Path(__file__).with_name("marks.toml")


class LogMark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A phrase that shows of which kind a line is, or a few phrases that belong together."""

    topic: str = ""
    """The program that prints the line, or what it is about; empty if many programs print it."""
    pattern: str
    """Regular expression, searched in the line."""
    example: str
    """A line as a program prints it. No other mark of its kind matches it."""


class MarkTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The marks of a kind of line."""

    says: str
    """The meaning of the lines of the kind, and what follows from it."""
    ignore_case: bool = False
    """Whether the patterns match in upper and lower case."""
    marks: tuple[LogMark, ...]


class LineKind(StrEnum):
    """A kind of line, as ``marks.toml`` describes it. A line may be of several kinds."""

    REPORTED = "reported"
    REFUSED = "refused"
    HARMLESS = "harmless"
    CONSEQUENCE = "consequence"
    ENDED = "ended"
    EXIT_ZERO = "exit-zero"
    HANDLED = "handled"
    WELL = "well"
    DONE = "done"
    REPORTED_WELL = "reported-well"
    BUILT = "built"
    STOPPED_BUILD = "stopped-build"
    CONFIGURED = "configured"
    CMAKE_TESTS = "cmake-tests"
    PROGRESS = "progress"
    PROMPT = "prompt"
    NO_STEP = "no-step"
    FAILURE_TALK = "failure-talk"
    FATAL = "fatal"
    INNER = "inner"
    OUTER = "outer"
    BOXED_ERROR = "boxed-error"
    HARMLESS_BOX = "harmless-box"

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        """The marks of the kind as one regular expression."""
        return compile_marks(self, read_marks()[self])

    def matches(self, line: str) -> bool:
        """Return whether a line has a mark of the kind."""
        return self.pattern.search(line) is not None


@functools.cache
def read_marks(file: Path = DATA) -> Mapping[LineKind, MarkTable]:
    """Read the marks of each kind of line.

    Raises
    ------
    UsageError
        When the file cannot be read or is invalid.
    """
    try:
        tables = parse_toml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise _unreadable(f"{file}: {error}") from error
    if other := set(tables) ^ set(LineKind):
        raise _unreadable(f"{file}: missing or unknown kinds of line: {', '.join(sorted(other))}")
    return {kind: _parse_table(kind, tables[kind]) for kind in LineKind}


def _parse_table(kind: LineKind, table: Any) -> MarkTable:
    """Return the marks of a kind. An error names the mark by its pattern, because its number is hard to find."""
    try:
        return msgspec.convert(table, MarkTable)
    except msgspec.ValidationError as error:
        at = re.search(r"\$\.marks\[(\d+)\]", str(error))
        mark = table["marks"][int(at[1])] if at else None
        name = f", the mark {mark['pattern']!r}" if isinstance(mark, dict) and "pattern" in mark else ""
        raise _unreadable(f"{kind}{name}: {error}") from error


def compile_marks(kind: str, table: MarkTable) -> re.Pattern[str]:
    """Return the marks of a kind as one regular expression, which is found in a line if one of them is.

    Raises
    ------
    UsageError
        When a pattern is not a regular expression.
    """
    flags = re.IGNORECASE if table.ignore_case else 0
    patterns = [mark.pattern for mark in table.marks]
    # Python tests a common beginning once for all alternatives of a group: here, that a word begins.
    words = [each for each in patterns if each.startswith(r"\b")]
    others = [each for each in patterns if not each.startswith(r"\b")]
    try:
        return re.compile("|".join(f"(?:{'|'.join(each)})" for each in (words, others) if each), flags)
    except re.error:
        _refuse_invalid(kind, patterns)
        raise


def _refuse_invalid(kind: str, patterns: list[str]) -> None:
    """Raise an error that names the pattern that is not a regular expression, or has a flag for the whole one."""
    for pattern in patterns:
        try:
            re.compile(f"(?:{pattern})")
        except re.error as error:
            raise _unreadable(f"{kind}, the mark {pattern!r}: not a regular expression: {error}") from error


def _unreadable(evidence: str) -> UsageError:
    return UsageError(
        "cannot read the marks of the lines of a log",
        evidence=evidence,
        hint="a kind of line needs says and marks, a mark needs pattern and example",
    )
