"""Find out which Debian packages a recipe needs in its base."""

from __future__ import annotations

from argosy.builder.python.git_access import plan_git_packages
from argosy.recipes.recipe import Recipe

PYTHON_PACKAGES = ("python3", "python3-venv")


def needs_python(recipe: Recipe) -> bool:
    """Tell whether a recipe needs Python in its base; a conda environment has its own."""
    return bool(recipe.pip or recipe.python) and not recipe.wants_conda


def plan_needs(recipe: Recipe) -> tuple[str, ...]:
    """Return the Debian packages that the recipe needs in its base; local repositories are read for this."""
    return (*(PYTHON_PACKAGES if needs_python(recipe) else ()), *plan_git_packages(recipe))
