"""Recognise definition files and Dockerfiles, and find misspelt keywords in them.

The engine reads the file itself.  This module checks only the keywords of sections and instructions, so that a mistake
is reported with its line before anything is downloaded.

Files are split into lines as their engines do: pkg/build/types/parser/deffile.go of github.com/apptainer/apptainer, and
frontend/dockerfile/parser/parser.go of github.com/moby/buildkit, read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean


class Format(StrEnum):
    """The kind of a file that an engine builds."""

    DEFINITION = "definition file"
    DOCKERFILE = "Dockerfile"


SECTIONS: tuple[str, ...] = (
    *("setup", "pre", "files", "post", "environment", "test", "startscript", "runscript", "labels", "help"),
    *("arguments", "appinstall", "applabels", "appfiles", "appenv", "apptest", "apphelp", "apprun", "appstart"),
)
"""apptainer.org/docs/user/main/definition_files.html, read 2026-11."""

HEADS: tuple[str, ...] = (
    *("bootstrap", "from", "stage", "registry", "namespace", "includecmd", "mirrorurl", "updateurl", "osversion"),
    *("include", "library", "fingerprints", "authurl", "confurl", "setopt", "otherurl0", "otherurl1", "otherurl2"),
    *("product", "user", "regcode", "productpgp", "registerurl", "modules", "target", "frontend", "filename"),
    "buildargs",
)
"""Keywords of the header, from the same page, its appendix, and validHeaders in pkg/build/types/parser/deffile.go of
github.com/apptainer/apptainer, read 2026-11. ``OtherURL`` may have any number."""

INSTRUCTIONS: tuple[str, ...] = (
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER"),
    *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
)
"""docs.docker.com/reference/dockerfile, read 2026-11."""

FORMS = {
    "ADD": "ADD SOURCE... TARGET",
    "ARG": "ARG NAME or ARG NAME=VALUE",
    "COPY": "COPY SOURCE... TARGET",
    "ENV": "ENV NAME=VALUE, with quotes around a value with blanks",
    "EXPOSE": "EXPOSE PORT",
    "FROM": "FROM IMAGE or FROM IMAGE AS NAME, without a comment on the line",
    "HEALTHCHECK": "HEALTHCHECK CMD COMMAND or HEALTHCHECK NONE",
    "LABEL": "LABEL NAME=VALUE, with quotes around a value with blanks",
    "MAINTAINER": "MAINTAINER NAME",
    "ONBUILD": "ONBUILD and another instruction",
    "SHELL": 'the words as a list: SHELL ["/bin/bash", "-c"]',
    "STOPSIGNAL": "STOPSIGNAL NAME",
    "USER": "USER NAME",
    "VOLUME": "VOLUME FOLDER",
    "WORKDIR": "WORKDIR FOLDER",
}
"""The instructions that need arguments.

