"""Recognise definition files and Dockerfiles, and find misspelt keywords in them.

The engine reads the file itself.  This module checks only the keywords of sections and instructions, so that a mistake
is reported with its line before anything is downloaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.os_errors import reading
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean
from argosy.recipes.source_text import decode

SECTIONS = [
    "setup",
    "pre",
    "files",
    "post",
    "environment",
    "test",
    "startscript",
    "runscript",
    "labels",
    "help",
    "arguments",
    "appinstall",
    "applabels",
    "appfiles",
    "appenv",
    "apptest",
    "apphelp",
    "apprun",
    "appstart",
]
"""apptainer.org/docs/user/main/definition_files.html, read 2026-11."""

HEADS = [
    "bootstrap",
    "from",
    "stage",
    "registry",
    "namespace",
    "includecmd",
    "mirrorurl",
    "updateurl",
    "osversion",
    "include",
    "library",
    "fingerprints",
    "authurl",
    "confurl",
    "setopt",
    "otherurl0",
    "otherurl1",
    "otherurl2",
    "product",
    "user",
    "regcode",
    "productpgp",
    "registerurl",
    "modules",
    "target",
    "frontend",
    "filename",
    "buildargs",
]
"""Keywords of the header, from the same page, its appendix, and validHeaders in pkg/build/types/parser/deffile.go of
github.com/apptainer/apptainer, read 2026-11. ``OtherURL`` may have any number."""

INSTRUCTIONS = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
]
"""docs.docker.com/reference/dockerfile, read 2026-11."""

_SECTION = re.compile(r"(?P<indent>\s*)%(?P<name>\S*)")
_INDENTED = "apptainer reads every line that begins with % as a section, even if it is indented; change the line"
_MARKED = "\ufeff".encode()
_HEAD = re.compile(r"\s*([A-Za-z][A-Za-z0-9]*)\s*:")
_OTHER_URL = re.compile(r"\Aotherurl\d+\Z")
_BASE = re.compile(
    r"^\s*FROM(?::|\s)\s*(?:--\S+\s+)*(?P<name>\S+)(?:\s+AS\s+(?P<stage>\S+))?", re.IGNORECASE | re.MULTILINE
)
_BACKQUOTE = re.compile(r"(?i)(?:#\s*[a-z]+\s*=.*\n)*#\s*escape\s*=\s*`")
"""The directive of Dockerfiles for Windows. Other directives may precede it."""
_HEREDOC = re.compile(r"<<-?[\"']?([A-Za-z_][A-Za-z0-9_]*)[\"']?")
_DOCKER_NAME = re.compile(
    r"(?!.*\.dockerignore\Z)(?:[Dd]ockerfile|[Cc]ontainerfile)(?:[._-][\w.-]+)?\Z|.*\.(?:[Dd]ockerfile|[Cc]ontainerfile)\Z"
)
_DEFINITION_NAME = re.compile(
    r".*\.(?:def|singularity|apptainer)\Z|(?:Singularity|Apptainer)(?:[._-][\w.-]+)?\Z|singularity\.[\w.-]+\Z"
)


class Format(StrEnum):
    """The kind of a file that an engine builds."""

    DEFINITION = "definition file"
    DOCKERFILE = "Dockerfile"


def definition_format(path: Path, dockerfile: str = "") -> Format | None:
    """Return the format of a file by its name, or None; ``Definition.NAME`` must also begin with ``Bootstrap:``.

    A folder is a build context if it contains a Dockerfile, or if `dockerfile` (``-f``) is given.
    """
    if not path.is_dir() and (_DEFINITION_NAME.match(path.name) or _is_named_definition(path)):
        return Format.DEFINITION
    if _DOCKER_NAME.match(path.name) or (path.is_dir() and (dockerfile or dockerfile_in(path))):
        return Format.DOCKERFILE
    return None


def _is_named_definition(path: Path) -> bool:
    """Return whether a file with a name such as ``Definition.nbody`` is a definition file."""
    if not path.name.lower().startswith("definition") or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        first = next((line for line in lines if line.strip() and not line.lstrip().startswith("#")), "")
    return first.lower().lstrip().startswith("bootstrap:")


def dockerfile_in(folder: Path) -> Path | None:
    """Find the Dockerfile of a context."""
    names = ("Containerfile", "Dockerfile", "dockerfile")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def refuse_invalid_definition(path: Path, kind: Format) -> None:
    """Refuse a definition file or Dockerfile with an unknown keyword, or without a base.

    Raises
    ------
    UsageError
        If a keyword is unknown, with its line and the most similar keyword; or if the file cannot be read, or is
        empty.
    """
    with reading(path):
        data = path.read_bytes()
    text = decode(data, str(path))
    known, rows = (SECTIONS, _sections(text)) if kind is Format.DEFINITION else (INSTRUCTIONS, _instructions(text))
    if kind is Format.DEFINITION and data.startswith(_MARKED):
        hint = f"remove it: tail -c +4 {quote(str(path))} > without-mark.def"
        raise UsageError(f"{path} begins with a byte order mark, which apptainer does not accept", hint=hint)
    found = list(rows)
    for number, word, shown, keywords in found:
        if word not in (keywords or known):
            mark = "%" if shown.startswith("%") else ""
            otherwise = f"known: {', '.join(keywords or known)}" if word else _INDENTED
            raise UsageError(
                f"a {kind} has no {shown!r}" if word else f"{shown!r} is not a section",
                evidence=f"{path}:{number}: {text.splitlines()[number - 1].strip()}",
                hint=did_you_mean(word, keywords or known, otherwise, form=f"{mark}{{}}"),
            )
    needed = "Bootstrap:" if kind is Format.DEFINITION else "FROM"
    if not any(shown.lower() == needed.rstrip(":").lower() for _, _, shown, _ in found):
        raise UsageError(
            f"{path} is not a {kind}", evidence=f"no line begins with {needed}", hint=f"add the line {needed} BASE"
        )


def base_images(path: Path) -> tuple[str, ...]:
    """Return the images that the FROM lines of a file name, without its own stages."""
    rows = list(_BASE.finditer(path.read_text(encoding="utf-8", errors="replace")))
    stages = {(row["stage"] or "").lower() for row in rows} | {"scratch"}
    return tuple(row["name"] for row in rows if row["name"].lower() not in stages)


def has_heredoc(path: Path) -> bool:
    """Return whether a Dockerfile has a here-document: its end is a line of its own."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = {line.strip() for line in text.splitlines()}
    return any(end in lines for end in _HEREDOC.findall(text))


Row = tuple[int, str, str, list[str]]
"""Line number, normalised keyword, keyword as written, and the table of keywords if it is not the usual one."""


def _sections(text: str) -> Iterator[Row]:
    header = True
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SECTION.match(line):
            header = False
            yield number, "" if found["indent"] else found["name"].lower(), f"%{found['name']}", []
        elif key := _HEAD.match(line):
            # Each stage begins with a header.
            header = header or key[1].lower() == "bootstrap"
            if header:
                yield number, _OTHER_URL.sub("otherurl0", key[1].lower()), key[1], HEADS


def _instructions(text: str) -> Iterator[Row]:
    ends: list[str] = []
    continued = False
    escape = "`" if _BACKQUOTE.match(text) else "\\"
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if ends:
            ends = ends[1:] if stripped == ends[0] else ends
            continue
        if not stripped or stripped.startswith("#"):
            continue
        if not continued:
            word = stripped.split(maxsplit=1)[0]
            yield number, word.upper(), word, []
        ends = _HEREDOC.findall(line)
        continued = stripped.endswith(escape)
