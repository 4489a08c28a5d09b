"""Read TOML of other tools: its text, the lines of its words, the hashes it names; it opens no file."""

from __future__ import annotations

import codecs
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from packaging.markers import InvalidMarker, Marker

from argosy.core.errors import UsageError
from argosy.recipes.recipe import Where, bad_line

Finder = Callable[[str], Where]
"""Gives the line on which a text stands."""


def load_toml(text: str, file: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    UsageError
        When it is none.
    """
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML", evidence=f"{file}: {error}") from error


def finder(text: str, file: str) -> Finder:
    """Give what finds the line of a word."""
    lines = text.splitlines()

    def where(part: str) -> Where:
        return Where(file, next((number for number, line in enumerate(lines, 1) if part in line), 1))

    return where


def shaped(data: Any, shape: Any, file: str) -> Any:
    """Give what a lock holds once it is known to have a shape: of each key that is read, the type.

    Raises
    ------
    UsageError
        Naming the place that is otherwise.
    """
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, TypeError) as error:
        hint = "lock again with its own tool"
        raise UsageError(f"{file} is of a form that is not known", evidence=str(error), hint=hint) from error


def checked_marker(text: str, where: Where) -> str:
    """Give a marker in its usual form.

    Raises
    ------
    UsageError
        When it is none.
    """
    try:
        return str(Marker(text))
    except InvalidMarker as error:
        raise bad_line("this is no environment marker", where, text) from error


_COMMENT = re.compile(r"(?:^|\s+)#.*\Z")
_ENDS = re.compile(r"\r\n|\r|\n")
_VARIABLE = re.compile(r"\$\{([A-Z0-9_]+)\}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_CODING = re.compile(rb"\A(?:[^\n]*\n)?[ \t]*#[^\n]*?coding[:=][ \t]*([-\w.]+)")
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def decode(data: bytes, file: str) -> str:
    """Decode a file: by its byte order mark (PowerShell's ``>`` writes UTF-16), its coding line, else as UTF-8.

    Raises
    ------
    UsageError
        When the bytes are no text in that encoding.
    """
    encoding = "utf-8"
    if found := _CODING.match(data[:400]):
        encoding = found[1].decode("ascii", errors="replace")
    for mark, name in _MARKS:
        if data.startswith(mark):
            data, encoding = data[len(mark) :], name
            break
    try:
        return codecs.decode(data, encoding)
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(
            f"{file} is not text", evidence=f"{file}:{line}: {error}", hint="save it with the encoding UTF-8"
        ) from error
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(f"{file} names an encoding that is not known", evidence=f"{file}:1: {encoding}") from error


def is_utf8(text: str) -> bool:
    """Tell whether a name that the system gave can be written as text."""
    return not re.search("[\ud800-\udfff]", text)


def parse_lines(text: str, file: str, *, first: int) -> Iterator[tuple[Where, str]]:
    """Give the logical lines that are not empty: continued ones joined, comments taken off."""
    held: list[str] = []
    start = first
    for number, line in enumerate(_ENDS.split(text), first):
        if not held:
            start = number
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            held.append(line.rstrip("\\"))
            continue
        # A comment line ends what was continued; the blank keeps it a comment once it is joined.
        held.append(f" {line}" if comment else line)
        yield from _finish(held, Where(file, start))
        held = []
    yield from _finish(held, Where(file, start))


def _finish(held: list[str], where: Where) -> Iterator[tuple[Where, str]]:
    if line := _COMMENT.sub("", "".join(held)).strip():
        yield where, line


def expand(line: str, where: Where, environment: Mapping[str, str]) -> str:
    """Put in the variables of the environment.

    Raises
    ------
    UsageError
        When one is not set: pip would go on with the name in place of the value, and fail far from here.
    """

    def value(found: re.Match[str]) -> str:
        if not (text := environment.get(found[1], "")):
            raise bad_line(f"the variable {found[1]} is not set", where, line, hint=f"export {found[1]}=…")
        return text

    expanded = _VARIABLE.sub(value, line)
    if _CONTROL.search(expanded) or "\n" in expanded:
        raise bad_line("a control character stands in a line", where, repr(line))
    return expanded
