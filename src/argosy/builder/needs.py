"""What a recipe needs of its base, whatever is installed over it; pure but for folders that are installed."""

from __future__ import annotations

from argosy.builder.python.git_access import plan_git_packages
from argosy.recipes.recipe import Recipe

PYTHON_PACKAGES = ("python3", "python3-venv")


def needs_python(recipe: Recipe) -> bool:
    """Tell whether a recipe needs a Python in its base: a conda environment brings its own."""
    return bool(recipe.pip or recipe.python) and not recipe.wants_conda


def plan_needs(recipe: Recipe) -> tuple[str, ...]:
    """Name what a Debian base gets beside the packages asked for, so that the recipe can be installed over it."""
    return (*(PYTHON_PACKAGES if needs_python(recipe) else ()), *plan_git_packages(recipe))
