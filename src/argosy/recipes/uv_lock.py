"""Parse a uv.lock (version 1) into constraints for its project.

A lock may contain several versions of a package, for extras that exclude each other or for different machines. The
parser keeps those that the project depends on, with the requested extras and groups, on Linux.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, Required, TypedDict

from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.toml_lines import load_toml
from argosy.recipes.pyproject import ON_LINUX, at_address
from argosy.recipes.recipe import Part, PipKind, PipLine, bad_line
from argosy.recipes.requirements import at_commit, locked_line
from argosy.recipes.source_text import Finder, finder, shaped

_Package = dict[str, Any]


class _Need(TypedDict, total=False):
    name: Required[str]
    version: str
    source: dict[str, str]
    marker: str
    extra: list[str]


_Entry = TypedDict(
    "_Entry",
    {
        "name": Required[str],
        "version": str,
        "source": dict[str, str],
        "resolution-markers": list[str],
        "dependencies": list[_Need],
        "optional-dependencies": dict[str, list[_Need]],
        "dev-dependencies": dict[str, list[_Need]],
        "wheels": list[dict[str, Any]],
        "sdist": dict[str, Any],
    },
    total=False,
)


class _Lock(TypedDict, total=False):
    package: list[_Entry]


MACHINES: tuple[dict[str, str], ...] = tuple(
    {
        **ON_LINUX,
        "platform_machine": machine,
        "python_version": f"3.{minor}",
        "python_full_version": f"3.{minor}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }
    for machine, minor in product(("x86_64", "aarch64"), range(8, 20))
)
"""All machines and Python versions that an image may have: the base is not known yet."""

_CONFLICT = re.compile(r"extra\s*(?P<op>==|!=)\s*'(?:extra|group|project)-\d+-(?P<name>[^']+)'")
"""uv's form of conditions on extras and groups that exclude each other."""


OUTDATED = "the lock is older than the project: run 'uv lock', and build again"
"""The hint for a lock that does not fit its project."""


def parse_uv_lock(text: str, file: str, *, project: str, asked: tuple[str, ...], needed: Part) -> Part:
    """Parse a ``uv.lock`` into constraints: each package at its version, with the hashes of its files.

    Parameters
    ----------
    project
        The project's folder, relative to that of the lock.
    asked
        Names of requested extras and groups.
    needed
        The project's dependencies, which the lock must contain.
    """
    data = load_toml(text, file)
    if data.get("version") != 1:
        raise UsageError(f"{file} has the unknown version {data.get('version')}", hint="update argosy")
    where = finder(text, file)
    every: list[_Package] = shaped(data, _Lock, file).get("package", [])
    _refuse_outdated(set(map(_name, every)), file, needed)
    packages = _choose_versions(every, project, frozenset(canonicalize_name(x) for x in asked))
    return Part(
        constraints=tuple(_line(package, where) for package in packages if _is_pin(package)),
        overrides=tuple(_line(package, where) for package in packages if _address(package.get("source", {}))),
    )


def _refuse_outdated(locked: set[str], file: str, needed: Part) -> None:
    """Refuse a lock without a dependency. uv omits those that a marker or an override excludes from the project."""
    omitted = {line.name for line in needed.overrides}
    for line in needed.pip:
        if line.name not in locked | omitted and ";" not in line.requirement:
            raise bad_line(f"{file} does not contain {line.name}", line.where, line.text, hint=OUTDATED)


def _name(row: Mapping[str, Any]) -> str:
    return canonicalize_name(str(row.get("name", "")))


def _is_pin(package: _Package) -> bool:
    return "registry" in package.get("source", {}) and bool(package.get("version"))


def _line(package: _Package, where: Finder) -> PipLine:
    name, marker = _name(package), " or ".join(f"({each})" for each in package.get("resolution-markers", ()))
    address = _address(package["source"])
    return locked_line(
        name, where(f'name = "{name}"'), version=package.get("version", ""), address=address,
        marker="" if address else marker, hashes=_files_hashes(package),
    )  # fmt: skip


def _address(source: Mapping[str, Any]) -> str:
    """Return the address of a package that is not from an index: a repository at the locked commit, or a file."""
    if git := source.get("git"):
        return at_commit(f"git+{git}")
    url, part = str(source.get("url", "")), source.get("subdirectory")
    return f"{url}#subdirectory={part}" if url and part else url


