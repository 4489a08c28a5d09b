"""Read tables of other tools in ``pyproject.toml``: uv's workspace, and packages of Poetry, PDM, hatch and pixi.

In a uv workspace, ``tool.uv`` of the root applies to all members; a member's own sources take precedence.

Sources: "Using workspaces" of uv's documentation, "The pyproject.toml file" of Poetry 2, "pyproject.toml" of PDM, hatch
and pixi.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.toml_lines import load_toml
from argosy.recipes.recipe import Note
from argosy.recipes.source_text import Finder, decode

FILE = "pyproject.toml"


class Workspace(msgspec.Struct, frozen=True):
    """Projects that are locked together."""

    root: Path
    """Folder of the lock and of the project file that lists the members."""
    members: Mapping[str, Path]
    """Folder of each project, by the project's name."""
    uv: Mapping[str, Any]
    """The root's table ``tool.uv``."""

    @property
    def sources(self) -> dict[str, Any]:
        """Return the root's sources with absolute paths."""
        found = self.uv.get("sources")
        return {name: self._absolute_source(each) for name, each in found.items()} if isinstance(found, dict) else {}

    @property
    def indexes(self) -> list[dict[str, Any]]:
        """Return the root's indexes with absolute paths."""
        found = self.uv.get("index")
        rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        return [{**row, "url": _in_folder(str(row.get("url", "")), self.root)} for row in rows]

    def _absolute_source(self, source: Any) -> Any:
        if isinstance(source, list):
            return [self._absolute_source(each) for each in source]
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            return {**source, "path": str(self.root / source["path"])}
        return source

    def member_at(self, path: str) -> bool:
        """Return whether a folder is that of a member."""
        return Path(path) in self.members.values()


def _in_folder(address: str, folder: Path) -> str:
    """Return the address of an index; a relative path becomes absolute."""
    return address if "://" in address or not address else str(folder / address)


def find_workspace(project: Path) -> Workspace | None:
    """Return the workspace of which a project is a member, defined in the closest parent folder; None without one."""
    project = project.resolve()
    for folder in (project, *project.parents):
        uv = table_at(_tables(folder), "tool", "uv")
        table = uv.get("workspace")
        if isinstance(table, dict):
            members = {_name(place): place for place in (folder, *_folders(folder, table))}
            return Workspace(folder, members, uv) if project in members.values() else None
    return None


def _folders(root: Path, table: Mapping[str, Any]) -> Iterator[Path]:
    left_out = set(_matching(root, table.get("exclude")))
    for folder in _matching(root, table.get("members")):
        if folder not in left_out and (folder / FILE).is_file():
            yield folder


def _matching(root: Path, patterns: Any) -> Iterator[Path]:
    for pattern in patterns if isinstance(patterns, list) else []:
        inside = Path(str(pattern))
        if inside.parts and not inside.is_absolute():
            with contextlib.suppress(OSError):
                yield from sorted(path.resolve() for path in root.glob(str(inside)))


def is_virtual(folder: Path) -> bool:
    """Return whether only the dependencies of a project are installed, not the project itself."""
    return table_at(_tables(folder), "tool", "uv").get("package", True) is False


def _name(folder: Path) -> str:
    return canonicalize_name(str(table_at(_tables(folder), "project").get("name", "")))


def _tables(folder: Path) -> dict[str, Any]:
    """Read a project file; return nothing if it is missing or invalid, as it may belong to somebody else."""
    try:
        return load_toml(decode((folder / FILE).read_bytes(), FILE), FILE)
    except (OSError, UsageError):
        return {}


PLACES = frozenset({"git", "path", "url", "file", "source"})
"""Keys with which Poetry installs a package from another source than the index."""

NOT_READ = {
    ("poetry",): "", ("pdm",): "", ("hatch", "envs"): "",
    ("pixi",): "; pass pixi.lock to install them", ("conda-lock",): "; pass conda-lock.yml to install them",
}  # fmt: skip
"""Table of a tool whose packages are not installed -> what to do."""

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")

