"""Decide whether the packages of a layer are packed one by one, so that the cache can keep them; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from argosy.builder.bases.choose import needs_python
from argosy.builder.packed.store import TORCH
from argosy.builder.python.pins import replaceable
from argosy.builder.records import BuildRequest
from argosy.core.render import render_size
from argosy.images.formats import OutputFormat
from argosy.images.squashfs.pack import BLOCK_SIZE, COMPRESSION
from argosy.images.squashfs.superblock import Superblock
from argosy.recipes.lock import Lock
from argosy.recipes.recipe import Recipe

BUILD_OPTIONS = frozenset({"--no-binary", "--only-binary", "--config-settings-package", "--build-constraints"})
"""Options of uv that change which file of a package is installed, or what is built from it."""


def build_options(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments for uv that change the content of a package."""
    pairs = itertools.pairwise(arguments)
    return tuple(f"{option} {value}" for option, value in pairs if option in BUILD_OPTIONS)


def why_packed_together(
    request: BuildRequest, recipe: Recipe, lock: Lock | None, joined: Superblock | None, *, steps: bool
) -> str:
    """Return why the packages are packed together, as one layer; empty if they are packed one by one.

    The answer depends only on what is built, never on the content of the cache: equal requests give equal bytes.

    Parameters
    ----------
    lock
        The lock of the base, if it is an image of Argosy.
    joined
        The superblock of the base, or of its layer, that packages are joined with; None if they are a layer of their
        own.
    steps
        Whether steps run in the image.
    """
    foreign = joined is not None and (joined.compressor, joined.block_size) != (COMPRESSION, BLOCK_SIZE)
    blocks = f"{joined.compressor} blocks of {render_size(joined.block_size)}" if joined else ""
    rules = (
        (request.form is not OutputFormat.SIF, f"the output format {request.form.value} is packed from a folder"),
        (steps, "steps may change the files of packages"),
        (bool(request.before or request.after), "scripts may change the files of packages"),
        (bool(recipe.unisolated), "--no-build-isolation builds packages against the others"),
        (request.portable, "packages without a wheel are built for the bundle"),
        (foreign, f"the base has {blocks}"),
        *(_rules_over_layer(request, recipe, lock, joined) if lock else ()),
    )
    return next((why for applies, why in rules if applies), "")


def _rules_over_layer(
    request: BuildRequest, recipe: Recipe, lock: Lock, joined: Superblock | None
) -> tuple[tuple[bool, str], ...]:
    """Return what prevents that packages are added to the layer of the base without unpacking it."""
    held = {package.name for package in lock.packages}
    return (
        (joined is None, "the layer of the base has another form"),
        (not needs_python(recipe), "no pip packages are added"),
        (recipe.wants_conda, "a conda environment is added to the layer of the base"),
        (lock.has_conda, "the layer of the base has conda packages"),
        (not held.isdisjoint(replaceable(recipe)), "packages of the base are replaced"),
        (bool(request.site) and TORCH in held, "the torch of the base is checked for the site"),
    )
