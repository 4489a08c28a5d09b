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
from argosy.core.parse import load_yaml, parse_path
from argosy.core.records import replace
from argosy.recipes.recipe import Channel, bad_line
from argosy.recipes.source_text import shaped

ALIAS = "https://conda.anaconda.org"
ANACONDA = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")
"""The channels of ``defaults`` on Linux; rattler would look for a channel of that name (py-rattler 0.28)."""

PRIORITIES = {"strict": "Strict", "flexible": "Strict", "disabled": "Disabled", "true": "Strict", "false": "Disabled"}
"""conda's names of priorities -> rattler's names.

With ``flexible``, conda's default, a lower channel sometimes wins, which is not reproducible.
"""


class Condarc(msgspec.Struct, frozen=True):
    """The merged conda configuration of the user and the site; the fields have conda's names."""

    channel_alias: str = ALIAS
    """Address to put before the name of a channel."""
    custom_channels: dict[str, str] = {}
    """Name of a channel -> the address to put before it."""
    default_channels: tuple[str, ...] = ANACONDA
    """The channels of ``defaults``."""
    channels: tuple[str, ...] = ()
    """Channels for environment files that list none."""
    mirrored_channels: dict[str, tuple[str, ...]] = {}
    """Other addresses of a channel, by its name or address."""
    channel_priority: bool | str = "strict"
    ssl_verify: bool | str = ""
    """False, or a file of certificates."""
    files: tuple[str, ...] = ()
    """The files that were read."""

    @property
    def priority(self) -> str:
        """The name of the channel priority in rattler; empty for one that conda does not have."""
        return PRIORITIES.get(str(self.channel_priority).lower(), "")


def read_condarc(environment: Mapping[str, str], home: Path) -> Condarc:
    """Read the configuration files in conda's order, those of the user last."""
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
    known = {key: data[key] for key in Condarc.__struct_fields__ if key != "files" and data.get(key) is not None}
    for key in known.keys() & {"default_channels", "channels"}:
        known[key] = _listed(known[key])
    if isinstance(mirrors := known.get("mirrored_channels"), dict):
        known["mirrored_channels"] = {name: _listed(each) for name, each in mirrors.items()}
    found = shaped(known, Condarc, file, hint="see 'Using the .condarc conda configuration file' of conda")
    changes = {key: getattr(found, key) for key in known}
    if not found.priority:
        where = f"{file}: channel_priority"
        raise UsageError(
            f"{where}: invalid priority {found.channel_priority!r}", hint="use strict, flexible or disabled"
        )
    return replace(before, files=(*before.files, file), **changes)


def _listed(value: Any) -> Any:
    """Return a single value as a list."""
    return [value] if isinstance(value, str) else value


FALLBACK = "conda-forge"
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_URL = re.compile(r"(?:https?|file)://")
_NAME = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[\w.-]+)*\Z")


def plan_channels(
    channels: Iterable[Channel], condarc: Condarc, *, environment: Mapping[str, str], cwd: Path
) -> tuple[str, ...]:
    """Return the addresses of channels in their order, without duplicates.

    ``defaults`` means the channels of the configuration, else those of Anaconda. ``nodefaults`` means no channel.
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
        return [channel_address(each, condarc, cwd) for each in condarc.default_channels]
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
    custom = condarc.custom_channels
    address = custom.get(name) or custom.get(name.partition("/")[0]) or condarc.channel_alias
    return f"{address.rstrip('/')}/{name}"


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
