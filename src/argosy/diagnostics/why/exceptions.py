"""Say what an exception of Python means, by its message and the line that raised it; pure."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from argosy.core.parse import parse_toml

DATA = Path(__file__).with_name("exceptions.toml")


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


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: tuple[Reason, ...]


class Meaning(msgspec.Struct, frozen=True):
    """The meaning of an exception and its usual reasons; both are empty if they are unknown."""

    says: str = ""
    often: tuple[str, ...] = ()


@functools.cache
def read_reasons() -> tuple[Reason, ...]:
    """Read the meanings of exceptions that Argosy ships."""
    return msgspec.convert(parse_toml(DATA.read_text(encoding="utf-8")), _File).reason


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
