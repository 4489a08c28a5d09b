"""Install conda packages with the worker, a separate process that loads rattler, and read and write their records.

The records, ``conda-meta/*.json``, and the history of the prefix are normalised: the same bytes for any cache, link
type, umask and channel.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.locks import hold_lock
from argosy.core.os_errors import translate_os_errors
from argosy.core.parse import parse_json
from argosy.core.process import Command
from argosy.core.session import Session, Step
from argosy.core.store import make_folder
from argosy.recipes.conda_answer import packages_of, parse_answer
from argosy.recipes.conda_request import CondaPackage, CondaPlan, Installation, certificates, render_request
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.condarc import Condarc
from argosy.recipes.recipe import Where

CLOBBERS = "__clobbers__"
"""rattler moves a file there that another package has, too. It may leave empty folders of the other package, depending
on which of them it links first."""


class CondaClient(msgspec.Struct, frozen=True):
    """Call the worker for one environment."""

    session: Session
    step: Step
    plan: CondaPlan
    condarc: Condarc
    spare: Path | None = None
    """A further folder of unpacked conda packages, that of a bundle, or None."""

    def choose(self) -> tuple[CondaPackage, ...]:
        """Return the packages of the environment, sorted by name. A plan with exact packages needs no solver."""
        return packages_of(self.plan) if self.plan.pins else self._call(None)

    def install(self, packages: Collection[CondaPackage], prefix: Path) -> None:
        """Install exact packages into a new folder."""
        with translate_os_errors(prefix):
            prefix.parent.mkdir(parents=True, exist_ok=True)
        self._call(Installation(tuple(packages), prefix, self.spare))
        _remove_empty_folders(prefix / CLOBBERS)

    def _call(self, installation: Installation | None) -> tuple[CondaPackage, ...]:
        cache = self.session.paths.cache / "conda"
        with translate_os_errors(cache):
            make_folder(cache)
        request = render_request(self.plan, cache=cache, installation=installation)
        argv = (sys.executable, "-m", "argosy.recipes.conda_worker")
        command = Command(argv, env=self._environment(), stdin=request)
        # One process at a time fills the cache: rattler's own locks do not work on every network file system.
        with hold_lock(cache / "lease", what="installing conda packages", waiting=self.session.waiting):
            reply = self.session.runner.run(command, lambda line: self.step.say(line.strip()))
        return parse_answer(reply, self.plan)

    def _environment(self) -> dict[str, str]:
        """Return the caller's environment without variables of another Python or conda.

        The worker finds its packages where this process found them, for example below ``~/.local``.
        """
        host = self.session.host.environment
        kept = {name: value for name, value in host.items() if not name.startswith(("PYTHON", "CONDA", "MAMBA"))}
        packages = os.pathsep.join(path for path in sys.path if Path(path).is_absolute())
        kept |= {"PYTHONPATH": packages, "PYTHONSAFEPATH": "1", "PYTHONNOUSERSITE": "1"}
        if roots := certificates(self.condarc, host):
            kept["SSL_CERT_FILE"] = roots
        return kept


def _remove_empty_folders(folder: Path) -> None:
    """Remove the empty folders in a folder, and it if it becomes empty."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):  # not empty
            os.rmdir(path)  # noqa: PTH106 - os.walk gives strings


CHANNEL_KEYS = ("fn", "url", "channel", "md5", "sha256", "requested_specs")
"""Keys of conda-meta about a package's file and this environment."""

MACHINE_KEYS = ("link", "extracted_package_dir", "package_tarball_full_path", "indexed_timestamp")
"""Keys of conda-meta about the package cache or the time of installation."""


