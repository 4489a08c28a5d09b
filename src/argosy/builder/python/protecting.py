"""Constrain pip and uv in the user's steps and scripts, so that they keep the versions of the base's packages."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from argosy.builder.backends.container import BuildContainer
from argosy.builder.bases.python import BasePython, ask_python, limited_package
from argosy.builder.python.pins import render_pins
from argosy.core.model import Bind

CONSTRAINTS = "/.argosy/constraints.txt"
"""Path of the file in the container."""

FREE = frozenset({"pip", "setuptools", "wheel"})
"""Build tools: pip's constraints also apply to isolated builds, which need other versions."""

HOLD = f"export PIP_CONSTRAINT={CONSTRAINTS} UV_CONSTRAINT={CONSTRAINTS}"


def protecting_base_packages(
    build_container: BuildContainer, work: Path, replaceable: Collection[str]
) -> BuildContainer:
    """Mount a constraint file with the base's packages into the container.

    Parameters
    ----------
    replaceable
        Packages that another version may hide.
    """
    python = ask_python(build_container)
    file = work / "base-packages.txt"
    file.write_text(render_constraints(python.without(replaceable)) if python else "", encoding="utf-8")
    return build_container.with_mounts(Bind(str(file), CONSTRAINTS, read_only=True))


def render_constraints(python: BasePython) -> str:
    """Render constraints for the base's packages, with the lines of its own constraint file for other packages."""
    pins = {name: version for name, version in python.packages if name not in FREE}
    limits = (line for line in python.limits.splitlines() if limited_package(line) not in pins)
    return render_pins(pins) + "".join(f"{line}\n" for line in limits)


def hold_line(build_container: BuildContainer) -> str:
    """Return the shell line that sets the constraints for pip and uv; it does nothing without a constraint file."""
    return HOLD if any(bind.target == CONSTRAINTS for bind in build_container.binds) else ":"
