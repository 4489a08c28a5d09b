"""Create the image of a version in its folder: build, copy or link it."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from argosy.builder.build import build_image
from argosy.builder.records import BuildRequest
from argosy.core.errors import ArgosyError, NoVersions, UsageError
from argosy.core.layout import PrefixLayout
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import link_or_copy
from argosy.images.find import find_image
from argosy.images.identify import Kind, identify_file
from argosy.wrap.installations import pack_folder
from argosy.wrap.model import InContainer, Needs, PrefixRecipe, SourceKind

SUFFIX = {Kind.SIF: ".sif", Kind.SQUASHFS: ".sqsh", Kind.ROOT_DIRECTORY: ""}
ADDED = "added.txt"
NO_NEEDS = Needs()


class VersionImage(msgspec.Struct, frozen=True):
    """The image in the folder of a version."""

    image: Path
    recipe: PrefixRecipe
    """How it was made, with the base that was used."""
    needs: Needs = NO_NEEDS
    """Requirements of an installation on the base; empty for an image that was built here."""
    inside: InContainer | None = None
    """Contents of an installation; None if a container of the image can list them."""


def make_image(recipe: PrefixRecipe, folder: Path, session: Session) -> VersionImage:
    """Create the image that `recipe` describes in `folder`.

    Raises
    ------
    ArgosyError
        If a build fails, or an image cannot be read.
    """
    if recipe.kind is SourceKind.FILES:
        files = tuple(map(Path, recipe.sources))
        image, used = _built(recipe, recipe.base, files, folder, session)
        return VersionImage(image, _with_base(recipe, used))
    if recipe.kind is SourceKind.FOLDER:
        placed = pack_folder(recipe, folder, session)
        return VersionImage(
            placed.image, replace(_with_base(recipe, placed.base), at=placed.at), placed.needs, placed.inside
        )
    return VersionImage(_image(recipe, folder, session), recipe)


def _image(recipe: PrefixRecipe, folder: Path, session: Session) -> Path:
    taken = _taken(recipe, folder, session)
    if not (recipe.added or recipe.before or recipe.after):
        return taken
    base = taken.rename(folder / "base")
    image, _ = _built(recipe, str(base), (), folder, session)
    base.unlink()
    return image


def extend_image(
    recipe: PrefixRecipe, old: Path, folder: Path, session: Session, *, after: tuple[str, ...]
) -> VersionImage:
    """Create the image of `recipe` from `old`, which lacks only the last packages and the scripts `after` them.

    Only the new packages are packed, unless a script may change others. If they need other versions of those in `old`,
    the image is rebuilt from the sources.

    Raises
    ------
    ArgosyError
        If the build fails.
    """
    try:
        return VersionImage(_built(replace(recipe, before=(), after=after), str(old), (), folder, session)[0], recipe)
    except NoVersions as clash:
        if recipe.kind is SourceKind.FILES and not all(map(os.path.exists, recipe.sources)):
            clash.hint = f"restore {', '.join(recipe.sources)}: other versions require a rebuild from the sources"
            raise
        session.reporter.note("the installed versions conflict with the new packages: rebuilding from the sources")
        return make_image(recipe, folder, session)


def keep_image(recipe: PrefixRecipe, old: Path, folder: Path) -> VersionImage:
    """Create a hard link to the same image for the next version."""
    place = folder / old.name
    if old.is_symlink():
        place.symlink_to(old.readlink())
    else:
        link_or_copy(old, place)
    return VersionImage(place, recipe)


def _built(
    recipe: PrefixRecipe, base: str, files: tuple[Path, ...], folder: Path, session: Session
) -> tuple[Path, str]:
    """Build the image of a version; return its path, and the base that was used."""
    sources = list(files)
    if recipe.added or not files:
        (folder / ADDED).write_text("".join(f"{requirement}\n" for requirement in recipe.added), encoding="utf-8")
        sources.append(folder / ADDED)
    image = folder / "image.sif"
    request = BuildRequest(
        tuple(sources),
        base,
        image,
        flatten=recipe.flatten,
        cuda=recipe.cuda,
        site=recipe.site,
        torch_backend=recipe.torch_backend,
        before=tuple(map(Path, recipe.before)),
        after=tuple(map(Path, recipe.after)),
        unisolated=recipe.unisolated,
        replaceable=recipe.replaceable,
        keep=True,
        prefix_layout=PrefixLayout(own_python=recipe.own_python),
        default_base=recipe.default_base and base == recipe.base,
    )
    try:
        report = build_image(request, session)
    except ArgosyError as error:
        error.evidence = error.evidence.replace(str(folder / ADDED), "argosy wrap update")
        raise
    return image, report.base


def _with_base(recipe: PrefixRecipe, used: str) -> PrefixRecipe:
    """Return the recipe with the base that was used for the default one, so that later versions use it, too."""
    if not recipe.default_base or used == recipe.base:
        return recipe
    return replace(recipe, base=used, default_base=False)


def _taken(recipe: PrefixRecipe, folder: Path, session: Session) -> Path:
    """Copy an image if it is in a cache, which may be cleaned; otherwise link to it, because images are large."""
    reference = recipe.sources[0]
    path = find_image(reference, session)
    kind = identify_file(path).kind
    if kind not in SUFFIX:
        raise UsageError(f"cannot wrap {reference}: it is {identify_file(path).description}", hint="pass an image")
    place = folder / f"image{SUFFIX[kind]}"
    in_cache = path.resolve().is_relative_to(session.paths.cache.resolve())
    if (recipe.copy or in_cache) and path.is_file():
        link_or_copy(path.resolve(), place)
    else:
        place.symlink_to(path.resolve())
    return place
