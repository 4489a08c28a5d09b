"""Read what a conda configuration file says of channels and the network; it never writes one, and follows no more.

Source: conda's "Using the .condarc conda configuration file".  Of its many keys those are followed that decide where
packages come from; all others are about conda's own behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from argosy.errors import UsageError
from argosy.records import replace
from argosy.yaml_text import load_yaml

ALIAS = "https://conda.anaconda.org"
ANACONDA = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
"""What ``defaults`` stands for on Linux; rattler would look for a channel of that name (py-rattler 0.28)."""

PRIORITIES = {"strict": "Strict", "flexible": "Strict", "disabled": "Disabled", "true": "Strict", "false": "Disabled"}
"""conda's words and rattler's.  Flexible, conda's default, lets a lower channel win now and then: not reproducible."""


class Condarc(msgspec.Struct, frozen=True):
    """What a user's and a site's conda configuration say.

    Attributes
    ----------
    alias
        What stands before the name of a channel.
    custom
        Where single channels are, by name: the address before the name.
    defaults
        What ``defaults`` stands for.
    channels
        For environment files that name none.
    mirrors
        Other addresses of a channel, by its name or address.
    verify
        ``ssl_verify``: false, or a file of certificates.
    """

    alias: str = ALIAS
    custom: tuple[tuple[str, str], ...] = ()
    defaults: tuple[str, ...] = ANACONDA
    channels: tuple[str, ...] = ()
    mirrors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    priority: str = "Strict"
    verify: str = ""
    files: tuple[str, ...] = ()


def read_condarc(environment: Mapping[str, str], home: Path) -> Condarc:
    """Read the configuration files that conda would, those of the user last.

    Raises
    ------
    UsageError
        For a file that is no YAML, or a key of the wrong shape.
    """
    config = home / ".config" if not environment.get("XDG_CONFIG_HOME") else Path(environment["XDG_CONFIG_HOME"])
    places = [Path("/etc/conda/.condarc"), config / "conda/.condarc", home / ".conda/.condarc", home / ".condarc"]
    places += [home / ".mambarc", *([Path(environment["CONDARC"])] if environment.get("CONDARC") else [])]
    condarc = Condarc()
    for place in places:
        if place.is_file():
            condarc = parse_condarc(place.read_text(errors="replace", encoding="utf-8"), str(place), condarc)
    return condarc


def parse_condarc(text: str, file: str, before: Condarc) -> Condarc:
    """Parse one file over what the files before it said."""
    data = load_yaml(text, file) or {}
    if not isinstance(data, dict):
        raise UsageError(f"{file} is no conda configuration", hint="it maps words to values")
    changes: dict[str, Any] = {
        attribute: convert(data[key], f"{file}: {key}")
        for key, attribute, convert in _KEYS
        if data.get(key) is not None
    }
    return replace(before, files=(*before.files, file), **changes)


def _text(value: Any, where: str) -> str:
    if isinstance(value, str | bool | int):
        return str(value).strip()
    raise UsageError(f"{where} is no text", hint="write one value")


def _address(value: Any, where: str) -> str:
    return _text(value, where).rstrip("/")


def _list(value: Any, where: str) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(_address(item, where) for item in items)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is no table", hint="it maps names to addresses")
    return {str(name): each for name, each in value.items()}


def _custom(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, _address(each, where)) for name, each in _table(value, where).items())


def _mirrors(value: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, _list(each, where)) for name, each in _table(value, where).items())


def _priority(value: Any, where: str) -> str:
    word = _text(value, where).lower()
    if word not in PRIORITIES:
        raise UsageError(f"{where}: '{word}' is no priority", hint="strict, flexible or disabled")
    return PRIORITIES[word]


_KEYS = (
    ("channel_alias", "alias", _address),
    ("custom_channels", "custom", _custom),
    ("default_channels", "defaults", _list),
    ("channels", "channels", _list),
    ("mirrored_channels", "mirrors", _mirrors),
    ("channel_priority", "priority", _priority),
    ("ssl_verify", "verify", _text),
)
