"""Parse locks of conda environments: @EXPLICIT lists, conda-lock.yml and pixi.lock.

Name, version and build of a package are from its file name, its hash is from the lock.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from typing import Any, Required, TypedDict
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.parse import load_yaml, scalar_text
from argosy.core.records import replace
from argosy.recipes.conda_spec import split_package_file
from argosy.recipes.recipe import Asked, Channel, CondaPin, Note, Part, PipLine, PipOption, Where, bad_line
from argosy.recipes.requirements import ARCHIVE, at_commit, locked_line, package_of
from argosy.recipes.source_text import shaped

EXPLICIT = "@EXPLICIT"
PIP_COMMENT = "# pip "
"""Prefix of pip packages in lists of conda-lock; conda reads them as comments."""

_HASH = re.compile(r"(?:sha256:)?(?P<digits>[0-9a-f]{32}|[0-9a-f]{64})\Z")
_MD5_DIGITS = 32
MAIN, DEFAULT = "main", "default"
DIRECT = "direct+"
"""Prefix of a package for which the project of pixi gives an address."""
_PYPI_HOSTS = frozenset(("pypi.org", "pypi.python.org", "files.pythonhosted.org"))
_FILE_HOSTS = {"download.pytorch.org": "download-r2.pytorch.org"}
"""Host of an index -> another host that has its files."""


class _Row(TypedDict, total=False):
    name: Required[Any]
    version: Required[Any]
    url: Required[Any]
    hash: dict[str, Any] | None
    source: dict[str, Any] | None
    platform: Any
    manager: Any
    category: Any
    optional: Any


class _CondaLock(TypedDict):
    package: list[_Row]


class _Environment(TypedDict, total=False):
    channels: list[dict[str, Any]]
    indexes: list[str] | None
    packages: dict[str, list[dict[str, Any]]]


class _PixiLock(TypedDict, total=False):
    platforms: list[dict[str, Any]]
    environments: dict[str, _Environment]
    packages: list[dict[str, Any]]


def parse_explicit(text: str, file: str, *, subdir: str) -> Part:
    """Parse the output of ``conda list --explicit``."""
    pins: list[CondaPin] = []
    pip: list[PipLine] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition(" #")[0].strip()
        if line.startswith(PIP_COMMENT):
            pip.append(_pip_comment(line, Where(file, number)))
        elif words and not words.startswith(("#", EXPLICIT)):
            url, _, digest_text = words.partition("#")
            pins.append(_pin(url, digest_text, Where(file, number), line))
    platforms = sorted({pin.url.split("/")[-2] for pin in pins} - {"noarch"})
    if subdir and platforms:
        _need_platform(subdir, platforms, file)
    return _part(pins, pip, (), [])


def is_conda_lock(text: str) -> bool:
    """Return whether a text is a lock of conda-lock, not an environment file."""
    return all(re.search(f"(?m)^{word}:", text) for word in ("version", "metadata", "package"))


def _pip_comment(line: str, where: Where) -> PipLine:
    name, at, address = line.removeprefix(PIP_COMMENT).partition(" @ ")
    url, _, fragment = address.strip().partition("#sha256=")
    if not at or not url:
        raise bad_line("invalid pip package", where, line, hint="conda-lock writes '# pip NAME @ ADDRESS#sha256=…'")
    return _pip_line({"name": name.strip(), "sha256": fragment}, url, where, ())


def _pin(url: str, digest: str, where: Where, line: str) -> CondaPin:
    found = split_package_file(unquote(url)) if "://" in url else None
    if found is None:
        hint = "write https://CHANNEL/SUBDIR/NAME-VERSION-BUILD.conda#HASH, one per line"
        raise bad_line("invalid address of a conda package", where, line, hint=hint)
    if digest and not _HASH.match(digest):
        raise bad_line(f"'{digest}' is not an md5 or sha256 digest", where, line)
    digits = digest.removeprefix("sha256:")
    sha256, md5 = ("", digits) if len(digits) == _MD5_DIGITS else (digits, "")
    return CondaPin(*found, url, where, sha256, md5)


def parse_conda_lock(text: str, file: str, *, subdir: str, asked: tuple[str, ...]) -> Part:
    """Parse the packages of one platform in a ``conda-lock.yml`` (version 1): main and the requested categories."""
    rows = shaped(_load(text, file), _CondaLock, file)["package"]
    lines = _lines_of(text, "name")
    platforms = sorted({scalar_text(row.get("platform")) for row in rows})
    _need_platform(subdir, platforms, file)
    known = {scalar_text(row.get("category", MAIN)) for row in rows}
    for name in asked:
        if name not in known:
            raise UsageError(f"{file} has no category '{name}'", hint=f"use one of {', '.join(sorted(known))}")
    pins: list[CondaPin] = []
    pip: list[PipLine] = []
    left_out: set[str] = set()
    for number, row in enumerate(rows):
        where = Where(file, lines[number] if number < len(lines) else 1)
        category = scalar_text(row.get("category", MAIN))
        if row.get("platform") != subdir:
            continue
        if category not in asked and (category != MAIN or row.get("optional")):
            left_out.add(category)
            continue
        name, version, url = (scalar_text(row.get(key, "")) for key in ("name", "version", "url"))
        digests = row.get("hash") or {}
        if row.get("manager") == "pip":
            prefix = DIRECT if (row.get("source") or {}).get("type") == "url" and not url.startswith("git+") else ""
            pip.append(_pip_line({**digests, "name": name, "version": version}, f"{prefix}{url}", where, ()))
        else:
            pins.append(_with_hashes(_pin(url, "", where, url), digests))
    notes = [Note(f"the category '{name}' is not installed", Where(file, 1)) for name in sorted(left_out)]
    return _part(pins, pip, (), notes)


def parse_pixi_lock(text: str, file: str, *, subdir: str, asked: tuple[str, ...]) -> Part:
    """Parse one environment of a ``pixi.lock`` (version 5 and later) for one platform."""
    data: _PixiLock = shaped(_load(text, file), _PixiLock, file)
    every = data.get("environments", {})
    chosen = _chosen(every, asked, file)
    platform = _platform(data, chosen["packages"], subdir)
    others = [f"{file}[{name}]" for name, each in every.items() if each is not chosen]
    if not chosen["packages"] and others:
        raise UsageError(f"that environment in {file} is empty", hint=f"other environments: {', '.join(others)}")
    _need_platform(platform, sorted(chosen["packages"]), file)
    known = {_address(row): row for row in data.get("packages", ())}
    lines = {line.strip().partition("- ")[2]: number for number, line in enumerate(text.splitlines(), 1)}
    pins: list[CondaPin] = []
    pip: list[PipLine] = []
    for entry in chosen["packages"][platform]:
        kind, url = next(((str(key), scalar_text(value)) for key, value in entry.items()), ("", ""))
        row = known.get(url, {})
        where = Where(file, lines.get(f"{kind}: {url}", 1))
        if kind == "conda_source" or (kind == "conda" and not split_package_file(unquote(url))):
            hint = "pixi builds it from source; lock an environment without it, and install it by pip"
            raise bad_line("cannot install a conda package that is not built yet", where, url, hint=hint)
        if kind == "conda":
            pins.append(_with_hashes(_pin(url, "", where, url), row))
        else:
            known_indexes = (*(chosen.get("indexes") or ()), row.get("index"))
            pip.append(_pip_line(row, url, where, map(scalar_text, filter(None, known_indexes))))
    names = ("index-url", *("extra-index-url",) * len(chosen.get("indexes") or ()))  # the first one replaces PyPI
    indexes = zip(names, chosen.get("indexes") or (), strict=False)
    options = tuple(PipOption(name, scalar_text(url), Where(file, 1)) for name, url in indexes)
    channels = [scalar_text(row["url"]) for row in chosen.get("channels", ()) if "url" in row]
    return replace(_part(pins, pip, channels, []), options=options)


def _chosen(environments: dict[str, _Environment], asked: tuple[str, ...], file: str) -> _Environment:
    if len(asked) > 1:
        raise UsageError(
            "an image can contain only one environment",
            evidence=f"{file}[{','.join(asked)}]",
            hint="name one environment",
        )
    name = asked[0] if asked else DEFAULT
    chosen = environments.get(name)
    if chosen is None or "packages" not in chosen:
        known = ", ".join(f"{file}[{each}]" for each in environments)
        hint = f"known: {known}" if known else "write it with 'pixi lock' of pixi 0.31 or later"
        raise UsageError(f"{file} has no environment '{name}'", hint=hint)
    return chosen


def _platform(data: _PixiLock, packages: Container[str], subdir: str) -> str:
    """Return the lock's name of a platform: since version 7, platforms may have other names than in conda."""
    own = [
        name
        for row in data.get("platforms", ())
        if row.get("subdir") == subdir and (name := scalar_text(row.get("name"))) in packages
    ]
    return subdir if subdir in packages or not own else own[0]


