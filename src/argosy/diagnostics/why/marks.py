"""Read the phrases that mark a line of a log: as an error, as its consequence, or as one of a program that went on."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

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
        """The marks of the kind as one regular expression, which is found in a line if one of them is."""
        table = read_marks()[self]
        # Python tests a common beginning once for all alternatives of a group: here, that a word begins.
        words = [mark.pattern for mark in table.marks if mark.pattern.startswith(r"\b")]
        others = [mark.pattern for mark in table.marks if not mark.pattern.startswith(r"\b")]
        groups = "|".join(f"(?:{'|'.join(each)})" for each in (words, others) if each)
        return re.compile(groups, re.IGNORECASE if table.ignore_case else 0)

    def matches(self, line: str) -> bool:
        """Return whether a line has a mark of the kind."""
        return self.pattern.search(line) is not None


@functools.cache
def read_marks() -> Mapping[LineKind, MarkTable]:
    """Read the marks of each kind of line."""
    return msgspec.convert(parse_toml(DATA.read_text(encoding="utf-8")), dict[LineKind, MarkTable])
