"""Find all invalid values and unknown keys of a profile, each with its line and a correction.

msgspec reports only the first invalid value of a file. So each value is converted by itself, and then each table
without its invalid values, which finds missing keys, and values that contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.parse import parse_int, parse_toml
from argosy.core.records import replace
from argosy.core.toml_lines import TomlFault, find_fault
from argosy.sites.profile import Site

Keys = tuple[str, ...]
"""Path of a value: the keys of its tables, and its number in a list."""

PLACE = re.compile(r" - at `\$(.*)`$", re.DOTALL)
STEP = re.compile(r"\.\.\.|[^.\[\]]+")
"""A step of msgspec's path ``$.modes[...].images[0]``; ``...`` is a key that the author of the file chose."""
OF_MSGSPEC = re.compile("Expected |Object |Invalid enum ")
MISSING = re.compile(r"missing required field `(.*)`")
EXPECTED = re.compile(r"Expected `(\w+)( \| null)?`(.*)", re.DOTALL)

ADVICE = re.compile(r"; (?=(?:write|use|keep|remove|did you mean) )")
"""Separates the two halves of a check's message: the mistake, and what to write instead."""

UNITS = {"_mb": "MB", "_gb": "GB", "_gbit": "Gbit/s", "_seconds": "seconds"}
"""End of the name of a key -> unit of its number."""
YES, NO = frozenset({"yes", "true", "on", "1"}), frozenset({"no", "false", "off", "0"})

WHY_NOT = {
    "launcher.default: 'ray' is not one of its values": "the ray launcher runs a program on the first node only, which "
    "is wrong for programs that do not use Ray; users choose it by --launcher ray, or launcher in their argosy.toml",
}
"""Invalid value -> why it is not allowed; instead of the list of values."""


class _Refusal(msgspec.Struct, frozen=True):
    """A message of msgspec, or of a record's own check, about the value or the table at `keys`."""

    keys: Keys
    message: str


def read_faults(path: Path) -> tuple[TomlFault, ...]:
    """Return all faults of a file, in the order of its lines; nothing for a file that is not TOML."""
    try:
        text = path.read_text(encoding="utf-8")
        table = parse_toml(text)
    except (OSError, ValueError):
        return ()
    found: dict[Keys, TomlFault] = {}
    for keys, piece in _values(table):
        refusal = _convert(keys, piece)
        if refusal and not MISSING.search(refusal.message):
            _add(found, refusal, text, table)
    for keys, part in _tables(table, frozenset(found)):
        for refusal in _refusals(keys, part):
            _add(found, refusal, text, table)
    return tuple(sorted(found.values(), key=lambda fault: fault.line))


def _refusals(keys: Keys, part: dict[str, Any]) -> Iterator[_Refusal]:
    """Yield why a table is refused: one invalid key after the other, each time without those before it."""
    part = dict(part)
    while refusal := _convert(keys, _nest(keys, part)):
        guilty = next((key for key in part if _is_guilty(keys, part, key, refusal.message)), "")
        if not guilty:
            yield refusal
            return
        yield _Refusal((*keys, guilty), refusal.message)
        del part[guilty]


def _is_guilty(keys: Keys, part: dict[str, Any], key: str, message: str) -> bool:
    """Return whether a table without one of its keys is no longer refused with the same message."""
    other = _convert(keys, _nest(keys, {name: value for name, value in part.items() if name != key}))
    return other is None or not (other.message == message or MISSING.search(other.message))


def _nest(keys: Keys, part: Any) -> Any:
    """Return a profile that contains nothing else than this part of it; its lists have one element."""
    for key in reversed(keys):
        part = [part] if key.isdecimal() else {key: part}
    return part


