"""Parse text, TOML and requirement lines of other tools' files, and find the line of each value.

Rules of pip's "Requirements File Format": a backslash at the end continues a line, ``#`` after white space begins a
comment, ``${NAME}`` in capitals is an environment variable.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from packaging.markers import InvalidMarker, Marker

from argosy.core.errors import UsageError
from argosy.recipes.recipe import Where, bad_line

Finder = Callable[[str], Where]
"""Returns the position of a text in a file."""


def finder(text: str, file: str) -> Finder:
    """Return a function that finds the first line that contains a text; line 1 if there is none."""
    lines = text.splitlines()

    def where(part: str) -> Where:
        return Where(file, next((number for number, line in enumerate(lines, 1) if part in line), 1))

    return where


def shaped(data: Any, shape: Any, file: str, *, hint: str = "lock again with its own tool") -> Any:
    """Check the types of the keys of a file, and return its data."""
    try:
        return msgspec.convert(data, shape)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"{file} has an unknown structure", evidence=str(error), hint=hint) from error


def checked_marker(text: str, where: Where, line: str = "") -> str:
    """Return an environment marker in its normal form; an empty one is empty.

    One that compares with ``===`` is an error: pip accepts it, and uv does not (uv 0.13).

    Parameters
    ----------
    line
        The line that contains it, for the message.
    """
    try:
        marker = str(Marker(text)) if text.strip() else ""
    except InvalidMarker as error:
        raise bad_line("invalid environment marker", where, line or text) from error
    if (meant := _ARBITRARY.sub(lambda found: found[1] or "==", marker)) != marker:
        raise bad_line("invalid environment marker: it compares with '==='", where, line or text, hint=f"write {meant}")
    return marker


_ARBITRARY = re.compile(r"""("[^"]*"|'[^']*')|===""")
"""A quoted value, or the operator."""


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
    """Decode a file: by its byte order mark (PowerShell's ``>`` writes UTF-16), its coding line, else as UTF-8."""
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
        raise UsageError(f"{file} is not text", evidence=f"{file}:{line}: {error}", hint="save it in UTF-8") from error
    except (LookupError, TypeError, ValueError) as error:
        raise UsageError(
            f"{file} declares an unknown encoding", evidence=f"{file}:1: {encoding}", hint="save it in UTF-8"
        ) from error


def is_utf8(text: str) -> bool:
    """Return whether a file name is valid UTF-8."""
    return not re.search("[\ud800-\udfff]", text)


def parse_lines(text: str, file: str, *, first: int) -> Iterator[tuple[Where, str]]:
    """Yield the logical lines that are not empty, with continued lines joined and comments removed."""
    held: list[str] = []
    start = first
    for number, line in enumerate(_ENDS.split(text), first):
        if not held:
            start = number
        comment = line.lstrip().startswith("#")
        if line.endswith("\\") and not comment:
            held.append(line.rstrip("\\"))
            continue
        # A comment line ends a continued line; the blank keeps it a comment after joining.
        held.append(f" {line}" if comment else line)
        yield from _finish(held, Where(file, start))
        held = []
    yield from _finish(held, Where(file, start))


def _finish(held: list[str], where: Where) -> Iterator[tuple[Where, str]]:
    if line := _COMMENT.sub("", "".join(held)).strip():
        yield where, line


def expand(line: str, where: Where, environment: Mapping[str, str]) -> str:
    """Expand environment variables in a line."""

    def value(found: re.Match[str]) -> str:
        if not (text := environment.get(found[1], "")):
            raise bad_line(f"the variable {found[1]} is not set", where, line, hint=f"export {found[1]}=…")
        return text

    expanded = _VARIABLE.sub(value, line)
    if _CONTROL.search(expanded) or "\n" in expanded:
        raise bad_line("the line contains a control character", where, repr(line))
    return expanded
