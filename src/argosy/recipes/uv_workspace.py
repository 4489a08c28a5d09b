"""Find the uv workspace that a project is of, and where its other projects lie; it reads ``pyproject.toml`` files.

Source: "Using workspaces" of uv's documentation.  The root's ``tool.uv`` holds for all members; of sources a member's
own come first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.recipes.requirement_lines import decode
from argosy.recipes.toml_source import load_toml

FILE = "pyproject.toml"


class Workspace(msgspec.Struct, frozen=True):
    """Projects that are locked together.

    Attributes
    ----------
    root
        The folder whose project file names the members; the lock is there.
    members
        Folders by the name of the project.
    uv
        The root's ``tool.uv``.
    """

    root: Path
    members: Mapping[str, Path]
    uv: Mapping[str, Any]

    @property
    def sources(self) -> dict[str, Any]:
        """Give where the root takes packages from, for a reader that is in another folder."""
        found = self.uv.get("sources")
        return {name: self._placed(each) for name, each in found.items()} if isinstance(found, dict) else {}

    @property
    def indexes(self) -> list[dict[str, Any]]:
        """Give the root's indexes, for a reader that is in another folder."""
        found = self.uv.get("index")
        rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        return [{**row, "url": _in_folder(str(row.get("url", "")), self.root)} for row in rows]

    def _placed(self, source: Any) -> Any:
        if isinstance(source, list):
            return [self._placed(each) for each in source]
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            return {**source, "path": str(self.root / source["path"])}
        return source

    def member_at(self, path: str) -> bool:
        """Tell whether a folder is that of a member."""
        return Path(path) in self.members.values()


def _in_folder(address: str, folder: Path) -> str:
    """Give the address of an index for a reader that is in another folder: a path begins at that of its file."""
    return address if "://" in address or not address else str(folder / address)


def find_workspace(project: Path) -> Workspace | None:
    """Find the workspace of a project's folder: that of the nearest folder above it that has one, if it is a member."""
    project = project.resolve()
    for folder in (project, *project.parents):
        uv = _uv(_tables(folder))
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
    """Tell whether a project is never installed, only what it needs."""
    return _uv(_tables(folder)).get("package", True) is False


def _name(folder: Path) -> str:
    project = _tables(folder).get("project")
    return str(canonicalize_name(str(project.get("name", "")))) if isinstance(project, dict) else ""


def _uv(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    tool = tables.get("tool")
    uv = tool.get("uv") if isinstance(tool, dict) else None
    return uv if isinstance(uv, dict) else {}


def _tables(folder: Path) -> dict[str, Any]:
    """Read a project file; nothing where there is none that parses: it may be another's, far above."""
    try:
        return load_toml(decode((folder / FILE).read_bytes(), FILE), FILE)
    except (OSError, UsageError):
        return {}