class PackageMeta(msgspec.Struct, frozen=True):
    """The part of a package's record that depends only on the package, the prefix and its Python."""

    data: Mapping[str, Any]
    """The metadata of the package itself, not of the channel's index, which a build from a lock does not read."""

    @property
    def files(self) -> tuple[str, ...]:
        """The installed files, as paths below the prefix."""
        return tuple(self.data.get("files", ()))

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of the files in the package. rattler moves files that another package has, too."""
        paths = self.data.get("paths_data", {}).get("paths", ())
        return tuple(path.get("original_path") or path["_path"] for path in paths) or self.files

    @property
    def depends(self) -> tuple[str, ...]:
        """The names of the packages that this one needs, sorted."""
        return tuple(sorted({text.split()[0] for text in self.data.get("depends", ())}))


def read_meta(prefix: Path, packages: Iterable[CondaPackage]) -> dict[str, PackageMeta]:
    """Return what rattler recorded about installed packages, by their names."""
    names = {package.name for package in packages}
    files = sorted((prefix / "conda-meta").glob("*.json")) if names else []
    records = [parse_json(file.read_bytes()) for file in files]
    return {record["name"]: PackageMeta(_static_data(record)) for record in records if record["name"] in names}


def _static_data(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the package's ``info/index.json`` (without one, the metadata of the channel), and its installed files."""
    index = Path(record.get("extracted_package_dir", ""), "info/index.json")
    data = parse_json(index.read_bytes()) if index.is_file() else record
    kept = {key: value for key, value in data.items() if key not in (*CHANNEL_KEYS, *MACHINE_KEYS)}
    return kept | {key: record[key] for key in ("files", "paths_data") if record.get(key)}


def write_meta(
    prefix: Path,
    packages: Collection[CondaPackage],
    meta: Mapping[str, PackageMeta],
    requested: Collection[str],
    *,
    time: int,
) -> None:
    """Write the records of all packages, and the history.

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
    folder = prefix / "conda-meta"
    folder.mkdir(parents=True, exist_ok=True)
    for file in folder.glob("*.json"):
        file.unlink()
    for package in packages:
        record = (
            dict(meta[package.name].data) | _channel_data(package) | {"requested_specs": asked.get(package.name, [])}
        )
        rendered = msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=1)
        (folder / f"{package.name}-{package.version}-{package.build}.json").write_bytes(rendered + b"\n")
    (folder / "history").write_text(_render_history((p.url for p in packages), requested, time), encoding="utf-8")
    (prefix / "CACHEDIR.TAG").unlink(missing_ok=True)


def _channel_data(package: CondaPackage) -> dict[str, str]:
    channel, _, file = package.url.rpartition("/")
    data = {"fn": file, "url": package.url, "channel": channel, "md5": package.md5, "sha256": package.sha256}
    return {key: value for key, value in data.items() if value}


def _render_history(urls: Iterable[str], requested: Iterable[str], time: int) -> str:
    """Render one transaction in the form of conda's own history file."""
    moment = datetime.fromtimestamp(time, tz=UTC).strftime("%Y-%m-%d %H:%M:%S")
    rows = sorted(re.sub(r"\.(?:conda|tar\.bz2)\Z", "", url) for url in urls)
    added = [f"+{channel}::{name}" for channel, _, name in (row.rpartition("/") for row in rows)]
    specs = [f"# update specs: {json.dumps(list(requested))}"] if requested else []
    return "\n".join((f"==> {moment} <==", "# cmd: argosy build", *added, *specs)) + "\n"


def dependency_order(meta: Mapping[str, PackageMeta]) -> list[str]:
    """Return the names of packages after their dependencies; cycles are broken by name."""
    order: dict[str, None] = {}
    waiting = [(name, False) for name in sorted(meta, reverse=True)]
    begun: set[str] = set()
    while waiting:
        name, done = waiting.pop()
        if done:
            order[name] = None
        elif name in meta and name not in begun:
            begun.add(name)
            waiting += [(name, True), *((other, False) for other in reversed(meta[name].depends))]
    return list(order)


def with_dependencies(name: str, meta: Mapping[str, PackageMeta]) -> Iterator[str]:
    """Yield the name of a package and, once each, the names of the packages that it needs."""
    waiting, begun = [name], set[str]()
    while waiting:
        name = waiting.pop()
        if name in meta and name not in begun:
            begun.add(name)
            waiting += meta[name].depends
            yield name
