"""Hold the base's packages while the user's own steps and scripts install others: constraints for pip and uv."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.bases.python import BasePython, ask_python, limited_package
from argosy.builder.python.pins import render_pins
from argosy.core.model import Bind

CONSTRAINTS = "/.argosy/constraints.txt"
"""Where the file is seen inside."""

FREE = frozenset({"pip", "setuptools", "wheel"})
"""Tools that build packages: pip's constraints hold for isolated builds, too, which want their own versions."""

HOLD = f"export PIP_CONSTRAINT={CONSTRAINTS} UV_CONSTRAINT={CONSTRAINTS}"


def protecting_base_packages(
    build_container: BuildContainer, work: Path, replaceable: Collection[str]
) -> BuildContainer:
    """Give a room with a file of the base's packages, for those who install into it.

    Parameters
    ----------
    replaceable
        Names of packages that may be hidden by another version.
    """
    python = ask_python(build_container)
    file = work / "base-packages.txt"
    file.write_text(render_constraints(python.without(replaceable)) if python else "", encoding="utf-8")
    return build_container.with_mounts(Bind(str(file), CONSTRAINTS, read_only=True))


def render_constraints(python: BasePython) -> str:
    """Render what holds a base's packages, with the lines of its own constraint file about others."""
    pins = {name: version for name, version in python.packages if name not in FREE}
    limits = (line for line in python.limits.splitlines() if limited_package(line) not in pins)
    return render_pins(pins) + "".join(f"{line}\n" for line in limits)


def hold_line(build_container: BuildContainer) -> str:
    """Give the shell line that lets pip and uv hold the base's packages; none if the room has no file of them."""
    return HOLD if any(bind.target == CONSTRAINTS for bind in build_container.binds) else ":"