def _values(data: Any, keys: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield each value with its path, in tables and lists that contain nothing else."""
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from ((place, {key: piece}) for place, piece in _values(value, (*keys, key)))
    elif isinstance(data, list) and data:
        for number, value in enumerate(data):
            yield from ((place, [piece]) for place, piece in _values(value, (*keys, str(number))))
    else:
        yield keys, data


def _tables(table: dict[str, Any], invalid: frozenset[Keys]) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """Yield each table of a profile with its path, without its invalid values; ``[[bases]]`` of a table separately."""
    for name, value in table.items():
        if (name,) in invalid:
            continue
        if isinstance(value, list):
            yield from _rows((name,), value, invalid)
        elif isinstance(value, dict):
            inner = [key for key, rows in value.items() if isinstance(rows, list) and any(map(_is_table, rows))]
            yield (name,), _without(value, invalid | {(name, key) for key in inner}, (name,))
            for key in inner:
                yield from _rows((name, key), value[key], invalid)


def _rows(keys: Keys, rows: list[Any], invalid: frozenset[Keys]) -> Iterator[tuple[Keys, dict[str, Any]]]:
    """Yield the tables of a list with their paths, without their invalid values."""
    for number, row in enumerate(rows):
        place = (*keys, str(number))
        if _is_table(row) and not invalid.intersection((keys, place)):
            yield place, _without(row, invalid, place)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _without(data: Any, invalid: frozenset[Keys], keys: Keys) -> Any:
    """Return a value without the invalid values inside."""
    if isinstance(data, dict):
        inside: Any = data.items()
    elif isinstance(data, list):
        inside = enumerate(data)
    else:
        return data
    kept = {key: (*keys, str(key)) for key, _ in inside if (*keys, str(key)) not in invalid}
    values = {key: _without(data[key], invalid, place) for key, place in kept.items()}
    return values if isinstance(data, dict) else list(values.values())


def _convert(keys: Keys, piece: Any) -> _Refusal | None:
    """Convert a piece of a profile, and return why that fails; `keys` is the path of the piece in the profile.

    The path in msgspec's message has as many steps, or fewer; but all of its numbers are 0, because the lists of a
    piece have one element.
    """
    try:
        msgspec.convert(piece, Site)
    except msgspec.ValidationError as error:
        text = str(error)
        message, place = PLACE.sub("", text), PLACE.search(text)
        steps = len(STEP.findall(place[1])) if place else 0
        # The message of a record's own check has the path of its table; the value is the only one there.
        return _Refusal(keys[:steps] if OF_MSGSPEC.match(message) else keys, message)
    return None


def _add(found: dict[Keys, TomlFault], refusal: _Refusal, text: str, table: dict[str, Any]) -> None:
    """Add the fault that a refusal describes, unless its key has one."""
    keys, message = refusal.keys, refusal.message
    fault = find_fault(text, message, Site, keys)
    key = keys[-1] if keys else ""
    if fault.unknown:
        keys = (*keys, fault.unknown)
    elif missing := MISSING.search(message):
        fault = replace(fault, what=f"it has no {missing[1]}", hint=f"add {missing[1]} = …")
        keys = (*keys, missing[1])
    elif expected := EXPECTED.match(message):
        value, limit = _value_at(table, keys), expected[3]
        if limit.startswith(" >"):
            fault = replace(fault, what=f"{value} is not{limit}", hint=f"write a number{limit}")
        else:
            fault = replace(fault, hint=_correct_type(expected[1], key, value))
    elif why_not := WHY_NOT.get(f"{fault.key}: {fault.what}"):
        fault = replace(fault, hint=why_not)
    elif not fault.hint:
        what, hint = [*ADVICE.split(fault.what), ""][:2]
        fault = replace(fault, what=what, hint=hint)
    found.setdefault(keys, fault)


def _value_at(table: dict[str, Any], keys: Keys) -> Any:
    value: Any = table
    for key in keys:
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _correct_type(expected: str, key: str, value: Any) -> str:
    """Return how to write a value of the wrong type; `expected` is the name that msgspec has for the right one."""
    name = "" if key.isdecimal() else f"{key} = "
    match expected:
        case "int" | "float":
            return f"write {name}{_as_number(key, value)}"
        case "bool":
            plain = str(value).strip().lower()
            meant = "true" if plain in YES else "false" if plain in NO else "true or false"
            return f"write {name}{meant}, without quotes"
        case "str":
            return f"write {name}{_in_quotes(value)}"
        case "array":
            if isinstance(value, dict):
                return f"write [[{key}]] instead of [{key}]"
            return f"write {name}[{_in_quotes(value) if isinstance(value, str) else value}]"
        case _:
            return _as_table(key, value)


def _as_number(key: str, value: Any) -> str:
    """Return the number that a value contains, or an example."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str) and (number := parse_int(value, -1)) >= 0:
        return f"{number}, without quotes"
    unit = next((f"in {unit}, " for end, unit in UNITS.items() if key.endswith(end)), "")
    return f"NUMBER, {unit}without quotes and without a unit"


def _in_quotes(value: Any) -> str:
    if isinstance(value, list | dict):
        return '"…", one text in quotes'
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f'"{shown}"'


def _as_table(key: str, value: Any) -> str:
    if isinstance(value, list):
        return f"write [{f'{key}.NAME' if key == 'modes' else key}] instead of [[{key}]]"
    if key == "when":
        return 'write when = { nodes = "> 1" }, a table of conditions'
    if key.isdecimal():
        return "write a table for each: [[…]], and its keys below"
    return f'write a table: {key} = {{ KEY = "…" }}, or [{key}] and its keys below'
