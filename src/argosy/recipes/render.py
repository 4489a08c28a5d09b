"""Render a recipe's pip part as files for uv; the same recipe gives the same bytes.

The text may contain secrets (a token in a URL, expanded from a variable): write it only to private work folders, never
to an image.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping

from argosy.recipes.recipe import PipIndex, PipKind, PipLine, Recipe


def render_requirements(recipe: Recipe) -> str:
    """Render the packages, each below a comment with its position.

    Options are passed as arguments (see ``plan_uv_settings``), and `render_project` renders packages with their own
    index.
    """
    return "".join(_lines(line for line in recipe.pip if not line.index))


def render_project(asked: Iterable[str], indexes: Mapping[str, PipIndex]) -> str:
    """Render requirements that have their own index as a project, the only form that uv accepts; empty if none.

    `indexes` has the index of each package by the package's name.
    """
    wanted = "".join(f"  {json.dumps(text)},\n" for text in asked)
    if not wanted:
        return ""
    rows = "".join(
        f"[[tool.uv.index]]\nname = {json.dumps(name)}\nurl = {json.dumps(index.address)}\nexplicit = true\n"
        + ('format = "flat"\n' if index.flat else "")
        + f"[tool.uv.sources.{name}]\nindex = {json.dumps(name)}\n"
        for name, index in sorted(indexes.items())
    )
    return f'[project]\nname = "argosy-asks"\nversion = "0"\ndependencies = [\n{wanted}]\n{rows}'


def render_constraints(recipe: Recipe) -> str:
    """Render the constraints of ``-c`` files; may be empty.

    Local paths are omitted: uv ignores them as constraints.
    """
    return "".join(_lines(line for line in recipe.constraints if line.kind is not PipKind.LOCAL))


def render_overrides(recipe: Recipe, held: Container[str]) -> str:
    """Render the overrides except those of packages in `held`."""
    return "".join(
        _lines(line for line in recipe.overrides if line.kind is not PipKind.LOCAL and line.name not in held)
    )


def _lines(packages: Iterable[PipLine]) -> Iterator[str]:
    seen: set[str] = set()
    for package in packages:
        # uv requires hashes after the marker; pip accepts them anywhere.
        hashes = "".join(f" \\\n    --hash={item}" for item in sorted(package.hashes))
        text = f"{package.requirement}{hashes}\n"
        if text not in seen:
            seen.add(text)
            where = str(package.where).encode(errors="backslashreplace").decode()  # a file may have any name
            yield f"# {' '.join(where.split())}\n{text}"