Tables = Mapping[str, Any]


def note_other_tables(tools: Tables, wanted: Collection[str], own: str, file: str, where: Finder) -> Iterator[Note]:
    """Yield a note for each table of another tool whose packages or indexes a build ignores.

    Parameters
    ----------
    tools
        The table ``tool``.
    wanted
        Normalised names of the packages in ``[project]`` and in the requested groups.
    own
        Normalised name of the project itself.
    """
    _refuse_poetry(table_at(tools, "poetry"), wanted, file, where)
    for place, remedy in NOT_READ.items():
        name = f"tool.{'.'.join(place)}"
        lost = sorted({*map(canonicalize_name, _packages(table_at(tools, *place)))} - {*wanted, own, "python"})
        if lost:
            text = f"the packages of [{name}] are not installed: {', '.join(lost)}{remedy}"
            yield Note(text, where(f"[{name}"))
    for tool in ("poetry", "pdm"):
        if table_at(tools, tool).get("source"):
            text = f"the indexes of [[tool.{tool}.source]] are not used; set UV_INDEX=URL to add one"
            yield Note(text, where(f"[[tool.{tool}.source"))
    if table_at(tools, "pdm", "resolution").get("overrides"):
        yield Note("the overrides of [tool.pdm.resolution] are ignored", where("[tool.pdm.resolution"))


def _packages(table: Tables) -> Iterator[str]:
    """Yield the names of packages in the tables and lists of dependencies, at any depth."""
    for key, value in table.items():
        if key.endswith("dependencies"):
            yield from _names(value)
        elif isinstance(value, Mapping):
            yield from _packages(value)


def _names(listed: Any) -> Iterator[str]:
    for each in listed if isinstance(listed, list | Mapping) else ():
        spec = listed[each] if isinstance(listed, Mapping) else ""
        if isinstance(spec, list) and all(isinstance(text, str) for text in spec):
            yield from _names(spec)  # a group of PDM
        elif not _is_optional(spec) and (found := NAME.match(str(each))):
            yield found[0]


def poetry_groups(tools: Tables) -> tuple[str, ...]:
    """Return Poetry's groups that contain packages; ``dev-dependencies`` of Poetry 1 is the group dev."""
    groups = table_at(tools, "poetry", "group")
    named = [name for name in groups if table_at(groups, name).get("dependencies")]
    return (*named, *(("dev",) if table_at(tools, "poetry").get("dev-dependencies") else ()))


def _refuse_poetry(poetry: Tables, wanted: Collection[str], file: str, where: Finder) -> None:
    asked = {name: spec for name, spec in table_at(poetry, "dependencies").items() if name != "python"}
    lost = [name for name, spec in asked.items() if canonicalize_name(name) not in wanted and not _is_optional(spec)]
    elsewhere = [name for name, spec in asked.items() if canonicalize_name(name) in wanted and _has_source(spec)]
    if not lost and not elsewhere:
        return
    what = "packages" if lost else "sources of packages"
    raise UsageError(
        f"{file} has {what} in [tool.poetry.dependencies], which Argosy does not read",
        evidence=f"{where('[tool.poetry.dependencies')}: {', '.join(lost or elsewhere)}",
        hint="pass the poetry.lock that 'poetry lock' writes, or move them into 'dependencies' of [project]",
    )


def _is_optional(spec: Any) -> bool:
    return isinstance(spec, dict) and bool(spec.get("optional"))


def _has_source(spec: Any) -> bool:
    return any(isinstance(each, dict) and PLACES & each.keys() for each in (spec if isinstance(spec, list) else [spec]))


def table_at(tables: Tables, *keys: str) -> dict[str, Any]:
    """Return a table of TOML by its keys; empty if it does not exist."""
    found: Any = tables
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}
