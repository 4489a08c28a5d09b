"""Parse the pip locks of other tools: ``pylock.toml``, ``poetry.lock`` of Poetry 2, and ``Pipfile.lock`` of pipenv.

All of them list each package with its version and the hashes of its files. The parsers return the packages of the main
group, and those of the requested groups and extras.

Sources: "pylock.toml specification" of the Python packaging user guide; "The lock file" of Poetry's and of pipenv's
documentation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Required, TypedDict

import msgspec
from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.parse import decode_json
from argosy.core.records import replace
from argosy.core.suggest import did_you_mean
from argosy.core.toml_lines import load_toml
from argosy.recipes.recipe import PYPI, Asked, Note, Part, PipLine, PipOption, Where
from argosy.recipes.requirements import locked_line
from argosy.recipes.source_text import Finder, checked_marker, expand, finder, shaped


class _File(TypedDict, total=False):
    hashes: dict[str, str]


_Source = TypedDict(
    "_Source",
    {
        "type": str,
        "url": str,
        "path": str,
        "commit-id": str,
        "subdirectory": str,
        "editable": bool,
        "hashes": dict[str, str],
    },
    total=False,
)


class _PylockPackage(TypedDict, total=False):
    name: Required[str]
    version: str
    marker: str
    index: str
    wheels: list[_File]
    sdist: _File
    archive: _Source
    vcs: _Source
    directory: _Source


class _Pylock(TypedDict, total=False):
    packages: list[_PylockPackage]


_LOCK_CONDITION = re.compile(
    r"""(?P<quote>['"])(?P<name>[^'"]*)(?P=quote)\s+(?P<not>not\s+)?in\s+(?P<list>extras|dependency_groups)\b"""
)
"""The part of a pylock marker that asks whether an extra or a group is requested."""

MOST_NAMES = 8
"""Names of packages that a note lists."""

ALWAYS, NEVER = "python_version >= '0'", "python_version < '0'"


def _without_groups(marker: str, wanted: frozenset[str]) -> str:
    """Replace conditions on extras and groups in a marker by their results; the rest depends only on the machine."""

    def answer(found: re.Match[str]) -> str:
        return ALWAYS if (canonicalize_name(found["name"]) in wanted) != bool(found["not"]) else NEVER

    return _LOCK_CONDITION.sub(answer, marker)


def _is_never(marker: str, where: Where) -> bool:
    """Return whether a marker is false on every machine because of `NEVER`.

    Markers have no negation, so it is enough to look at a machine for which all other conditions hold.
    """
    normal = checked_marker(marker, where)
    others = _CONDITION.sub(lambda found: NEVER if found[0] == str(Marker(NEVER)) else ALWAYS, normal)
    try:
        return not Marker(others).evaluate()
    except (InvalidMarker, UndefinedEnvironmentName):  # packaging does not escape quotes in values
        return False


_VALUE = r"""(?:"[^"]*"|[a-z_]+)"""
_CONDITION = re.compile(rf"{_VALUE} (?:not in|in|[<>=!~]=?) {_VALUE}")
"""One condition of a marker in its normal form."""


def parse_pylock(text: str, file: str, *, extras: tuple[str, ...]) -> Part:
    """Parse a ``pylock.toml``: each package at its version, with the hashes of its files.

    `extras` has names of extras or dependency groups, in addition to the default groups of the lock.
    """
    data = load_toml(text, file)
    if not str(data.get("lock-version", "")).startswith("1."):
        hint = "write it again: uv export --format pylock.toml"
        raise UsageError(f"{file} is not a pylock.toml of version 1", hint=hint)
    where = finder(text, file)
    unrequested: dict[str, Where] = {}
    pip: list[PipLine] = []
    default = data.get("default-groups", [])
    names = (*extras, *(default if isinstance(default, list) else ()))
    wanted = frozenset(canonicalize_name(str(name)) for name in names)
    _refuse_unknown(extras, data, file)
    for package in shaped(data, _Pylock, file).get("packages", ()):
        here = where(f'name = "{package.get("name")}"')
        marker = str(package.get("marker", ""))
        answered = _without_groups(marker, wanted)
        if answered != marker and _is_never(answered, here):
            unrequested.setdefault(package["name"], here)
            continue
        pip.append(_pylock_line(package, answered, here))
    python = str(data.get("requires-python", "")).replace(" ", "")
    asked = (Asked("python", python, where("requires-python")),) if python else ()
    indexes = dict.fromkeys(str(row["index"]).rstrip("/") for row in data.get("packages", ()) if row.get("index"))
    options = tuple(PipOption("extra-index-url", url, where(url)) for url in indexes if url != PYPI)
    return Part(python=asked, pip=tuple(pip), options=options, notes=_note_unrequested(unrequested), complete=True)


def _note_unrequested(places: Mapping[str, Where]) -> tuple[Note, ...]:
    """Return one note for all packages of extras or groups that were not requested."""
    names = list(places)
    listed = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if names[MOST_NAMES:] else "")
    why = "are not installed: their extras or groups were not requested"
    if len(names) == 1:
        why = "is not installed: its extra or group was not requested"
    return (Note(f"{listed} {why}", places[names[0]]),) if names else ()


