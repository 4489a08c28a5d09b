"""The lines of a requirements file as pip sees them; it never looks at what they say.

Rules of pip's "Requirements File Format": a backslash at the end continues a line, ``#`` after white space begins a
comment, ``${NAME}`` in capitals is a variable of the environment.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping

from argosy.core.errors import UsageError
from argosy.recipes.recipe import Where, bad_line

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
