"""Bring the image of a version into its folder: built from files, copied or linked; each kind of source is one row."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

from argosy.build import BuildRequest, build
from argosy.errors import UsageError
from argosy.images.finding import find_image
from argosy.images.identify import Kind, identify_file
from argosy.session import Session
from argosy.wrap.records import Recipe, SourceKind

SUFFIX = {Kind.SIF: ".sif", Kind.SQUASHFS: ".sqsh", Kind.ROOT_DIRECTORY: ""}
ADDED = "added.txt"


def make_image(recipe: Recipe, folder: Path, session: Session) -> Path:
    """Make or take the image that `recipe` describes, in `folder`.

    Raises
    ------
    ArgosyError
        As builds and readers of images do.
    """
    if recipe.kind is SourceKind.FILES:
        return _built(recipe, recipe.base, tuple(map(Path, recipe.sources)), folder, session)
    taken = _taken(recipe, folder, session)
    if not recipe.added:
        return taken
    image = _built(recipe, str(taken), (), folder, session)
    taken.unlink()
    return image


def add_packages(recipe: Recipe, old: Path, folder: Path, session: Session) -> Path:
    """Make the image of `recipe` out of `old`, which lacks only its last packages: the layer alone is packed again."""
    return _built(replace(recipe, added=recipe.added), str(old), (), folder, session)


def _built(recipe: Recipe, base: str, files: tuple[Path, ...], folder: Path, session: Session) -> Path:
    sources = list(files)
    if recipe.added:
        (folder / ADDED).write_text("".join(f"{requirement}\n" for requirement in recipe.added))
        sources.append(folder / ADDED)
    image = folder / "image.sif"
    build(BuildRequest(tuple(sources), base, image, flatten=recipe.flatten, cuda=recipe.cuda), session)
    return image


def _taken(recipe: Recipe, folder: Path, session: Session) -> Path:
    """Copy an image, or link to it: a vendor's image of many gigabytes stays where it is, one in a cache may vanish."""
    reference = recipe.sources[0]
    path = find_image(reference, session)
    kind = identify_file(path).kind
    if kind not in SUFFIX:
        raise UsageError(
            f"{reference} is {identify_file(path).description}, which holds no commands", hint="name an image"
        )
    place = folder / f"image{SUFFIX[kind]}"
    in_cache = path.resolve().is_relative_to(session.places.cache.resolve())
    if (recipe.copy or in_cache) and path.is_file():
        _copy(path, place)
    else:
        place.symlink_to(path.resolve())
    return place


def _copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)