def _unknown_group(file: str, name: str, known: Sequence[str]) -> UsageError:
    return UsageError(
        f"{file} has no extra or group '{name}'",
        evidence=f"known: {', '.join(known) or 'none'}",
        hint=did_you_mean(name, known, f"choose one of them, or write {file} without brackets", form=f"{file}[{{}}]"),
    )


def _refuse_unknown(extras: tuple[str, ...], data: Mapping[str, Any], file: str) -> None:
    """Raise `UsageError` for an extra or group that the lock does not have."""
    lists = [data.get(key, []) for key in ("extras", "dependency-groups")]
    known = [str(name) for each in lists if isinstance(each, list) for name in each]
    normal = {canonicalize_name(name) for name in known}
    for extra in extras:
        if canonicalize_name(extra) not in normal:
            raise _unknown_group(file, extra, known)


def _pylock_line(package: _PylockPackage, marker: str, where: Where) -> PipLine:
    name, version = canonicalize_name(str(package["name"])), package.get("version", "")
    if directory := package.get("directory"):
        path = str(PurePosixPath(directory.get("path", "."), directory.get("subdirectory", "")))
        line = locked_line(name, where, path=path, marker=marker)
        return replace(line, editable=directory.get("editable", False))
    if vcs := package.get("vcs"):
        address = f"{vcs.get('type', 'git')}+{_url(vcs, name, where)}@{vcs.get('commit-id', 'HEAD')}{_part(vcs)}"
        return locked_line(name, where, address=address, marker=marker)
    if archive := package.get("archive"):
        path = "" if "subdirectory" in archive else archive.get("path", "")
        address = "" if path else f"{_url(archive, name, where)}{_part(archive)}"
        return locked_line(name, where, path=path, address=address, marker=marker, hashes=_hashes([archive]))
    files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
    return locked_line(name, where, version=version, marker=marker, hashes=_hashes(files))


def _hashes(files: Iterable[_File | _Source]) -> list[str]:
    digests = {file.get("hashes", {}).get("sha256", "") for file in files} - {""}
    return [f"sha256:{digest}" for digest in digests]


def _url(source: _Source, name: str, where: Where) -> str:
    if url := source.get("url", ""):
        return url
    hint = "lock it again from a URL, or from an unpacked folder"
    raise UsageError(f"{name} has no URL in the lock", evidence=str(where), hint=hint)


def _part(source: _Source | _PoetrySource | _Locked) -> str:
    return f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""


MAIN, DEFAULT = "main", "default"
OF_PYPI = (PYPI, "https://pypi.python.org/simple")


class _PoetrySource(TypedDict, total=False):
    type: str
    url: str
    resolved_reference: str
    reference: str
    subdirectory: str


class _Package(TypedDict, total=False):
    name: Required[str]
    version: Required[str]
    groups: list[str]
    markers: str | dict[str, str]
    files: list[dict[str, str]]
    source: _PoetrySource
    develop: bool


class _Poetry(TypedDict, total=False):
    package: list[_Package]
    extras: dict[str, list[str]]
    metadata: dict[str, Any]


class _Locked(TypedDict, total=False):
    version: str
    hashes: list[str]
    markers: str
    extras: list[str]
    git: str
    ref: str
    subdirectory: str
    path: str
    editable: bool
    file: str


