"""One option of the command line as a row: the record, the groups of the help, and readers of a table of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from argosy.core.errors import UsageError
from argosy.core.suggest import did_you_mean

PROJECT_FILE = "argosy.toml"
"""Name of the project file; here because reading it loads more than most commands need."""

OneOrMore = str | tuple[str, ...]

SHAPE, SLURM, CONTAINER, OUTPUT, DEBUGGING = "Shape", "Slurm", "Container", "Output", "Debugging"
LAUNCHER, PACKAGES, BASE, IMAGE, NODE = "Launcher", "Packages", "Base", "Image", "Compute node"

GROUPS = (SHAPE, LAUNCHER, SLURM, CONTAINER, PACKAGES, BASE, IMAGE, NODE, OUTPUT, DEBUGGING)
"""The groups of options, in the order of the help."""


class Row(msgspec.Struct, frozen=True):
    """One option."""

    group: str
    """Heading in the help."""
    help: str
    """Help text."""
    metavar: str = ""
    """Name of the value in the help."""
    short: str = ""
    """Short form, for example ``-N``."""
    synonyms: tuple[str, ...] = ()
    """Names that Slurm, Apptainer or torchrun use for the option; the command line accepts them."""
    record: Literal["shape", "slurm", "request", "container", "engine", "call"] = "request"
    """Record of the request that takes the value: ``shape``, ``slurm``, ``request``, ``container``, ``engine``, or
    ``call`` if the value is an argument of the verb itself."""
    field: str = ""
    """Field of that record; empty: the option's own name."""
    toml: bool = True
    """Whether ``argosy.toml`` has a key of this name."""
    choices: tuple[str, ...] = ()
    """Values that are accepted; empty: any."""
    bare: str | int = ""
    """Value if the option is given without one."""
    path: bool = False
    """Whether the value is a path: it is resolved against the current folder."""
    kind: Literal["", "site", "time", "file", "folder"] = ""
    """Meaning of the value beyond its type: the command line completes and checks it."""
    config: bool = False
    """Whether the configuration files and an environment variable can set a default (`argosy.recipes.user_config`).

    Only for options that are texts: a configured value is not converted."""


def rows(table: Any) -> dict[str, Row]:
    """Return the rows of a table of options: name -> row, in the table's order."""
    found = {name: getattr(kind, "__metadata__", (None,))[0] for name, kind in table.__annotations__.items()}
    return {name: row for name, row in found.items() if isinstance(row, Row)}


def types(table: Any) -> dict[str, Any]:
    """Return the plain types of a table's fields: name -> type without its row."""
    annotations: dict[str, Any] = table.__annotations__
    return {name: kind.__origin__ if hasattr(kind, "__metadata__") else kind for name, kind in annotations.items()}


def is_list(kind: Any) -> bool:
    """Return whether an option of this type may be repeated."""
    return kind == OneOrMore or getattr(kind, "__origin__", None) in {tuple, Mapping}


def toml_fields(table: Any) -> list[tuple[str, Any, Any]]:
    """Return the fields of the ``argosy.toml`` table that holds these options: name, type and default."""
    named = rows(table)
    return [
        (name, kind, _default(kind)) for name, kind in types(table).items() if name not in named or named[name].toml
    ]


def _default(kind: Any) -> Any:
    if is_list(kind):
        return msgspec.field(default_factory=dict) if getattr(kind, "__origin__", None) is Mapping else ()
    return {int: 0, bool: False, int | bool: 0}.get(kind, "")


def plain_values(values: Mapping[str, Any], table: Any) -> dict[str, Any]:
    """Return values of options in one form: lists as tuples, variables as ``NAME=VALUE``, true as the bare value.

    Keys that are not options of the table are returned unchanged.
    """
    named, kinds = rows(table), types(table)
    refuse_other_choices(values, named)
    return {name: _plain(value, named[name], kinds[name]) if name in named else value for name, value in values.items()}


def _plain(value: Any, row: Row, kind: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(f"{name}={text}" for name, text in value.items())
    if is_list(kind):
        return (value,) if isinstance(value, str) else tuple(value)
    return row.bare if value is True and row.bare else value


def refuse_other_choices(
    values: Mapping[str, Any], named: Mapping[str, Row], where: Callable[[str], str] | None = None
) -> None:
    """Refuse values that are not among the choices of their option.

    Parameters
    ----------
    where
        Returns the origin of the value of an option for the error, for example file and line.
    """
    for name, value in values.items():
        choices = named[name].choices if name in named else ()
        if choices and value and value not in choices:
            written = [f"{where(name)}: {name} = {value}"] if where else []
            raise UsageError(
                f"invalid {name} {value!r}",
                evidence="\n".join((*written, f"known: {', '.join(choices)}")),
                hint=did_you_mean(str(value), choices, "choose one of them"),
            )


def option_name(name: str) -> str:
    """Return the option of a field, for example ``--gpu-type`` for ``gpu_type``."""
    return f"--{name.replace('_', '-')}"


def option_names(named: Mapping[str, Row]) -> frozenset[str]:
    """Return every name that the command line accepts for these options, for example ``-f`` and ``--file``."""
    return frozenset(
        text for name, row in named.items() for text in (option_name(name), row.short, *row.synonyms) if text
    )
