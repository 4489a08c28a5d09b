"""Work on the files of a conda prefix: what differs between machines is taken out; nothing is installed or started."""

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

OF_THE_FILE = ("fn", "md5", "sha256", "files", "paths_data")
"""Words of conda-meta that tell of a package's file and of what it put into the prefix."""

OF_THIS_MACHINE = ("link", "extracted_package_dir", "package_tarball_full_path", "indexed_timestamp")
"""Words of conda-meta that name the package cache, or the moment."""

_LINK_SCRIPT = re.compile(r"\.(?P<name>.+)-post-link\.sh\Z")


class LinkScript(msgspec.Struct, frozen=True):
    """A script that a package wants to be run once it is installed: its path inside."""

    package: CondaPackage
    inside: str


def tidy_conda_meta(prefix: Path, requested: Iterable[str], *, time: int) -> None:
    """Give the records of installed packages one form, the same bytes from any cache, link type, umask and channel.

    What a package says of itself is read from the package, not from the channel's index, which a build from a lock
    never sees.

    Parameters
    ----------
    requested
        What was asked for by name, as conda writes it: ``conda env export --from-history`` tells it.
    time
        Seconds since 1970, for the history.
    """
    asked: dict[str, list[str]] = {}
    for text in requested:
        asked.setdefault(parse_conda_spec(text, Where("", 0)).name, []).append(text)
    urls = []
    for file in sorted((prefix / "conda-meta").glob("*.json")):
        record = json.loads(file.read_text(encoding="utf-8"))
        index = _index_of(record)
        url = redact(record["url"])
        kept = index | {key: record[key] for key in OF_THE_FILE if record.get(key)}
        kept |= {"url": url, "channel": url.rsplit("/", 2)[0], "requested_specs": asked.get(record["name"], [])}
        file.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        urls.append(url)
    (prefix / "conda-meta/history").write_text(_render_history(urls, requested, time), encoding="utf-8")
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _index_of(record: dict[str, Any]) -> dict[str, Any]:
    """Give what a package says of itself, in ``info/index.json``; of one without, what the channel said."""
    index = Path(record.get("extracted_package_dir", ""), "info/index.json")
    if not index.is_file():
        return {key: value for key, value in record.items() if key not in OF_THIS_MACHINE}
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
    """Give the names of the installed packages, each after those that it depends on; what goes in circles by name."""
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
    """List the link scripts in a prefix, those of a package after those of what it depends on."""
    order = _installation_order(prefix)
    chosen = sorted(chosen, key=lambda package: order.index(package.name))
    found = {match["name"]: path for path in (prefix / "bin").glob(".*") if (match := _LINK_SCRIPT.match(path.name))}
    return tuple(
        LinkScript(package, f"{ENV_PREFIX}/bin/{found[package.name].name}")
        for package in chosen
        if package.name in found
    )


def unshare(prefix: Path) -> None:
    """Make each file that is a hard link into the cache a file of its own."""
    for folder, _, names in os.walk(prefix):
        for name in names:
            path = Path(folder, name)
            if not path.is_symlink() and path.stat().st_nlink > 1:
                copy = path.with_name(f"{name}.argosy-copy")
                shutil.copy2(path, copy)
                copy.replace(path)