_EXTRA = re.compile(r"""extra\s*(?P<op>==|!=)\s*(?P<quote>['"])(?P<name>[^'"]+)(?P=quote)""")


def parse_poetry_lock(text: str, file: str, *, asked: tuple[str, ...]) -> Part:
    """Parse a ``poetry.lock``: the main group, and the requested groups and extras."""
    data: _Poetry = shaped(load_toml(text, file), _Poetry, file)
    meta, packages, where = data.get("metadata", {}), data.get("package", []), finder(text, file)
    version = str(meta.get("lock-version", ""))
    if not version:
        hint = "write it again: poetry lock"
        raise UsageError(f"{file} is not a Poetry lock file", evidence="it has no lock-version", hint=hint)
    if not version.startswith(("1.", "2.")):
        raise UsageError(f"{file} has the unknown version {version}", hint="update argosy")
    if version.startswith("1.") or version == "2.0":
        raise UsageError(
            f"{file} has version {version}, which does not record the groups of packages",
            hint="lock again with Poetry 2, or pass the file that 'poetry export -o requirements.txt' writes",
        )
    groups = {canonicalize_name(group): None for package in packages for group in package.get("groups", ())}
    extras = {canonicalize_name(name): None for name in data.get("extras", {})}
    wanted = _chosen(asked, (*extras, *(name for name in groups if name != MAIN)), file)
    read = [(package, _poetry_line(package, wanted, where(f'name = "{package["name"]}"'))) for package in packages]
    sources = [package.get("source", {}) for package, line in read if line]
    indexes = dict.fromkeys(each.get("url", "").rstrip("/") for each in sources if each.get("type") == "legacy")
    python = _python(str(meta.get("python-versions", "")))
    unrequested = [name for name in (*groups, *extras) if name not in wanted]
    return Part(
        python=(Asked("python", python, where("python-versions = ")),) if python else (),
        pip=tuple(line for _, line in read if line),
        options=tuple(PipOption("extra-index-url", url, where(url)) for url in indexes),
        notes=_left_out(unrequested, where("[metadata]")),
        complete=True,
    )


def _chosen(asked: Iterable[str], known: Iterable[str], file: str) -> frozenset[str]:
    """Return the normalised names of the main group and the requested ones."""
    names = list(known)
    for name in asked:
        if canonicalize_name(name) not in names:
            raise _unknown_group(file, name, names)
    return frozenset((MAIN, *(canonicalize_name(name) for name in asked)))


def _left_out(names: Iterable[str], where: Where) -> tuple[Note, ...]:
    listed = ", ".join(names)
    return (Note(f"not requested and not installed: {listed}", where),) if listed else ()


def _poetry_line(package: _Package, wanted: frozenset[str], where: Where) -> PipLine | None:
    """Return the line of a package; None if none of its groups or extras is requested."""
    markers = package.get("markers", "")
    chosen_groups = [group for group in package.get("groups", [MAIN]) if canonicalize_name(group) in wanted]
    texts = [markers if isinstance(markers, str) else markers.get(group, "") for group in chosen_groups]
    answered = [_EXTRA.sub(lambda found: _answer(found, wanted), text) for text in texts]
    holding = [text for text in answered if not (text and _is_never(text, where))]
    if not holding:
        return None
    marker = "" if "" in holding else " or ".join(f"({text})" for text in dict.fromkeys(holding))
    hashes = {file.get("hash", "") for file in package.get("files", ())}
    name, source = canonicalize_name(package["name"]), package.get("source", {})
    part = _part(source)
    path, address, url = "", "", source.get("url", "")
    match source.get("type", ""):
        case "directory" | "file":
            path = url
        case "git":
            at = source.get("resolved_reference") or source.get("reference", "")
            address = f"{url if url.startswith('git+') else f'git+{url}'}@{at}{part}"
        case "url":
            address = f"{url}{part}"
    version, editable = package["version"], package.get("develop", False)
    line = locked_line(name, where, version=version, address=address, path=path, marker=marker, hashes=hashes)
    return replace(line, editable=editable)


