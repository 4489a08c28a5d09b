"""Read TOML of other tools: its text, the lines of its words, the hashes it names; it opens no file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
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
