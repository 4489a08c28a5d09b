"""Say where in a TOML file something stands and what is wrong with it: line, key, nearest known key; it reads no file.

tomllib tells no positions, and msgspec only a path (``$.node.cores``): both are looked up in the text here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args, get_type_hints

import msgspec

from argosy.core.suggest import suggest_word

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
    "time": "a time without quotes",
}
"""msgspec's names of types -> what people write."""


class Fault(msgspec.Struct, frozen=True):
    """What a validator found in a TOML file.

    Attributes
    ----------
    line
        From 1; the table's own line where the key is not found.
    key
        The path of the key, dotted.
    what
        What is wrong, in words; empty for an unknown key.
    unknown
        The unknown key; empty for another fault.
    hint
        The nearest known key, or all that are known there.
    """

    line: int
    key: str
    what: str
    unknown: str = ""
    hint: str = ""


def find_fault(text: str, message: str, kind: type[msgspec.Struct], within: Sequence[str] = ()) -> Fault:
    """Turn msgspec's message on a file's text into its place and its reason.

    Parameters
    ----------
    kind
        The record of the whole file.
    within
        Path of the table that was validated alone: msgspec does not tell the name of a table among many.
    """
    where = re.search(r" - at `(?:key in )?\$\.?(.*?)`", message)
    keys = (*within, *re.findall(r"\.\.\.|[^.\[\]]+", where[1] if where else ""))
    shown = ".".join("KEY" if key == "..." else key for key in keys)
    unknown = re.search(r"unknown field `(.*?)`", message)
    if not unknown:
        return Fault(find_line(text, keys), shown, TYPES.sub(_in_words, message.split(" - at ", maxsplit=1)[0]))
    word = unknown[1]
    known = _field_names(kind, keys)
    near = suggest_word(word, known)
    hint = f"did you mean {near!r}?" if near else f"known here: {', '.join(known)}"
    return Fault(find_line(text, (*keys, word)), ".".join((*keys, word)), "", word, hint)


def _in_words(types: re.Match[str]) -> str:
    wanted = " or ".join(WORDS.get(word, word) for word in types[1].split(" | "))
    return f"{wanted} is wanted, and {WORDS.get(types[2], types[2])} is there"


def toml_line(message: str) -> str:
    """Give the line that tomllib's message names, as digits; empty where it names none."""
    line = re.search(r"line (\d+)", message)
    return line[1] if line else ""


def _field_names(kind: Any, keys: Sequence[str]) -> tuple[str, ...]:
    """Give the keys that a record knows at a place below it."""
    for key in keys:
        kind = get_type_hints(kind).get(key, str) if _is_struct(kind) else _inner(kind)
        if type(None) in get_args(kind):
            kind = _inner(kind)
    kind = kind if _is_struct(kind) else _inner(kind)
    return tuple(getattr(kind, "__struct_fields__", ()))


def _inner(kind: Any) -> Any:
    """Give the record within a list, a table or a union."""
    return next((each for each in get_args(kind) if _is_struct(each)), kind)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def find_line(text: str, keys: Sequence[str]) -> int:
    """Give the line, from 1, on which a key stands; the nearest table above it where it is not found.

    The files are flat enough for headers and ``key =`` to be looked for.
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
    """Count the leading keys that two paths share; ``...`` stands for any key of a table."""
    count = 0
    for mine, theirs in zip(place, keys, strict=False):
        if theirs not in {mine, "..."}:
            break
        count += 1
    return count