From frontend/dockerfile/instructions/parse.go of github.com/moby/buildkit, read 2026-11."""

_INDENTED = "apptainer reads every line that begins with % as a section, even if it is indented; change the line"
_BASE_LINE = {
    Format.DEFINITION: ("Bootstrap:", "begin it with the lines 'Bootstrap: docker' and 'From: IMAGE'"),
    Format.DOCKERFILE: ("FROM", "add the line FROM BASE"),
}
_MARK = "\ufeff"
_OTHER_URL = re.compile(r"\Aotherurl\d+\Z")
_PULLED = {"docker", "oras"}
"""Values of ``Bootstrap:`` whose image comes from a registry."""
_DOCKER_NAME = re.compile(
    r"(?!.*\.dockerignore\Z)(?:[Dd]ocker[Ff]ile|[Cc]ontainer[Ff]ile)\d*(?:[._-][\w.+-]+)?\Z"
    r"|.*\.(?:[Dd]ocker[Ff]ile|[Cc]ontainer[Ff]ile)\Z"
)
_DEFINITION_NAME = re.compile(
    r".*\.(?:def|singularity|apptainer)\Z|(?:Singularity|Apptainer)(?:[._-][\w.+-]+)?\Z|singularity\.[\w.-]+\Z"
)
_LIKE_A_DEFINITION = ("definition", "singularity", "apptainer")
"""Beginnings of names of files that are definition files if they begin with ``Bootstrap:``."""
_HEAD_BYTES = 8192


def definition_format(path: Path, dockerfile: str = "") -> Format | None:
    """Return the format of a file by its name, or None.

    A file whose name begins with ``definition``, or is otherwise unusual, must also begin with ``Bootstrap:``.

    A folder is a build context if it contains a Dockerfile, or if `dockerfile` (``-f``) is given.
    """
    if not path.is_dir() and (_DEFINITION_NAME.match(path.name) or _is_named_definition(path)):
        return Format.DEFINITION
    if _DOCKER_NAME.match(path.name) or (path.is_dir() and (dockerfile or dockerfile_in(path))):
        return Format.DOCKERFILE
    return None


def _is_named_definition(path: Path) -> bool:
    """Return whether a file with a name such as ``Definition.nbody`` or ``Singularity2`` is a definition file."""
    if not path.name.lower().startswith(_LIKE_A_DEFINITION) or not path.is_file():
        return False
    with path.open("rb") as file:
        lines = file.read(_HEAD_BYTES).decode("utf-8", errors="replace").split("\n")
    first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return first.partition(":")[0].strip().lower() == "bootstrap"


def dockerfile_in(folder: Path) -> Path | None:
    """Find the Dockerfile of a context."""
    names = ("Containerfile", "Dockerfile", "dockerfile")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def refuse_invalid_definition(path: Path, kind: Format) -> None:
    """Refuse a definition file or Dockerfile without a base, or with an unknown keyword or incomplete instruction."""
    text, is_definition = _read(path), kind is Format.DEFINITION
    if is_definition and text.startswith(_MARK):
        hint = f"remove it: tail -c +4 {quote(str(path))} > without-mark.def"
        raise UsageError(f"{path} begins with a byte order mark, which apptainer does not accept", hint=hint)
    rows = list(_definition_rows(text) if is_definition else _dockerfile_rows(text.removeprefix(_MARK)))
    for row in rows:
        _refuse_unknown_keyword(row, path, kind)
    needed, hint = _BASE_LINE[kind]
    first = next((i for i, row in enumerate(rows) if row.shown.lower() == needed.rstrip(":").lower()), None)
    if first is None:
        raise UsageError(f"{path} is not a {kind}", evidence=f"no line begins with {needed}", hint=hint)
    for i, row in enumerate(rows):
        if problem := _problem_of_section(row) if is_definition else _problem(row, above=i < first):
            raise UsageError(problem[0], evidence=f"{path}:{row.number}: {row.line}", hint=problem[1])


def _read(path: Path) -> str:
    """Read a file; docker and apptainer accept bytes of any other encoding, for example in comments."""
    with reading(path):
        data = path.read_bytes()
    if b"\0" in data:
        raise UsageError(f"{path} is not text in UTF-8", evidence="it contains zero bytes", hint="save it in UTF-8")
    return data.decode("utf-8", errors="replace")


def _refuse_unknown_keyword(row: SourceRow, path: Path, kind: Format) -> None:
    """Refuse an unknown section, header or instruction."""
    if kind is Format.DOCKERFILE:
        word, known = row.shown.upper(), INSTRUCTIONS
    elif row.header:
        word, known = _OTHER_URL.sub("otherurl0", row.shown.lower()), HEADS
    else:
        word, known = row.shown.removeprefix("%").lower(), SECTIONS
    if word in known or (row.header and not word):
        return
    otherwise = f"known: {', '.join(known)}"
    if known is SECTIONS:
        otherwise = f"{_INDENTED}; {otherwise}" if word else _INDENTED
    mark = "%" if row.shown.startswith("%") else ""
    raise UsageError(
        f"a {kind} has no {row.shown!r}" if word else f"{row.line.split()[0]!r} is not a section",
        evidence=f"{path}:{row.number}: {row.line}",
        hint=did_you_mean(word, known, otherwise, form=f"{mark}{{}}"),
    )


def _problem_of_section(row: SourceRow) -> tuple[str, str] | None:
    """Return what is wrong with a section or a line of a header, and a hint."""
    if row.header and not row.shown:
        return (
            "the definition file has an invalid line in its header",
            "write KEYWORD: VALUE there; commands belong below %post",
        )
    if row.shown.lower().startswith("%app") and not row.rest.strip():
        return f"{row.shown!r} does not name an app", f"write {row.shown} NAME"
    return None


def _problem(row: SourceRow, *, above: bool) -> tuple[str, str] | None:
    """Return what is wrong with an instruction, which may be above the first FROM, and a hint."""
    word = row.shown.upper()
    if row.open_end:
        hint = f"end it by a line with only {row.open_end}, without blanks before or after it"
        return f"the here-document {row.open_end!r} does not end", hint
    if above and word != "ARG":
        return f"{row.shown!r} stands before the first FROM", "only ARG may precede FROM"
    if word in FORMS and not _has_valid_arguments(row):
        return f"the arguments of {row.shown!r} are not valid", f"write {FORMS[word]}"
    return None


def base_images(path: Path) -> tuple[str, ...]:
    """Return the images of registries that a file names as bases, without its own stages."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if definition_format(path) is Format.DEFINITION:
        return tuple(_pulled_images(_definition_rows(text)))
    words = _from_words(text)
    stages = {each[-1].lower() for each in words if len(each) > 1} | {"scratch"}
    return tuple(each[0] for each in words if each[0].lower() not in stages)


