"""Read what a conda configuration file says of channels and the network; it never writes one, and follows no more.

Source: conda's "Using the .condarc conda configuration file".  Of its many keys those are followed that decide where
packages come from; all others are about conda's own behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.yaml_text import load_yaml
from argosy.recipes.recipe import Channel, bad_line

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
    paths = [Path("/etc/conda/.condarc"), config / "conda/.condarc", home / ".conda/.condarc", home / ".condarc"]
    paths += [home / ".mambarc", *([Path(environment["CONDARC"])] if environment.get("CONDARC") else [])]
    condarc = Condarc()
    for place in paths:
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


FALLBACK = "conda-forge"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_URL = re.compile(r"(?:https?|file)://")
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*\Z")


def plan_channels(
    channels: Iterable[Channel], condarc: Condarc, *, environment: Mapping[str, str], cwd: Path
) -> tuple[str, ...]:
    """Give the addresses of channels in their order, each once.

    ``defaults`` is what the configuration says, else Anaconda's own; ``nodefaults`` stands for none.

    Raises
    ------
    UsageError
        For what is neither a name nor an address, and for a variable in an address that is not set.
    """
    addresses: list[str] = []
    for channel in channels:
        addresses += _addresses(channel, condarc, environment, cwd)
    return tuple(dict.fromkeys(addresses))


def _addresses(channel: Channel, condarc: Condarc, environment: Mapping[str, str], cwd: Path) -> list[str]:
    text = _expand(channel, environment)
    if text == "nodefaults":
        return []
    if text == "defaults":
        return [channel_address(each, condarc, cwd) for each in condarc.defaults]
    if not _URL.match(text) and not _is_path(text) and not _NAME.match(text):
        raise bad_line(
            f"'{text}' is no channel", channel.where, channel.name, hint="a name, a path or an http(s) address"
        )
    if text == "local":
        raise bad_line("conda's 'local' channel is a folder", channel.where, channel.name, hint="write its path")
    return [channel_address(text, condarc, cwd)]


def channel_address(name: str, condarc: Condarc, cwd: Path) -> str:
    """Give the address of one channel by name, path or address."""
    name = name.rstrip("/")
    if _URL.match(name):
        return name
    if _is_path(name):
        return f"file://{(cwd / Path(name).expanduser()).resolve()}"
    first = name.partition("/")[0]
    return f"{dict(condarc.custom).get(name) or dict(condarc.custom).get(first) or condarc.alias}/{name}"


def _is_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~/"))


def _expand(channel: Channel, environment: Mapping[str, str]) -> str:
    """Put variables into an address: tokens are given so (``https://host/t/$TOKEN/channel``)."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in environment:
            raise UsageError(f"${name} is not set", evidence=f"{channel.where}: {channel.name}", hint=f"export {name}")
        return environment[name]

    return _VARIABLE.sub(value, channel.name.strip())
