"""Decide whether the packages of a layer are packed one by one, so that the cache can keep them; pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from argosy.builder.records import BuildRequest
from argosy.core.progress import render_size
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
    request: BuildRequest, recipe: Recipe, lock: Lock | None, packing: Superblock, *, steps: bool
) -> str:
    """Return why the packages are packed together, as one layer; empty if they are packed one by one.

    The answer depends only on what is built, never on the content of the cache: equal requests give equal bytes.

    Parameters
    ----------
    lock
        The lock of the base, if it is an image of Argosy.
    packing
        The superblock of the base.
    steps
        Whether steps run in the image.
    """
    rules = (
        (request.form is not OutputFormat.SIF, f"the output format {request.form.value} is packed from a folder"),
        (lock is not None, "the layer continues the layer of the base"),
        (steps, "steps may change the files of packages"),
        (bool(request.before or request.after), "scripts may change the files of packages"),
        (bool(recipe.unisolated), "--no-build-isolation builds packages against the others"),
        (request.portable, "packages without a wheel are built for the bundle"),
        (request.keep, "the unpacked packages are kept for the next update"),
        (
            bool(request.flatten) and not _has_own_packing(packing),
            f"the base has {packing.compressor} blocks of {render_size(packing.block_size)}",
        ),
    )
    return next((why for applies, why in rules if applies), "")


def _has_own_packing(packing: Superblock) -> bool:
    return (packing.compressor, packing.block_size) == (COMPRESSION, BLOCK_SIZE)
