"""Parse TOML, and find line, key and cause of an invalid value in its text.

tomllib reports no positions, and msgspec only a path (``$.node.cores``), so both are looked up in the text.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from enum import EnumType
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from argosy.core.errors import ArgosyError, UsageError
from argosy.core.parse import parse_toml
from argosy.core.suggest import did_you_mean

HEADER = re.compile(r"^\s*\[(\[?)\s*([^\]]+?)\s*\]")
PART = re.compile(r"""\s*"[^"]*"\s*|\s*'[^']*'\s*|[^.]+""")
KEY = re.compile(r"^\s*([A-Za-z0-9_-]+)\s*=")
TYPES = re.compile(r"Expected `([^`]+)`, got `([^`]+)`")
WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list in [ ]",
    "object": "a table",
    "date": "a date without quotes",
    "datetime": "a date and time without quotes",
    "time": "a time without quotes",
}
"""msgspec's names of types -> descriptions for users."""


class TomlFault(msgspec.Struct, frozen=True):
    """An invalid value or unknown key in a TOML file."""

    line: int
    """Line number from 1; the line of the table if the key is not found."""
    keys: tuple[str, ...]
    """The path of the key, whose parts may contain dots; ``...`` is any key."""
    what: str
    """Description of the fault; empty for an unknown key."""
    unknown: str = ""
    """The unknown key; empty for other faults."""
    hint: str = ""
    """The most similar known key or value, or all of them; empty for other faults."""

    @property
    def key(self) -> str:
        """The dotted path of the key, for people."""
        return ".".join("KEY" if key == "..." else key for key in self.keys)


def find_fault(text: str, message: str, kind: type[msgspec.Struct], within: Sequence[str] = ()) -> TomlFault:
    """Convert a message of msgspec to a `TomlFault` with position and cause.

    Parameters
    ----------
    text
        The contents of the file.
    kind
        The record type of the whole file.
    within
        Path of the table, if only that table was validated.
    """
    where = re.search(r" - at `(?:key in )?\$\.?(.*?)`", message)
    keys = (*within, *re.findall(r"\.\.\.|[^.\[\]]+", where[1] if where else ""))
    if types := TYPES.search(message):
        keys = next((path for path, value in _paths(parse_toml(text), keys) if _type_of(value) == types[2]), keys)
    if choice := re.search(r"Invalid enum value '?(.*?)'?(?: - at|$)", message):
        allowed = _values(_type_at(kind, keys))
        hint = did_you_mean(choice[1], allowed, f"use one of {', '.join(allowed)}", form="'{}'")
        return TomlFault(find_line(text, keys), keys, f"{choice[1]!r} is not one of its values", hint=hint)
    unknown = re.search(r"unknown field `(.*?)`", message)
    if not unknown:
        return TomlFault(find_line(text, keys), keys, TYPES.sub(_in_words, message.split(" - at ", maxsplit=1)[0]))
    word = unknown[1]
    known = _field_names(kind, keys)
    hint = did_you_mean(word, known, f"known here: {', '.join(known)}", form="'{}'")
    return TomlFault(find_line(text, (*keys, word)), (*keys, word), "", word, hint)


def _paths(data: Any, keys: Sequence[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the paths that match keys, of which ``...`` matches any, with their values."""
    if not keys:
        yield (), data
        return
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        if keys[0] in {"...", str(key)}:
            yield from (((str(key), *rest), found) for rest, found in _paths(value, keys[1:]))


def _type_of(value: Any) -> str:
    """Return msgspec's name of the type of a value."""
    name = type(value).__name__
    return {"dict": "object", "list": "array"}.get(name, name)


def _in_words(types: re.Match[str]) -> str:
    wanted = " or ".join(WORDS.get(word, word) for word in types[1].split(" | ") if word != "null")
    return f"expected {wanted}, found {WORDS.get(types[2], types[2])}"


def load_toml(
    text: str, file: str, *, hint: str = "correct the line", kind: type[ArgosyError] = UsageError
) -> dict[str, Any]:
    """Parse TOML that a user wrote.

    Parameters
    ----------
    file
        Name of the file, for errors.
    kind
        Type of the error.

    Raises
    ------
    ArgosyError
        If it is not valid TOML; the evidence has file and line.
    """
    try:
        return parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"line (\d+)", str(error))
        line = match[1] if match else text.count("\n") + 1
        lines = text.split("\n")
        if any(quote in lines[min(int(line), len(lines)) - 1] for quote in "\u201c\u201d\u201e\u2018\u2019"):
            hint = "replace the typographic quotes by straight ones"
        raise kind(f"{file} is not valid TOML", evidence=f"{file}:{line}: {error}", hint=hint) from error


def _field_names(kind: Any, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the known keys of the table at a path below a record type."""
    kind = _type_at(kind, keys)
    kind = kind if _is_struct(kind) else _inner(kind)
    return tuple(getattr(kind, "__struct_fields__", ()))


def _values(kind: Any) -> tuple[str, ...]:
    """Return the values that an enumeration or `Literal` allows, or that are the items of a list."""
    if get_origin(kind) in {tuple, list}:
        kind = get_args(kind)[0]
    return tuple(str(each) for each in (kind if isinstance(kind, EnumType) else get_args(kind)) if each != "")


def _type_at(kind: Any, keys: Sequence[str]) -> Any:
    """Return the type at a path below a record type."""
    for key in keys:
        kind = get_type_hints(kind).get(key, str) if _is_struct(kind) else _inner(kind)
        if type(None) in get_args(kind):
            kind = _inner(kind)
    return kind


def _inner(kind: Any) -> Any:
    """Return the record type inside a list, a mapping or a union."""
    return next((each for each in get_args(kind) if _is_struct(each)), kind)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def describe_ignored(path: Path, keys: Mapping[str, int]) -> str:
    """Return a note about keys of an administrators' file that are not used, with their lines; empty without keys.

    Such a file is for all installed versions of Argosy, and an older one must not fail at a key for a newer one.
    """
    shown = ", ".join(f"{key} (line {line})" for key, line in keys.items())
    return f"{path}: this version of Argosy does not know, and does not use: {shown}" if shown else ""


def find_line(text: str, keys: Sequence[str]) -> int:
    """Return the line number of a key, from 1; if it is not found, that of the closest table above it.

    The search looks for headers and ``key =`` only, which is enough for the flat files of Argosy.
    """
    counts: dict[str, int] = {}
    here: tuple[str, ...] = ()
    best, depth = 1, 0
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            name = header[2]
            here = tuple(part.strip("\"' ") for part in PART.findall(name))
            if header[1]:
                here = (*here, str(counts.get(name, 0)))
                counts[name] = counts.get(name, 0) + 1
            place = here
        elif key := KEY.match(line):
            place = (*here, key[1])
        else:
            continue
        common = _shared(place, keys)
        if common > depth and common in {len(place), len(keys)}:
            best, depth = number, common
    return best


def _shared(place: Sequence[str], keys: Sequence[str]) -> int:
    """Return the number of leading keys that two paths share; ``...`` matches any key."""
    count = 0
    for mine, theirs in zip(place, keys, strict=False):
        if theirs not in {mine, "..."}:
            break
        count += 1
    return count