def _files_hashes(package: Mapping[str, Any]) -> tuple[str, ...]:
    files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
    found = {str(file.get("hash", "")) for file in files if isinstance(file, dict)}
    return tuple(digest for digest in found if digest.startswith("sha256:"))


def _choose_versions(packages: list[_Package], project: str, asked: frozenset[str]) -> list[_Package]:
    """Return the packages without those versions, out of several, on which the project does not depend."""
    named: dict[str, list[_Package]] = {}
    for package in packages:
        named.setdefault(_name(package), []).append(package)
    root = next((package for package in packages if _folder(package) == project), None)
    if root is None or len(named) == len(packages):
        return packages
    reached = _reach(root, named, asked)
    return [package for package in packages if len(named[_name(package)]) == 1 or id(package) in reached]


def _folder(package: _Package) -> str:
    source = package.get("source", {})
    return str(next((source[kind] for kind in ("virtual", "editable", "directory") if kind in source), ""))


def _reach(root: _Package, named: Mapping[str, list[_Package]], asked: frozenset[str]) -> frozenset[int]:
    """Return the `id` of each package that a package depends on, directly or indirectly."""
    own = _name(root)
    active = frozenset(f"{own}-{extra}" for extra in asked) | {own}
    seen: set[tuple[int, frozenset[str]]] = set()
    waiting = [(root, asked)]
    while waiting:
        package, extras = waiting.pop()
        if (id(package), extras) in seen:
            continue
        seen.add((id(package), extras))
        for row in _needs(package, extras):
            if _may_hold(str(row.get("marker", "")), active):
                wanted = frozenset(canonicalize_name(extra) for extra in row.get("extra", ()))
                waiting += [(one, wanted) for one in named.get(_name(row), ()) if _is_named(one, row)]
    return frozenset(number for number, _ in seen)


def _needs(package: _Package, extras: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    yield from package.get("dependencies", ())
    for table in ("optional-dependencies", "dev-dependencies"):
        for key, rows in package.get(table, {}).items():
            if canonicalize_name(key) in extras:
                yield from rows


def _is_named(package: _Package, row: Mapping[str, Any]) -> bool:
    """Return whether a dependency means this package; uv adds version and source if there are several."""
    return all(row.get(key, package.get(key)) == package.get(key) for key in ("version", "source"))


def _may_hold(marker: str, active: frozenset[str]) -> bool:
    """Return whether a marker holds for any possible image with these extras."""
    if not marker:
        return True
    try:
        decided = Marker(_CONFLICT.sub(partial(_decided, active), marker))
        return any(decided.evaluate(dict(machine)) for machine in MACHINES)
    except (InvalidMarker, UndefinedEnvironmentName):
        return True


def _decided(active: frozenset[str], found: re.Match[str]) -> str:
    return "extra == ''" if (found["name"] in active) == (found["op"] == "==") else "extra != ''"


def hold_to_lock(project: Part, locked: Part) -> Part:
    """Apply a lock to its project: packages with an address get the locked address.

    The project's overrides are kept unless the lock has an address for the package. Dependencies of repositories are
    overridden by the lock.
    """
    paths = {line.name: line for line in locked.overrides}
    own = {line.name for line in project.pip}
    return replace(
        project,
        pip=tuple(_locked_line(line, paths.get(line.name)) for line in project.pip),
        constraints=project.constraints + locked.constraints,
        options=tuple(option.for_all for option in project.options),
        overrides=(
            *(line for line in project.overrides if line.name not in paths),
            *(line for line in locked.overrides if line.name not in own),
        ),
        sources=project.sources + locked.sources,
    )


def _locked_line(line: PipLine, place: PipLine | None) -> PipLine:
    line = replace(line, index=None)  # the hash identifies the file, so any mirror may provide it
    if place is None or line.kind not in (PipKind.VCS, PipKind.URL, PipKind.INDEX):
        return line
    spec = at_address(line, place.spec.partition(" @ ")[2])
    return replace(line, kind=place.kind, spec=spec, hashes=place.hashes)
