"""Read the phrases that mark lines of a log (``marks.toml``), and the meanings of exceptions (``exceptions.toml``).

A mark shows that a line is an error, the consequence of one, harmless, or a line of a program that went on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.parse import parse_toml

MARKS = Path(__file__).with_name("marks.toml")
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")


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
    return msgspec.convert(parse_toml(MARKS.read_text(encoding="utf-8")), dict[LineKind, MarkTable])


class Reason(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The meaning of an exception."""

    match: str
    """Regular expression for the whole text of the exception: its name without the module, and its message."""
    code: str = ""
    """Regular expression, searched in the user's line that raised it. Empty if any line fits."""
    package: str = ""
    """Regular expression, searched in the name of the package that raised it. Empty if any fits."""
    says: str
    """The meaning of the exception. ``{name}`` is the text of the named group of `match` or `code`."""
    often: tuple[str, ...] = ()
    """The usual reasons, the most frequent one first."""
    example: str
    example_code: str = ""
    """An exception, and the line that raises it."""


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of an exception and its usual reasons; both are empty if they are unknown."""

    says: str = ""
    often: tuple[str, ...] = ()


@functools.cache
def read_reasons() -> tuple[Reason, ...]:
    """Read the meanings of exceptions that Argosy ships."""
    return msgspec.convert(parse_toml(EXCEPTIONS.read_text(encoding="utf-8"))["reason"], tuple[Reason, ...])


def explain_exception(text: str, code: str, package: str) -> Meaning:
    """Return what an exception means.

    Parameters
    ----------
    text
        The exception without its module, for example ``KeyError: 'width'``.
    code
        The user's line that raised it, or called the package that did; empty if the log does not show it.
    package
        The package that raised it; empty for the user's code.
    """
    for reason in read_reasons():
        if (names := _match(reason, text, code, package)) is not None:
            return Meaning(_fill(reason.says, names), tuple(_fill(each, names) for each in reason.often))
    return Meaning()


def _match(reason: Reason, text: str, code: str, package: str) -> Mapping[str, str] | None:
    """Return the named groups of a reason that fits an exception; None if it does not fit."""
    said = re.fullmatch(reason.match, text)
    in_code = re.search(reason.code, code)
    if not said or not in_code or not re.search(reason.package, package):
        return None
    return said.groupdict("") | in_code.groupdict("")


def _fill(template: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", value)
    return template.removesuffix(": ")
