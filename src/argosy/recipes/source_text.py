"""Parse the text of other tools' files: find the line of each value, and recognise what a file is.

Rules of pip's "Requirements File Format": a backslash at the end continues a line, ``#`` after white space begins a
comment, ``${NAME}`` in capitals is an environment variable.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from packaging.markers import InvalidMarker, Marker

from argosy.core.errors import UsageError
from argosy.core.shell import quote
from argosy.recipes.recipe import PipLine, Where, bad_line

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


LISTS = (".txt", ".in")
"""Suffixes of lists of packages for pip."""

SPELLINGS: Mapping[str, Mapping[str, str]] = {
    ".txt": {".txt": ".txt", ".in": ".in", ".text": ".txt"},
    ".yml": {".yml": ".yml", ".yaml": ".yaml"},
    ".def": {".def": ".def"},
}
"""Suffix of a kind of file -> the suffixes that mean it, in lower case -> the one that Argosy reads."""

PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?[ \t]*([=<>~!]=?.*)?")
CONTENT = (
    (r"(?im)^[ \t]*bootstrap[ \t]*:", "a definition file", ".def"),
    (r"(?im)^[ \t]*from[ \t]+(?!\S+[ \t]+import\b)\S", "a Dockerfile", ""),  # not 'from torch import nn' of Python
    (r"(?m)^dependencies:", "a conda environment", ".yml"),
)
"""Regular expression of a text, what a file with this text seems to be, and the suffix of such files."""

_CONDA_BUILD = re.compile(
    r"/feedstock|/croot/|/tmp/build/80754af9/|/conda-bld/|/concourse/worker/|^/[A-Za-z]:/(?:ci|bld|b/abs_)"
)
"""Paths of the machines that build conda packages, which ``pip freeze`` prints for these packages."""


def suggest_by_content(text: str, path: str) -> str:
    """Return what a file with an unknown name seems to be, and what to do; empty if that is not clear."""
    if "\0" in text:
        return ""
    lines = [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]
    kind, action = _look_at_content(text, path)
    if not kind and lines and all(map(PACKAGE.fullmatch, lines)):
        kind, action = "a list of packages for pip", f"rename it to {quote(_renamed(path, '.txt'))}"
    return f"it looks like {kind}; {action}" if kind else ""


def _look_at_content(text: str, path: str) -> tuple[str, str]:
    """Return what a text seems to be, and what to do with its file; two empty texts if that is not clear."""
    kind, suffix = next(((kind, suffix) for pattern, kind, suffix in CONTENT if re.search(pattern, text)), ("", ""))
    if not kind:
        return "", ""
    return (
        kind,
        f"rename it to {quote(_renamed(path, suffix))}" if suffix else f"write: argosy build -f {quote(path)} .",
    )


def _renamed(path: str, suffix: str) -> str:
    """Return a name for a file that ends with a suffix of its kind, only once and in lower case."""
    own = Path(path).suffix
    stem = path.removesuffix(own)
    if known := SPELLINGS[suffix].get(own.lower()):
        return stem + known
    return _renamed(stem, suffix) if own.lower() in LISTS else path + suffix


@contextmanager
def recognising_content(text: str, path: str) -> Iterator[None]:
    """Add what a file that is not a list of packages seems to be to the error about its first invalid line."""
    try:
        yield
    except UsageError as error:
        kind, action = _look_at_content(text, path)
        if not kind:
            raise
        what = f"{path} is read as a list of packages for pip, but it looks like {kind}"
        raise UsageError(what, evidence=error.evidence, hint=action) from error


def suggest_for_path(package: PipLine) -> str:
    """Return the hint for a local package that does not exist."""
    if package.path.startswith(("'", '"')):
        return "remove the quotes: this file is not read by a shell"
    if re.match(r"(?:www\.)?(?:github|gitlab)\.[\w.]+/[\w.-]+/[\w.-]+", package.path):
        return f"write git+https://{package.path}"
    if _CONDA_BUILD.search(package.path):
        return "the path is from the machine that built the conda package; 'pip list --format freeze' prints versions"
    if package.name:
        return f"to install it from an index, write {package.name}==VERSION"
    return "paths are relative to the folder of this file or to the current folder"
