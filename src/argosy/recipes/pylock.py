"""Parse a pylock.toml, and hold a project to its uv.lock; it opens no file.

Source: "pylock.toml specification" of the Python packaging user guide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Required, TypedDict

from packaging.markers import Marker
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.recipes.pyproject import at_address
from argosy.recipes.recipe import PYPI, Asked, Note, Part, PipKind, PipLine, PipOption, Where
from argosy.recipes.toml_source import checked_marker, finder, load_toml, shaped

_Place = TypedDict("_Place", {"url": str, "path": str, "commit-id": str, "hashes": dict[str, str]}, total=False)


class _Package(TypedDict, total=False):
    name: Required[str]
    version: str
    marker: str
    index: str
    wheels: list[_Place]
    sdist: _Place
    archive: _Place
    vcs: _Place
    directory: _Place


class _Lock(TypedDict, total=False):
    packages: list[_Package]


_OF_LOCK = re.compile(
    r"""(?P<quote>['"])(?P<name>[^'"]*)(?P=quote)\s+(?P<not>not\s+)?in\s+(?P<list>extras|dependency_groups)\b"""
)
"""What only markers of a lock ask: whether an extra or a group is wanted."""

ALWAYS, NEVER = "python_version >= '0'", "python_version < '0'"


def _without_groups(marker: str, wanted: frozenset[str]) -> str:
    """Answer what a marker asks about extras and groups; what is left asks about the machine alone."""

    def answer(found: re.Match[str]) -> str:
        return ALWAYS if (str(canonicalize_name(found["name"])) in wanted) != bool(found["not"]) else NEVER

    return _OF_LOCK.sub(answer, marker)


def is_never(marker: str) -> bool:
    """Tell whether a marker asks nothing about the machine, and does not hold."""
    left = re.sub(r"python_version (?:>=|<) '0'|\band\b|\bor\b|[()\s]", "", marker)
    return not left and not Marker(marker).evaluate()


def parse_pylock(text: str, file: str, *, extras: tuple[str, ...]) -> Part:
    """Parse a ``pylock.toml``: each package at its version, with the hashes of its files.

    Parameters
    ----------
    extras
        Names of extras or of dependency groups, beside the groups that the lock has by default.

    Raises
    ------
    UsageError
        For a version of the format that is not known, or a package that comes from a folder.
    """
    data = load_toml(text, file)
    if not str(data.get("lock-version", "")).startswith("1."):
        raise UsageError(f"{file} is no pylock.toml of version 1", hint="make it anew: uv export --format pylock.toml")
    where = finder(text, file)
    notes: list[Note] = []
    pip: list[PipLine] = []
    default = data.get("default-groups", [])
    names = (*extras, *(default if isinstance(default, list) else ()))
    wanted = frozenset(str(canonicalize_name(str(name))) for name in names)
    _refuse_unknown(extras, data, file)
    for package in shaped(data, _Lock, file).get("packages", ()):
        here = where(f'name = "{package.get("name")}"')
        marker = str(package.get("marker", ""))
        answered = _without_groups(marker, wanted)
        if answered != marker and is_never(checked_marker(answered, here).replace('"', "'")):
            notes.append(Note(f"{package['name']} is left out: it is of an extra or a group ({marker})", here))
            continue
        pip.append(_locked(package, answered, here))
    python = str(data.get("requires-python", "")).replace(" ", "")
    asked = (Asked("python", python, where("requires-python")),) if python else ()
    indexes = dict.fromkeys(str(row["index"]).rstrip("/") for row in data.get("packages", ()) if row.get("index"))
    options = tuple(PipOption("extra-index-url", url, where(url)) for url in indexes if url != PYPI)
    return Part(python=asked, pip=tuple(pip), options=options, notes=tuple(notes), complete=True)


def _refuse_unknown(extras: tuple[str, ...], data: Mapping[str, Any], file: str) -> None:
    """Refuse an extra that the lock does not have, where it says which it has."""
    lists = [data.get(key, []) for key in ("extras", "dependency-groups")]
    known = [str(name) for each in lists if isinstance(each, list) for name in each]
    normal = {str(canonicalize_name(name)) for name in known}
    for extra in extras:
        if str(canonicalize_name(extra)) not in normal:
            raise UsageError(f"{file} has no extra or group '{extra}'", evidence=f"it has {', '.join(known) or 'none'}")


def _locked(package: _Package, marker: str, where: Where) -> PipLine:
    name = str(canonicalize_name(str(package["name"])))
    behind = f" ; {checked_marker(marker, where)}" if marker else ""
    if "directory" in package:
        path = str(package["directory"].get("path", "."))
        return PipLine(path, "", PipKind.LOCAL, where, path=path, marker=marker)
    if vcs := package.get("vcs"):
        spec = f"{name} @ git+{vcs.get('url')}@{vcs.get('commit-id')}{behind}"
        return PipLine(spec, name, PipKind.VCS, where, spec=spec)
    if archive := package.get("archive"):
        hashes = tuple(f"sha256:{digest}" for digest in [archive.get("hashes", {}).get("sha256")] if digest)
        spec = f"{name} @ {archive.get('url')}{behind}"
        return PipLine(spec, name, PipKind.URL, where, spec=spec, hashes=hashes)
    files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
    digests = {str(file.get("hashes", {}).get("sha256", "")) for file in files} - {""}
    if "version" not in package:
        raise UsageError(f"{name} has no version", evidence=str(where), hint="lock again with its own tool")
    pinned = f"{name}=={package['version']}{behind}"
    hashes = tuple(sorted(f"sha256:{digest}" for digest in digests))
    return PipLine(pinned, name, PipKind.INDEX, where, spec=pinned, hashes=hashes)


def hold_to_lock(project: Part, locked: Part) -> Part:
    """Join a project and its lock: what it names by an address is taken at that of the lock.

    Of its own overrides those hold that the lock has no address for; what a repository asks for in turn is overridden.
    """
    paths = {line.name: line for line in locked.overrides}
    own = {line.name for line in project.pip}
    return replace(
        project,
        pip=tuple(_held(line, paths.get(line.name)) for line in project.pip),
        constraints=project.constraints + locked.constraints,
        options=tuple(option.for_all for option in project.options),
        overrides=(
            *(line for line in project.overrides if line.name not in paths),
            *(line for line in locked.overrides if line.name not in own),
        ),
        sources=project.sources + locked.sources,
    )


def _held(line: PipLine, place: PipLine | None) -> PipLine:
    line = replace(line, index=None)  # its hash holds it: a mirror may bring the same file
    if place is None or line.kind not in (PipKind.VCS, PipKind.URL, PipKind.INDEX):
        return line
    spec = at_address(line, place.spec.partition(" @ ")[2])
    return replace(line, kind=place.kind, spec=spec, hashes=place.hashes)
