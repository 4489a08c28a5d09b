"""Read the keys of conda configuration files that concern channels and the network.

All other keys configure conda itself. Source: conda's "Using the .condarc conda configuration file".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.yaml_text import load_yaml
from argosy.recipes.recipe import Channel, bad_line

ALIAS = "https://conda.anaconda.org"
ANACONDA = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
"""The channels of ``defaults`` on Linux; rattler would look for a channel of that name (py-rattler 0.28)."""

PRIORITIES = {"strict": "Strict", "flexible": "Strict", "disabled": "Disabled", "true": "Strict", "false": "Disabled"}
"""conda's names of priorities -> rattler's names.

With ``flexible``, conda's default, a lower channel sometimes wins, which is not reproducible.
"""


class Condarc(msgspec.Struct, frozen=True):
    """The merged conda configuration of the user and the site.

    Attributes
    ----------
    alias
        Address to put before the name of a channel.
    custom
        Pairs of a channel's name and the address to put before it.
    defaults
        The channels of ``defaults``.
    channels
        Channels for environment files that list none.
    mirrors
        Other addresses of a channel, by its name or address.
    verify
        ``ssl_verify``: ``false``, or a file of certificates.
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
    """Read the configuration files in conda's order, those of the user last.

    Raises
    ------
    UsageError
        If a file is not valid YAML, or a key has the wrong type.
    """
    config = home / ".config" if not environment.get("XDG_CONFIG_HOME") else Path(environment["XDG_CONFIG_HOME"])
    paths = [Path("/etc/conda/.condarc"), config / "conda/.condarc", home / ".conda/.condarc", home / ".condarc"]
    paths += [home / ".mambarc", *([Path(environment["CONDARC"])] if environment.get("CONDARC") else [])]
    condarc = Condarc()
    for path in paths:
        if path.is_file():
            condarc = parse_condarc(path.read_text(errors="replace", encoding="utf-8"), str(path), condarc)
    return condarc


def parse_condarc(text: str, file: str, before: Condarc) -> Condarc:
    """Parse one file, whose values replace those of earlier files."""
    data = load_yaml(text, file) or {}
    if not isinstance(data, dict):
        raise UsageError(f"{file} is not a conda configuration", hint="it must be a mapping of keys to values")
    changes: dict[str, Any] = {
        attribute: convert(data[key], f"{file}: {key}")
        for key, attribute, convert in _KEYS
        if data.get(key) is not None
    }
    return replace(before, files=(*before.files, file), **changes)


def _text(value: Any, where: str) -> str:
    if isinstance(value, str | bool | int):
        return str(value).strip()
    raise UsageError(f"{where} must be a single value", hint="write one value, not a list or a mapping")


def _address(value: Any, where: str) -> str:
    return _text(value, where).rstrip("/")


def _list(value: Any, where: str) -> tuple[str, ...]:
    items = value if isinstance(value, list) else [value]
    return tuple(_address(item, where) for item in items)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} must be a mapping", hint="write NAME: ADDRESS, one per line")
    return {str(name): each for name, each in value.items()}


def _custom(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, _address(each, where)) for name, each in _table(value, where).items())


def _mirrors(value: Any, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((name, _list(each, where)) for name, each in _table(value, where).items())


def _priority(value: Any, where: str) -> str:
    name = _text(value, where).lower()
    if name not in PRIORITIES:
        raise UsageError(f"{where}: invalid priority '{name}'", hint="use strict, flexible or disabled")
    return PRIORITIES[name]


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
    """Return the addresses of channels in their order, without duplicates.

    ``defaults`` means the channels of the configuration, else those of Anaconda. ``nodefaults`` means no channel.

    Raises
    ------
    UsageError
        If a channel is neither a name nor an address, or an address contains a variable that is not set.
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
            f"invalid channel '{text}'", channel.where, channel.name, hint="use a name, a path or an http(s) address"
        )
    if text == "local":
        raise bad_line(
            "cannot use conda's channel 'local'", channel.where, channel.name, hint="write the folder's path"
        )
    return [channel_address(text, condarc, cwd)]


def channel_address(name: str, condarc: Condarc, cwd: Path) -> str:
    """Return the address of a channel that is given by name, path or address."""
    name = name.rstrip("/")
    if _URL.match(name):
        return name
    if _is_path(name):
        return f"file://{(cwd / parse_path(name)).resolve()}"
    first = name.partition("/")[0]
    return f"{dict(condarc.custom).get(name) or dict(condarc.custom).get(first) or condarc.alias}/{name}"


def _is_path(text: str) -> bool:
    return text.startswith(("/", "./", "../", "~/"))


def _expand(channel: Channel, environment: Mapping[str, str]) -> str:
    """Expand variables in an address, for example a token: ``https://host/t/$TOKEN/channel``."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in environment:
            raise UsageError(f"${name} is not set", evidence=f"{channel.where}: {channel.name}", hint=f"export {name}")
        return environment[name]

    return _VARIABLE.sub(value, channel.name.strip())
