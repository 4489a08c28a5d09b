"""Read numbers, JSON, TOML and YAML that people and other programs wrote, so that every fault is one kind of error.

The parsers of the standard library raise other errors, too: `RecursionError` for deep nesting, and a plain `ValueError`
for numbers of more than 4300 digits.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from argosy.core.errors import UsageError

T = TypeVar("T")

MOST_DIGITS = 18
"""Longest number that is read; it fits into 64 bits."""

DIGEST, SHA256 = re.compile(r"sha256:[0-9a-f]{64}\Z"), re.compile(r"[0-9a-f]{64}\Z")

TOO_DEEP = "it is nested too deeply"

MOST_CORES = 1 << 16
"""Core numbers are below this, so that a damaged text cannot fill the memory."""

MOST_LEVELS = 1_000
"""libyaml recurses for each level; at about 30,000 levels it overflows the stack and the process crashes."""

_BRACKETS = re.compile(r"[\[{]|[\]}]")
_DASHES = re.compile(rf"(?m)^ *(?:[-?] +){{{MOST_LEVELS}}}")

RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9})(?::([1-9][0-9]{0,8}))?)?")


def parse_int(text: str, default: int = 0) -> int:
    """Return the whole number that a text contains; `default` for other texts and for numbers that are too long."""
    digits = text.strip()
    # str.isdigit accepts characters such as '²', which int refuses.
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= MOST_DIGITS else default


def parse_path(text: str) -> Path:
    """Return the path that a user typed: ``~`` and ``~USER`` at its beginning are a home folder.

    ``./~x``, and ``~x`` if there is no user x, are files.
    """
    path = Path(text)
    try:
        return path.expanduser() if text.startswith("~") else path
    except RuntimeError:
        return path


def refuse_folder_name(text: str) -> None:
    """Refuse the path of a new file that ends in a slash, which means a folder.

    Raises
    ------
    UsageError
        The hint is to add the name of the file.
    """
    if text.endswith("/"):
        raise UsageError(f"{text} is the name of a folder", hint=f"add the name of the file: {text}NAME")


def parse_float(text: str) -> float | None:
    """Return the number that a text contains; None for other texts."""
    try:
        return float(text)
    except ValueError:
        return None


def parse_json(text: str | bytes) -> Any:
    """Parse JSON into plain values.

    Raises
    ------
    ValueError
        If it is not valid JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def read_json_object(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file; empty if the file is missing, damaged, or contains another value."""
    try:
        value = parse_json(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def decode_json(text: str | bytes, kind: type[T]) -> T:
    """Parse JSON into a record, or into another type that msgspec knows.

    Raises
    ------
    msgspec.DecodeError
        If it is not valid JSON, or has another shape.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError:
        raise msgspec.DecodeError(TOO_DEEP) from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error


class TomlError(tomllib.TOMLDecodeError):
    """TOML that Python cannot read although its syntax is valid."""

    def __init__(self, message: str) -> None:
        # Since Python 3.14, the base class wants the document and a position, too.
        ValueError.__init__(self, message)


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    tomllib.TOMLDecodeError
        If it is not valid TOML; a ValueError.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))  # the byte order mark of editors on Windows
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise TomlError(TOO_DEEP) from None
    except ValueError as error:
        raise TomlError(str(error)) from error


def load_yaml(text: str, file: str) -> Any:
    """Parse YAML into plain values.

    Raises
    ------
    UsageError
        If it is not valid YAML.
    """
    import yaml  # noqa: PLC0415 - it takes 10 ms, and a launch reads no YAML

    refuse_deep(text, file)
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(
            f"{file} is not valid YAML", evidence=" ".join(str(error).split())[:200], hint="correct the line"
        ) from error


def refuse_deep(text: str, file: str) -> None:
    """Raise `UsageError` for YAML that is nested too deeply for libyaml."""
    level = 0
    for bracket in _BRACKETS.finditer(text):
        level += 1 if bracket[0] in "[{" else -1
        if level > MOST_LEVELS:
            break
    if level > MOST_LEVELS or _DASHES.search(text):
        raise UsageError(
            f"{file} is nested too deeply",
            evidence=f"more than {MOST_LEVELS} levels",
            hint="check the indentation and the brackets",
        )


def scalar_text(value: Any) -> str:
    """Return the text of a scalar; empty for a list or a mapping, whose text may be huge because of aliases."""
    return "" if isinstance(value, list | dict) else str(value)


def parse_range(text: str) -> range | None:
    """Return the cores of a single core or range, also with a stride: ``9``, ``1-7``, ``0-6:2``; None if not valid."""
    found = RANGE.fullmatch(text)
    if found is None:
        return None
    first, last = int(found[1]), int(found[2] or found[1])
    return range(first, last + 1, int(found[3] or 1)) if first <= last < MOST_CORES else None


def parse_cpulist(text: str) -> frozenset[int]:
    """Return the cores of a list such as ``1-7,9``; parts that are not ranges are ignored."""
    return frozenset(core for part in text.split(",") for core in parse_range(part) or ())


def render_cpulist(numbers: Iterable[int]) -> str:
    """Render numbers as ranges, for example ``0-3,7``."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)