def _address(row: dict[str, Any]) -> str:
    return scalar_text(row.get("conda") or row.get("pypi") or row.get("url") or "")


def _part(pins: list[CondaPin], pip: list[PipLine], channels: Any, notes: list[Note]) -> Part:
    # A lock without Python contains pip packages for the base's Python.
    python = tuple(Asked("python", f"=={pin.version}", pin.where) for pin in pins if pin.name == "python")
    listed = tuple(Channel(name, Where("", 0)) for name in channels)
    return Part(conda_pins=tuple(pins), pip=tuple(pip), python=python, channels=listed, notes=tuple(notes))


def _with_hashes(pin: CondaPin, digests: Any) -> CondaPin:
    sha256, md5 = scalar_text(digests.get("sha256") or ""), scalar_text(digests.get("md5") or "")
    return CondaPin(pin.name, pin.version, pin.build, pin.url, pin.where, sha256.lower(), md5.lower())


def _pip_line(row: Mapping[str, Any], url: str, where: Where, indexes: Iterable[str]) -> PipLine:
    """Return the line of a pip package of a lock.

    A package of an index gets its version and hash, so that a site's mirror can provide it. Any other package is
    installed from the place that was locked: a package of the index may have the same name and version.

    Parameters
    ----------
    row
        Name, version and sha256 of the package, as far as the lock has them.
    url
        The address or path in the lock.
    indexes
        Indexes of the lock, in addition to PyPI.
    """
    name, version = scalar_text(row.get("name") or ""), scalar_text(row.get("version") or "")
    if not name or not version:
        found, number = package_of(unquote(url.rpartition("/")[2]))
        name, version = name or found, version or number
    name, digest = canonicalize_name(name), scalar_text(row.get("sha256") or "")
    hashes = (f"sha256:{digest}",) if digest else ()
    if url and "://" not in url:
        # The digest of a folder is of pixi's own kind.
        line = locked_line(name, where, path=url, hashes=hashes if ARCHIVE.search(url) else ())
        return replace(line, editable=row.get("editable") is True)
    address = at_commit(url) if url.startswith("git+") else url.removeprefix(DIRECT)
    if version and not url.startswith(("git+", DIRECT)) and _is_of_index(url, indexes):
        address = ""
    return locked_line(name, where, version=version, address=address, hashes=hashes)


