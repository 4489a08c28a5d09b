"""Normalise the files of a conda prefix, so that they do not depend on the machine that installed them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.layout import ENV_PREFIX
from argosy.core.redact import redact
from argosy.recipes.conda_answer import CondaPackage
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.recipe import Where

FILE_KEYS = ("fn", "md5", "sha256", "files", "paths_data")
"""Keys of conda-meta about a package's file and its files in the prefix."""

MACHINE_KEYS = ("link", "extracted_package_dir", "package_tarball_full_path", "indexed_timestamp")
"""Keys of conda-meta about the package cache or the time of installation."""

_LINK_SCRIPT = re.compile(r"\.(?P<name>.+)-post-link\.sh\Z")


class LinkScript(msgspec.Struct, frozen=True):
    """Describe a link script, which a package runs after its installation, by its path in the container."""

    package: CondaPackage
    inside: str


def tidy_conda_meta(prefix: Path, requested: Iterable[str], *, time: int) -> None:
    """Normalise the records of installed packages: the same bytes for any cache, link type, umask and channel.

    The metadata come from the package itself, not from the channel's index, which a build from a lock does not read.

    Parameters
    ----------
    requested
        The requested specs in conda's syntax; ``conda env export --from-history`` shows them.
    time
        Time of the history entry, in seconds since 1970.
    """
    asked: dict[str, list[str]] = {}
    for text in requested:
        asked.setdefault(parse_conda_spec(text, Where("", 0)).name, []).append(text)
    urls = []
    for file in sorted((prefix / "conda-meta").glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        index = _index_of(record)
        url = redact(record["url"])
        kept = index | {key: record[key] for key in FILE_KEYS if record.get(key)}
        kept |= {"url": url, "channel": url.rsplit("/", 2)[0], "requested_specs": asked.get(record["name"], [])}
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        urls.append(url)
    (prefix / "conda-meta/history").write_text(_render_history(urls, requested, time), encoding="utf-8")
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _index_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return the package's ``info/index.json``; without one, the metadata of the channel."""
    index = Path(record.get("extracted_package_dir", ""), "info/index.json")
    if not index.is_file():
        return {key: value for key, value in record.items() if key not in MACHINE_KEYS}
    data: dict[str, Any] = json.loads(index.read_text(encoding="utf-8"))
    return data


def _render_history(urls: Iterable[str], requested: Iterable[str], time: int) -> str:
    """Render one transaction in the form of conda's own history file."""
    moment = datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    rows = sorted(re.sub(r"\.(?:conda|tar\.bz2)\Z", "", url) for url in urls)
    added = [f"+{channel}::{name}" for channel, _, name in (row.rpartition("/") for row in rows)]
    specs = [f"# update specs: {json.dumps(list(requested))}"] if requested else []
    return "\n".join((f"==> {moment} <==", "# cmd: argosy build", *added, *specs)) + "\n"


def _installation_order(prefix: Path) -> list[str]:
    """Return the names of installed packages after their dependencies; cycles are broken by name."""
    records = [json.loads(file.read_text(encoding="utf-8")) for file in sorted((prefix / "conda-meta").glob("*.json"))]
    depends = {record["name"]: sorted(text.split()[0] for text in record.get("depends", ())) for record in records}
    order: dict[str, None] = {}
    waiting = [(name, False) for name in sorted(depends, reverse=True)]
    begun: set[str] = set()
    while waiting:
        name, done = waiting.pop()
        if done:
            order[name] = None
        elif name in depends and name not in begun:
            begun.add(name)
            waiting += [(name, True), *((other, False) for other in reversed(depends[name]))]
    return list(order)


def link_scripts(prefix: Path, chosen: Iterable[CondaPackage]) -> tuple[LinkScript, ...]:
    """List the link scripts in a prefix, each after those of the package's dependencies."""
    order = _installation_order(prefix)
    chosen = sorted(chosen, key=lambda package: order.index(package.name))
    found = {match["name"]: path for path in (prefix / "bin").glob(".*") if (match := _LINK_SCRIPT.match(path.name))}
    return tuple(
        LinkScript(package, f"{ENV_PREFIX}/bin/{found[package.name].name}")
        for package in chosen
        if package.name in found
    )


def unshare(prefix: Path) -> None:
    """Replace each hard link into the cache by a copy."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_nlink > 1:
                copy = path.with_name(f"{name}.argosy-copy")
                shutil.copy2(path, copy)
                copy.replace(path)
