"""Turn the names of channels into addresses, as conda does; it never asks whether they are there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from argosy.conda.condarc import Condarc
from argosy.errors import UsageError
from argosy.recipe import Channel
from argosy.recipe.records import bad_line

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