def _is_of_index(url: str, indexes: Iterable[str]) -> bool:
    """Return whether an address is that of a file of PyPI or of another index.

    An address with variables for a login belongs to an index of conda-lock that needs one; pip's own settings have it.
    """
    login, _, host = _host(url).rpartition("@")
    hosts = {_host(index).rpartition("@")[2] for index in indexes}
    hosts.discard("")
    return "$" in login or host in _PYPI_HOSTS | hosts | {_FILE_HOSTS.get(each, each) for each in hosts}


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.lower()
    except ValueError:
        return ""


def _need_platform(subdir: str, platforms: list[str], file: str) -> None:
    if subdir not in platforms:
        raise UsageError(
            f"{file} has no packages for {subdir}",
            evidence=f"it has packages for {', '.join(platforms) or 'no platform'}",
            hint=f"add the platform {subdir} to the source of the lock, and lock again",
        )


def _load(text: str, file: str) -> dict[str, Any]:
    data = load_yaml(text, file)
    if not isinstance(data, dict):
        raise UsageError(f"{file} is not a lock file", hint="it must be a mapping of keys to values")
    return data


def _lines_of(text: str, key: str) -> list[int]:
    """Return the line of each entry of a list of packages, which is the line of its name."""
    begins = (f"- {key}:", f"  {key}:")
    return [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(begins)]
