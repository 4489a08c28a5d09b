"""Parse a Python project's files: pyproject.toml with its uv.lock, and pylock.toml; it opens no file.

Sources: "pyproject.toml specification" and "pylock.toml specification" of the Python packaging user guide; uv.lock by
its own text (version 1).  A uv.lock becomes constraints: what the project asks for, at the versions it was locked to.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from argosy.errors import UsageError
from argosy.recipe.records import Asked, Note, Part, PipKind, PipLine, PipOption, Where, bad_line
from argosy.recipe.requirements import parse_package
from argosy.records import replace

PYPI = "https://pypi.org/simple"


def parse_pyproject(text: str, file: str, *, extras: tuple[str, ...] = ()) -> Part:
    """Parse what a project needs to run: its dependencies, those of `extras`, its Python, and where uv looks for them.

    Raises
    ------
    UsageError
        For TOML that does not parse, a file without a project, dependencies that only its build knows.
    """
    data = _load(text, file)
    project = data.get("project")
    if not isinstance(project, dict):
        raise UsageError(f"{file} has no [project]", hint="list the packages in a requirements.txt")
    if "dependencies" in project.get("dynamic", ()):
        hint = "name the file that they come from, as requirements.txt"
        raise UsageError(f"the dependencies in {file} are dynamic: only the project's build knows them", hint=hint)
    wanted = [*_texts(project, "dependencies", file)]
    optional = project.get("optional-dependencies", {})
    for extra in extras:
        if extra not in optional:
            raise UsageError(f"{file} has no extra '{extra}'", evidence=f"it has {', '.join(optional) or 'none'}")
        wanted += _texts(optional, extra, file)
    where = _finder(text, file)
    uv = data.get("tool", {}).get("uv", {})
    sources = {str(canonicalize_name(name)): source for name, source in uv.get("sources", {}).items()}
    pip = tuple(_sourced(parse_package(line, where(line), line), sources) for line in wanted)
    python = str(project.get("requires-python", ""))
    said = "the project itself is not installed, only what it needs: its code can change without a new image"
    return Part(
        python=(Asked("python", python.replace(" ", ""), where("requires-python")),) if python else (),
        pip=pip,
        options=tuple(_indexes(uv, where)),
        notes=(Note(said, where("[project]")),),
    )


def _texts(table: dict[str, Any], key: str, file: str) -> list[str]:
    value = table.get(key, [])
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UsageError(f"{file}: '{key}' is no list of texts")
    return value


def _tables(data: dict[str, Any], key: str, file: str) -> list[dict[str, Any]]:
    rows = data.get(key, [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.get("name") for row in rows):
        raise UsageError(f"{file} has no list '{key}' of packages with names", hint="lock again with its own tool")
    return rows


def _finder(text: str, file: str) -> Any:
    lines = text.splitlines()

    def where(part: str) -> Where:
        return Where(file, next((number for number, line in enumerate(lines, 1) if part in line), 1))

    return where


def _sourced(line: PipLine, sources: dict[str, Any]) -> PipLine:
    """Follow ``tool.uv.sources``: a git address, an archive, a folder; another index is one for all packages."""
    source = sources.get(line.name)
    if not isinstance(source, dict):
        return line
    if git := source.get("git"):
        at = next((f"@{source[key]}" for key in ("rev", "tag", "branch") if source.get(key)), "")
        url = git if str(git).startswith("git+") else f"git+{git}"
        return replace(line, kind=PipKind.VCS, spec=f"{line.name} @ {url}{at}")
    if url := source.get("url"):
        return replace(line, kind=PipKind.URL, spec=f"{line.name} @ {url}")
    if path := source.get("path"):
        return replace(line, kind=PipKind.LOCAL, spec="", path=str(path), editable=bool(source.get("editable")))
    if source.get("workspace"):
        raise bad_line("a workspace's own packages are not followed", line.where, line.text, hint="name their folders")
    return line


def _indexes(uv: dict[str, Any], where: Any) -> Iterator[PipOption]:
    for index in uv.get("index", ()):
        if isinstance(index, dict) and (url := index.get("url")):
            yield PipOption("index-url" if index.get("default") else "extra-index-url", str(url), where(str(url)))


def parse_uv_lock(text: str, file: str) -> Part:
    """Parse a ``uv.lock`` into constraints: each package at its version, with the hashes of its files.

    Raises
    ------
    UsageError
        When it is of a version that is not known.
    """
    data = _load(text, file)
    if data.get("version") != 1:
        raise UsageError(f"{file} is of version {data.get('version')}, which is not known", hint="update argosy")
    where = _finder(text, file)
    constraints: list[PipLine] = []
    for package in _tables(data, "package", file):
        name, version = str(canonicalize_name(package["name"])), str(package.get("version", ""))
        if "registry" not in package.get("source", {}) or not version:
            continue
        markers = package.get("resolution-markers", ())
        marker = " or ".join(f"({each})" for each in markers)
        hashes = _hashes([*package.get("wheels", ()), *filter(None, [package.get("sdist")])])
        pinned = f"{name}=={version}" + (f" ; {_marker(marker, where(marker))}" if marker else "")
        constraints.append(PipLine(pinned, name, PipKind.INDEX, where(f'name = "{name}"'), spec=pinned, hashes=hashes))
    return Part(constraints=tuple(constraints))


def _hashes(files: list[Any]) -> tuple[str, ...]:
    found = {str(file.get("hash", "")) for file in files if isinstance(file, dict)}
    return tuple(sorted(digest for digest in found if digest.startswith("sha256:")))


def _marker(text: str, where: Where) -> str:
    try:
        return str(Marker(text))
    except InvalidMarker as error:
        raise bad_line("this is no environment marker", where, text) from error


def parse_pylock(text: str, file: str) -> Part:
    """Parse a ``pylock.toml``: each package at its version, with the hashes of its files.

    Raises
    ------
    UsageError
        For a version of the format that is not known, or a package that comes from a folder.
    """
    data = _load(text, file)
    if not str(data.get("lock-version", "")).startswith("1."):
        raise UsageError(f"{file} is no pylock.toml of version 1", hint="make it anew: uv export --format pylock.toml")
    where = _finder(text, file)
    notes: list[Note] = []
    pip: list[PipLine] = []
    for package in _tables(data, "packages", file):
        here = where(f'name = "{package.get("name")}"')
        marker = str(package.get("marker", ""))
        if "extras" in marker or "dependency_groups" in marker:
            notes.append(Note(f"{package['name']} is left out: it is of an extra or a group ({marker})", here))
            continue
        pip.append(_locked(package, marker, here))
    python = str(data.get("requires-python", "")).replace(" ", "")
    asked = (Asked("python", python, where("requires-python")),) if python else ()
    indexes = dict.fromkeys(str(row["index"]).rstrip("/") for row in data.get("packages", ()) if row.get("index"))
    options = tuple(PipOption("extra-index-url", url, where(url)) for url in indexes if url != PYPI)
    return Part(python=asked, pip=tuple(pip), options=options, notes=tuple(notes))


def _locked(package: dict[str, Any], marker: str, where: Where) -> PipLine:
    name = str(canonicalize_name(str(package["name"])))
    behind = f" ; {_marker(marker, where)}" if marker else ""
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
    pinned = f"{name}=={package['version']}{behind}"
    hashes = tuple(sorted(f"sha256:{digest}" for digest in digests))
    return PipLine(pinned, name, PipKind.INDEX, where, spec=pinned, hashes=hashes)


def _load(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{file} is not TOML", evidence=f"{file}: {error}") from error
