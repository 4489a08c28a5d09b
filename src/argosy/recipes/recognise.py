"""Recognise what a file is by its text, and say under which name Argosy reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.shell import quote
from argosy.recipes.recipe import PipLine

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
