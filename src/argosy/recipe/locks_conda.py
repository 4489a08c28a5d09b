"""Parse what other tools lock conda environments with: @EXPLICIT lists, conda-lock.yml, pixi.lock; it opens no file.

A package's name, version and build are those of its file name; its hash is the lock's.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

import yaml
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from argosy.errors import UsageError
from argosy.recipe.records import Asked, Channel, CondaPin, Note, Part, PipKind, PipLine, PipOption, Where, bad_line

EXPLICIT = "@EXPLICIT"

_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FILE = re.compile(r"(?P<name>[^/]+)-(?P<version>[^-/]+)-(?P<build>[^-/]+)\.(?:conda|tar\.bz2)\Z")
_HASH = re.compile(r"(?:sha256:)?(?P<digits>[0-9a-f]{32}|[0-9a-f]{64})\Z")
_MD5_DIGITS = 32


def parse_explicit(text: str, file: str) -> Part:
    """Parse the output of ``conda list --explicit``.

    Raises
    ------
    UsageError
        For a line that is no address of a package.
    """
    pins: list[CondaPin] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition(" #")[0].strip()
        if words and not words.startswith(("#", EXPLICIT)):
            url, _, behind = words.partition("#")
            pins.append(_pin(url, behind, Where(file, number), line))
    return Part(conda_pins=tuple(pins))


def _pin(url: str, digest: str, where: Where, line: str) -> CondaPin:
    found = _FILE.search(unquote(url)) if "://" in url else None
    if found is None:
        hint = "each line is https://CHANNEL/SUBDIR/NAME-VERSION-BUILD.conda#HASH"
        raise bad_line("this is no address of a conda package", where, line, hint=hint)
    if digest and not _HASH.match(digest):
        raise bad_line(f"'{digest}' is neither an md5 nor a sha256", where, line)
    digits = digest.removeprefix("sha256:")
    sha256, md5 = ("", digits) if len(digits) == _MD5_DIGITS else (digits, "")
    return CondaPin(found["name"].lower(), found["version"], found["build"], url, where, sha256, md5)


def parse_conda_lock(text: str, file: str, *, subdir: str) -> Part:
    """Parse a ``conda-lock.yml`` (version 1) for one of its platforms, the packages of its main category.

    Raises
    ------
    UsageError
        When it is of another form, or has nothing for `subdir`.
    """
    data, lines = _load(text, file), _lines_of(text, "name")
    rows = _rows(data, "package", file)
    platforms = sorted({str(row.get("platform")) for row in rows})
    _need_platform(subdir, platforms, file)
    pins: list[CondaPin] = []
    pip: list[PipLine] = []
    left_out: set[str] = set()
    for number, row in enumerate(rows):
        where = Where(file, lines[number] if number < len(lines) else 1)
        if row.get("platform") != subdir:
            continue
        if row.get("category", "main") != "main" or row.get("optional"):
            left_out.add(str(row.get("category")))
            continue
        digests = row.get("hash") or {}
        if row.get("manager") == "pip":
            pip.append(_pip_line(str(row["name"]), str(row["version"]), str(row.get("url", "")), digests, where))
        else:
            pins.append(_with_hashes(_pin(str(row.get("url")), "", where, str(row.get("url"))), digests))
    return _part(pins, pip, (), [Note(f"category '{name}' is left out", Where(file, 1)) for name in sorted(left_out)])


def parse_pixi_lock(text: str, file: str, *, subdir: str) -> Part:
    """Parse a ``pixi.lock`` (versions 5 and later): its environment ``default`` for one platform.

    Raises
    ------
    UsageError
        When it has no such environment, or nothing for `subdir`.
    """
    data = _load(text, file)
    environments = data.get("environments")
    chosen = environments.get("default") if isinstance(environments, dict) else None
    if not isinstance(chosen, dict) or not isinstance(chosen.get("packages"), dict):
        raise UsageError(f"{file} has no environment 'default'", hint="make it by 'pixi lock' of pixi 0.31 or later")
    _need_platform(subdir, sorted(chosen["packages"]), file)
    known = {_address(row): row for row in _rows(data, "packages", file)}
    lines = {line.strip().partition("- ")[2]: number for number, line in enumerate(text.splitlines(), 1)}
    pins: list[CondaPin] = []
    pip: list[PipLine] = []
    for entry in chosen["packages"][subdir]:
        kind, url = next(iter(entry.items()))
        row = known.get(url, {})
        where = Where(file, lines.get(f"{kind}: {url}", 1))
        if kind == "conda":
            pins.append(_with_hashes(_pin(str(url), "", where, str(url)), row))
        else:
            pip.append(_pip_line(str(row.get("name", "")), str(row.get("version", "")), str(url), row, where))
    options = tuple(_index(str(url), number, file) for number, url in enumerate(chosen.get("indexes") or ()))
    channels = [str(row["url"]) for row in chosen.get("channels") or () if isinstance(row, dict) and "url" in row]
    part = _part(pins, pip, channels, [])
    return Part(conda_pins=part.conda_pins, pip=part.pip, channels=part.channels, python=part.python, options=options)


def _index(url: str, number: int, file: str) -> PipOption:
    return PipOption("extra-index-url" if number else "index-url", url, Where(file, 1))


def _address(row: dict[str, Any]) -> str:
    return str(row.get("conda") or row.get("pypi") or row.get("url") or "")


def _part(pins: list[CondaPin], pip: list[PipLine], channels: Any, notes: list[Note]) -> Part:
    # A lock without conda's Python is pip's alone, over the base's.
    python = tuple(Asked("python", f"=={pin.version}", pin.where) for pin in pins if pin.name == "python")
    listed = tuple(Channel(name, Where("", 0)) for name in channels)
    return Part(conda_pins=tuple(pins), pip=tuple(pip), python=python, channels=listed, notes=tuple(notes))


def _with_hashes(pin: CondaPin, digests: Any) -> CondaPin:
    sha256, md5 = str(digests.get("sha256") or ""), str(digests.get("md5") or "")
    return CondaPin(pin.name, pin.version, pin.build, pin.url, pin.where, sha256.lower(), md5.lower())


def _pip_line(name: str, version: str, url: str, digests: Any, where: Where) -> PipLine:
    """Ask for a pip package by name, version and hash, so that a site's mirror can bring it; by address where it must.

    A wheel that lies in a folder, or comes from version control, has only its address.
    """
    if not version:
        try:
            found, number, *_ = parse_wheel_filename(unquote(url.rpartition("/")[2]))
            name, version = name or found, str(number)
        except InvalidWheelFilename:
            version = ""
    name = str(canonicalize_name(name))
    hashes = (f"sha256:{digests['sha256']}",) if digests.get("sha256") else ()
    if url.startswith("git+"):
        return PipLine(f"{name} @ {url}", name, PipKind.VCS, where, spec=f"{name} @ {url}")
    if "://" not in url and url and not version:
        return PipLine(url, "", PipKind.LOCAL, where, path=url)
    pinned = f"{name}=={version}"
    return PipLine(pinned, name, PipKind.INDEX, where, spec=pinned, hashes=hashes)


def _need_platform(subdir: str, platforms: list[str], file: str) -> None:
    if subdir not in platforms:
        raise UsageError(
            f"{file} has no packages for {subdir}",
            evidence=f"it has {', '.join(platforms) or 'none'}",
            hint=f"add the platform {subdir} where the lock is made, and lock again",
        )


def _rows(data: dict[str, Any], key: str, file: str) -> list[dict[str, Any]]:
    rows = data.get(key)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise UsageError(f"{file} has no list '{key}'", hint="it was made by another version of its tool: lock again")
    return rows


def _load(text: str, file: str) -> dict[str, Any]:
    try:
        data = yaml.load(text, Loader=_LOADER)  # noqa: S506 - a safe loader, in C where there is one
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise UsageError(f"{file} is not YAML", evidence=" ".join(str(error).split())[:200]) from error
    if not isinstance(data, dict):
        raise UsageError(f"{file} is no lock file", hint="it maps words to values")
    return data


def _lines_of(text: str, key: str) -> list[int]:
    """Give the line of each entry of a list of packages: that of its name."""
    begins = (f"- {key}:", f"  {key}:")
    return [number for number, line in enumerate(text.splitlines(), 1) if line.startswith(begins)]