def stage_names(path: Path) -> tuple[str, ...]:
    """Return the names of the stages of a Dockerfile."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return tuple(each[-1] for each in _from_words(text) if len(each) > 1)


def _from_words(text: str) -> list[list[str]]:
    """Return the words after each FROM: the image, and perhaps AS and the name of the stage."""
    rows = [row.rest.split() for row in _dockerfile_rows(text) if row.shown.upper() == "FROM"]
    return [words for words in rows if words]


def _pulled_images(rows: Iterator[SourceRow]) -> Iterator[str]:
    source = ""
    for row in rows:
        if row.header and row.shown.lower() == "bootstrap":
            source = row.rest.lower()
        if row.header and row.shown.lower() == "from" and source in _PULLED:
            yield row.rest


def first_heredoc(path: Path) -> SourceRow | None:
    """Return the first instruction of a Dockerfile with a here-document."""
    text = path.read_text(encoding="utf-8", errors="replace")
    return next((row for row in _dockerfile_rows(text) if _heredocs(row)), None)


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


def _definition_rows(text: str) -> Iterator[SourceRow]:
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


def _dockerfile_rows(text: str) -> Iterator[SourceRow]:
    escape = "`" if _BACKQUOTE.match(text) else "\\"
    lines = _split_lines(text)
    for number, line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        joined = _join(line, lines, escape).strip()
        word, *rest = _BLANK.split(joined, maxsplit=1)
        row = SourceRow(number, word, line.strip(), _FLAGS.sub("", "".join(rest), count=1))
        ends = (
            (end, any((text.lstrip("\t") if tabs else text) == end for _, text in lines))
            for tabs, end in _heredocs(row)
        )
        yield replace(row, open_end=next((end for end, found in ends if not found), ""))


def _heredocs(row: SourceRow) -> list[tuple[bool, str]]:
    """Return the here-documents of an instruction: whether tabs before the last line are removed, and that line."""
    word, rest = row.shown, row.rest
    if word.upper() == "ONBUILD":
        word, _, rest = rest.partition(" ")
    # Quotes without their end make docker find no words at all.
    if word.upper() not in {"RUN", "COPY", "ADD"} or "<<" not in rest or _is_json(rest) or _WORD.sub("", rest).strip():
        return []
    found = [match for each in _WORD.findall(rest) if (match := _HEREDOC.fullmatch(each))]
    return [(bool(match["tabs"]), _QUOTES.sub(r"\1", match["end"])) for match in found]


def _has_valid_arguments(row: SourceRow) -> bool:
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
