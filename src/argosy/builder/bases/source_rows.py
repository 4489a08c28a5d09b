"""Split definition files and Dockerfiles into sections, header lines and instructions, as their engines do.

The rules are those of pkg/build/types/parser/deffile.go of github.com/apptainer/apptainer, and of
frontend/dockerfile/parser/parser.go of github.com/moby/buildkit, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from argosy.core.records import replace

Lines = Iterator[tuple[int, str]]
"""The lines of a file that are not read yet, with their numbers."""


class SourceRow(msgspec.Struct, frozen=True):
    """A section, a line of a header, or an instruction."""

    number: int
    """The line on which it begins."""
    shown: str
    """The keyword as written; a section begins with ``%``."""
    line: str
    """The line."""
    rest: str = ""
    """The text after the keyword, with continued lines joined."""
    open_end: str = ""
    """The last line of its here-document, if this line is missing."""
    header: bool = False
    """Whether it is a line of a header."""


_STAGE = re.compile(r"(?i)bootstrap:")
"""Begins a stage of a definition file. An indented line does not."""
_BACKQUOTE = re.compile(r"(?i)(?:[ \t]*#\s*(?:syntax|check)\s*=.*\n)*[ \t]*#\s*escape\s*=\s*`\s*$", re.MULTILINE)
"""The directive of Dockerfiles for Windows. Other directives may precede it."""
_BLANK = re.compile(r"[\t\v\f\r ]+")
_FLAGS = re.compile(r"(?:--\S+\s+)*")
_WORD = re.compile(r"""(?:[^\s"'\\]|\\.|"(?:[^"\\]|\\.)*"|'[^']*')+""")
_HEREDOC = re.compile(r"\d*<<(?P<tabs>-?)(?P<end>[^<]+)")
_QUOTES = re.compile(r"\\(.)|[\"']")


def _split_lines(text: str) -> Lines:
    """Split only at line feeds: both engines take a form feed and Unicode's line separators for text."""
    return enumerate((line.removesuffix("\r") for line in text.split("\n")), 1)


def definition_rows(text: str) -> Iterator[SourceRow]:
    """Yield the sections of a definition file and the lines of its headers.

    A section has an empty keyword if its line is indented, and a line of a header if it has no colon.
    """
    header, continued = True, False
    for number, line in _split_lines(text):
        if _STAGE.match(line):
            header, continued = True, False
        bare = line.strip()
        if bare.startswith("%"):
            header = False
            name = line.lstrip("%").split(" ")[0] if line.startswith("%") else ""
            yield SourceRow(number, f"%{name}", bare, line.lstrip("%").removeprefix(name))
        elif header and (not bare or bare.startswith("#")):
            continued = False
        elif header:
            key, colon, value = bare.split("#")[0].partition(":")
            if not continued:
                yield SourceRow(number, key.strip() if colon else "", bare, value.strip(), header=True)
            continued = bare.split("#")[0].rstrip().endswith("\\")


def dockerfile_rows(text: str) -> Iterator[SourceRow]:
    """Yield the instructions of a Dockerfile."""
    escape = "`" if _BACKQUOTE.match(text) else "\\"
    lines = _split_lines(text)
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined = _join(line, lines, escape).strip()
        word, *rest = _BLANK.split(joined, maxsplit=1)
        row = SourceRow(number, word, line.strip(), _FLAGS.sub("", "".join(rest), count=1))
        ends = (
            (end, any((text.lstrip("\t") if tabs else text) == end for _, text in lines)) for tabs, end in heredocs(row)
        )
        yield replace(row, open_end=next((end for end, found in ends if not found), ""))


def heredocs(row: SourceRow) -> list[tuple[bool, str]]:
    """Return the here-documents of an instruction: whether tabs before the last line are removed, and that line."""
    word, rest = row.shown, row.rest
    if word.upper() == "ONBUILD":
        word, _, rest = rest.partition(" ")
    # Quotes without their end make docker find no words at all.
    if word.upper() not in {"RUN", "COPY", "ADD"} or "<<" not in rest or _is_json(rest) or _WORD.sub("", rest).strip():
        return []
    found = [match for each in _WORD.findall(rest) if (match := _HEREDOC.fullmatch(each))]
    return [(bool(match["tabs"]), _QUOTES.sub(r"\1", match["end"])) for match in found]


def has_valid_arguments(row: SourceRow) -> bool:
    """Return whether an instruction has as many arguments as it needs, or a list in JSON if it needs that."""
    words = row.rest.split()
    match row.shown.upper():
        case "FROM":
            return len(words) == 1 or (len(words) == 3 and words[1].lower() == "as")  # noqa: PLR2004
        case "COPY" | "ADD":
            return len(words) > 1 or _is_json(row.rest)
        case "ENV" | "LABEL" if words and "=" in words[0]:
            return all("=" in word for word in _WORD.findall(row.rest)) or bool(_WORD.sub("", row.rest).strip())
        case "ENV" | "LABEL":
            return len(words) > 1
        case "SHELL":
            return _is_json(row.rest)
        case _:
            return bool(words)


def _is_json(text: str) -> bool:
    """Return whether the arguments of an instruction are a list in JSON."""
    try:
        msgspec.json.decode(text, type=list[str])
    except msgspec.DecodeError:
        return False
    return True


def _join(line: str, lines: Lines, escape: str) -> str:
    """Join a line with those that continue it; comments and empty lines between them do not count.

    Two backslashes at the end are one backslash and no continuation.
    """
    joined = ""
    while line.rstrip().endswith(escape) and not line.rstrip().endswith(escape * 2):
        joined += line.rstrip()[:-1]
        line = next((text for _, text in lines if text.strip() and not text.lstrip().startswith("#")), "")
    return joined + line
