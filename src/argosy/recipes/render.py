"""Render a recipe's pip part for uv, the same bytes for the same files; it never writes them.

What comes out may hold secrets (a token in a URL, expanded from a variable): it belongs into a private work
directory, never into an image.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping

from argosy.recipes.recipe import PipIndex, PipKind, PipLine, Recipe


def render_requirements(recipe: Recipe) -> str:
    """Render the packages, each below the line that asks for it; options are not here: see ``plan_uv_settings``.

    Nor are those that come from one index only: see `render_project`.
    """
    return "".join(_lines(line for line in recipe.pip if not line.index))


def render_project(asked: Iterable[str], indexes: Mapping[str, PipIndex]) -> str:
    """Render requirements with an index of their own as a project, where alone uv takes that; empty without any.

    Parameters
    ----------
    indexes
        The index, by the name of the package.
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
    """Render what ``-c`` files constrain; empty where there are none.

    A local path constrains nothing for uv, and extras are not allowed there.
    """
    return "".join(_lines(line for line in recipe.constraints if line.kind is not PipKind.LOCAL))


def render_overrides(recipe: Recipe, held: Container[str]) -> str:
    """Render overrides, less those of packages that are `held` already."""
    return "".join(
        _lines(line for line in recipe.overrides if line.kind is not PipKind.LOCAL and line.name not in held)
    )


def _lines(packages: Iterable[PipLine]) -> Iterator[str]:
    seen: set[str] = set()
    for package in packages:
        # uv wants hashes behind the marker, pip takes them anywhere.
        hashes = "".join(f" \\\n    --hash={item}" for item in sorted(package.hashes))
        text = f"{package.requirement}{hashes}\n"
        if text not in seen:
            seen.add(text)
            where = str(package.where).encode(errors="backslashreplace").decode()  # a file may have any name
            yield f"# {' '.join(where.split())}\n{text}"