def _answer(found: re.Match[str], wanted: frozenset[str]) -> str:
    return ALWAYS if (canonicalize_name(found["name"]) in wanted) == (found["op"] == "==") else NEVER


def _python(text: str) -> str:
    """Convert Poetry's Python versions to conda's syntax: ``^3.10`` is ``>=3.10,<4``, ``~3.10`` is ``=3.10``."""
    choices = [re.sub(r"\s*,\s*|(?<=[\d*])\s+(?=[<>=!^~])", ",", each.strip()) for each in text.split("||")]
    parts = [[_python_part(part.replace(" ", "")) for part in choice.split(",")] for choice in choices]
    return "" if any(part == [""] for part in parts) else "|".join(",".join(filter(None, part)) for part in parts)


def _python_part(part: str) -> str:
    if found := re.fullmatch(r"\^(\d+)(\.[\d.]+)?", part):
        return f">={part[1:]},<{int(found[1]) + 1}"
    if part.startswith("~") and not part.startswith("~="):
        return f"={'.'.join(part[1:].split('.')[:2])}"
    return "" if part == "*" else f"={part}" if part[:1].isdigit() else part


def parse_pipfile_lock(text: str, file: str, *, asked: tuple[str, ...], environment: Mapping[str, str] | None) -> Part:
    """Parse a ``Pipfile.lock``: the default packages and the requested categories (for example ``develop``)."""
    try:
        data = decode_json(text, dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{file} is not JSON", evidence=str(error), hint="write it again: pipenv lock") from error
    rows = shaped(data, dict[str, dict[str, Any]], file)
    meta = rows.pop("_meta", {})
    tables = shaped(rows, dict[str, dict[str, _Locked]], file)
    if DEFAULT not in tables:
        raise UsageError(
            f"{file} is not a pipenv lock file", evidence=f"it has no '{DEFAULT}'", hint="write it again: pipenv lock"
        )
    where = finder(text, file)
    wanted = _chosen(asked, (name for name in tables if name != DEFAULT), file)
    chosen = [name for name in tables if name == DEFAULT or canonicalize_name(name) in wanted]
    named = {key: row for name in chosen for key, row in tables[name].items()}
    unrequested = [name for name in tables if name not in chosen and tables[name]]
    return Part(
        python=tuple(_pipenv_python(meta, where)),
        pip=tuple(_pipenv_line(name, row, where(f'"{name}": {{')) for name, row in named.items()),
        options=tuple(_pipenv_indexes(meta, where, environment or {})),
        notes=_left_out(unrequested, where(f'"{DEFAULT}"')),
        complete=True,
    )


def _pipenv_python(meta: Mapping[str, Any], where: Finder) -> Iterator[Asked]:
    requires = meta.get("requires")
    for key, operator in (("python_full_version", "=="), ("python_version", "=")):
        if isinstance(requires, dict) and requires.get(key):
            yield Asked("python", f"{operator}{requires[key]}", where(key))
            return


def _pipenv_indexes(meta: Mapping[str, Any], where: Finder, environment: Mapping[str, str]) -> Iterator[PipOption]:
    """Yield the indexes; the first one replaces PyPI."""
    sources = [row for row in meta.get("sources") or () if isinstance(row, dict) and row.get("url")]
    for number, row in enumerate(sources):
        written = str(row["url"])
        url = expand(re.sub(r"\$([A-Z0-9_]+)", r"${\1}", written), where(written), environment)
        if url.rstrip("/") not in OF_PYPI:
            yield PipOption("extra-index-url" if number else "index-url", url, where(written))


def _pipenv_line(name: str, row: _Locked, where: Where) -> PipLine:
    part = _part(row)
    address = f"{row['file']}{part}" if row.get("file") else ""
    if git := row.get("git"):
        address = f"{git if git.startswith('git+') else f'git+{git}'}@{row.get('ref', 'HEAD')}{part}"
    version = row.get("version", "")
    line = locked_line(
        canonicalize_name(name), where, version=version[2:] if version.startswith("==") else "", address=address,
        path=row.get("path", ""), marker=row.get("markers", ""), extras=row.get("extras", ()),
        hashes=row.get("hashes", ()),
    )  # fmt: skip
    return replace(line, editable=row.get("editable", False))
