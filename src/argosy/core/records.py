"""Copy records with changes and convert them for JSON; records are `msgspec.Struct` classes.

Creating a class with `dataclasses` costs over a millisecond at each start, because its methods are compiled from text;
a launch needs sixty records. A struct costs a thirtieth of that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    # The type checker checks names and types of the new values only for this function, which does the same.
    from dataclasses import replace
else:
    from msgspec.structs import replace

__all__ = ["asdict", "replace", "to_plain"]


def asdict(record: msgspec.Struct) -> dict[str, Any]:
    """Convert a record and all records in it to dictionaries; other values are unchanged."""
    return {name: to_plain(getattr(record, name)) for name in record.__struct_fields__}


def to_plain(value: object) -> object:
    """Convert all records in a value to dictionaries; other values are unchanged."""
    match value:
        case msgspec.Struct():
            return asdict(value)
        case Mapping():
            return {key: to_plain(each) for key, each in value.items()}
        case tuple() | list():
            return type(value)(to_plain(each) for each in value)
    return value
