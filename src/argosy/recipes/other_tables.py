"""Judge the tables of other tools in a ``pyproject.toml``: packages that they install and a build here would not.

Sources: "The pyproject.toml file" of Poetry 2, "pyproject.toml" of PDM, hatch and pixi.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.recipes.recipe import Note
from argosy.recipes.toml_source import Finder

PLACES = frozenset({"git", "path", "url", "file", "source"})
"""Keys with which Poetry takes a package from another place than the index."""

OF_PIXI = ("dependencies", "pypi-dependencies", "host-dependencies", "build-dependencies")

Tables = Mapping[str, Any]


def judge_other_tables(tools: Tables, wanted: Collection[str], own: str, file: str, where: Finder) -> Iterator[Note]:
    """Note what tables of other tools ask for and a build does not follow.

    Parameters
    ----------
    tools
        The table ``tool``.
    wanted
        Normalised names of the packages that the project asks for in ``[project]`` and in the chosen groups.
    own
        Normalised name of the project itself.

    Raises
    ------
    UsageError
        When Poetry would install packages, or take them from places, that ``[project]`` does not name.
    """
    _refuse_poetry(_table(tools, "poetry"), wanted, file, where)
    yield from _unread_groups(tools, where)
    for name, lock in (("pixi", "pixi.lock"), ("conda-lock", "conda-lock.yml")):
        if any(_conda_tables(_table(tools, name), own)):
            text = f"the packages of [tool.{name}] are not installed: name {lock}, which holds them"
            yield Note(text, where(f"[tool.{name}"))
    for name in ("poetry", "pdm"):
        if _table(tools, name).get("source"):
            text = f"the indexes of [[tool.{name}.source]] are not used: UV_INDEX=URL names one"
            yield Note(text, where(f"[[tool.{name}.source"))
    if _table(tools, "pdm", "resolution").get("overrides"):
        yield Note("the overrides of [tool.pdm.resolution] are not followed", where("[tool.pdm.resolution"))


def poetry_groups(tools: Tables) -> tuple[str, ...]:
    """Name Poetry's groups that hold packages; a table of its first version is the group dev."""
    groups = _table(tools, "poetry", "group")
    named = [name for name in groups if _table(groups, name).get("dependencies")]
    return (*named, *(("dev",) if _table(tools, "poetry").get("dev-dependencies") else ()))


def _refuse_poetry(poetry: Tables, wanted: Collection[str], file: str, where: Finder) -> None:
    asked = {name: spec for name, spec in _table(poetry, "dependencies").items() if name != "python"}
    lost = [name for name, spec in asked.items() if canonicalize_name(name) not in wanted and not _is_optional(spec)]
    elsewhere = [name for name, spec in asked.items() if canonicalize_name(name) in wanted and _is_placed(spec)]
    if not lost and not elsewhere:
        return
    what = "packages" if lost else "places of packages"
    raise UsageError(
        f"{file} has {what} in [tool.poetry.dependencies], which is not read",
        evidence=f"{where('[tool.poetry.dependencies')}: {', '.join(lost or elsewhere)}",
        hint="name the poetry.lock that 'poetry lock' writes, or write them into 'dependencies' of [project]",
    )


def _is_optional(spec: Any) -> bool:
    return isinstance(spec, dict) and bool(spec.get("optional"))


def _is_placed(spec: Any) -> bool:
    return any(isinstance(each, dict) and PLACES & each.keys() for each in (spec if isinstance(spec, list) else [spec]))


def _unread_groups(tools: Tables, where: Finder) -> Iterator[Note]:
    """Note groups and environments of tools that cannot be chosen in brackets."""
    hatch = _table(tools, "hatch", "envs")
    envs = [name for name in hatch if {"dependencies", "extra-dependencies"} & _table(hatch, name).keys()]
    for place, names in (
        ("tool.poetry.group", poetry_groups(tools)),
        ("tool.pdm.dev-dependencies", tuple(_table(tools, "pdm", "dev-dependencies"))),
        ("tool.hatch.envs", tuple(envs)),
    ):
        if names:
            text = f"the packages of [{place}] are not installed: {', '.join(names)}"
            yield Note(text, where("[" + place.removesuffix(".group")))


def _conda_tables(table: Tables, own: str) -> Iterator[bool]:
    """Tell of each list of packages that pixi or conda-lock would install whether it names more than the project."""
    features = _table(table, "feature")
    for one in (table, *(_table(features, name) for name in features)):
        targets = _table(one, "target")
        for each in (one, *(_table(targets, name) for name in targets)):
            for key in OF_PIXI:
                yield bool({canonicalize_name(str(name)) for name in _table(each, key)} - {own})


def _table(tables: Tables, *keys: str) -> dict[str, Any]:
    found: Any = tables
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return dict(found) if isinstance(found, Mapping) else {}
