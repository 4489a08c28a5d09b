"""What the user's environment files ask for; it never asks the machine or the network whether that exists.

The path of a file: its text is parsed (`parse_requirements`, `parse_environment`), what it includes is read
(`read_recipe`), several files become one `Recipe`, and judges say whether a base's Python can carry it.
"""

from __future__ import annotations

from argosy.recipe.conda import parse_conda_spec, render_conda_spec
from argosy.recipe.environment import parse_environment
from argosy.recipe.judge import check_python, python_fits
from argosy.recipe.read import read_recipe
from argosy.recipe.records import (
    Channel,
    CondaPin,
    CondaSpec,
    Note,
    PipIndex,
    PipKind,
    PipLine,
    PipOption,
    Recipe,
    Source,
    Where,
)
from argosy.recipe.render import render_constraints, render_overrides, render_project, render_requirements
from argosy.recipe.requirements import parse_requirements

__all__ = [
    "Channel",
    "CondaPin",
    "CondaSpec",
    "Note",
    "PipIndex",
    "PipKind",
    "PipLine",
    "PipOption",
    "Recipe",
    "Source",
    "Where",
    "check_python",
    "parse_conda_spec",
    "parse_environment",
    "parse_requirements",
    "python_fits",
    "read_recipe",
    "render_conda_spec",
    "render_constraints",
    "render_overrides",
    "render_project",
    "render_requirements",
]
