"""Bring the image of a version into its folder: built from files, copied or linked; each kind of source is one row."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from argosy.builder.build import build_image
from argosy.builder.records import BuildRequest
from argosy.core.errors import ArgosyError, NoVersions, UsageError
from argosy.core.layout import PrefixLayout
from argosy.core.model import Image, ImageKind
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.images.find import find_image
from argosy.images.identify import Kind, identify_file
from argosy.runtimes.choose import choose_runtime
from argosy.wrap.elf import Needs
from argosy.wrap.model import InContainer, Recipe, SourceKind

SUFFIX = {Kind.SIF: ".sif", Kind.SQUASHFS: ".sqsh", Kind.ROOT_DIRECTORY: ""}
ADDED = "added.txt"
NO_NEEDS = Needs()


class Brought(msgspec.Struct, frozen=True):
    """An image that is in the folder of a version.

    Attributes
    ----------
    recipe
        How it came about, with what was found out on the way.
    needs
        What an installation needs of the base's glibc; nothing for what was built here.
    inside
        What an installation holds; None where the image's container can be asked.
    """

    image: Path
    recipe: Recipe
    needs: Needs = NO_NEEDS
    inside: InContainer | None = None


def choose_partitions(recipe: Recipe, runtime: str, session: Session) -> Recipe:
    """Give the recipe with one partition or two, where it does not say: commands are started again and again.

    A runtime that mounts images waits for each partition; one that unpacks them keeps the base's tree for all versions.
    """
    if recipe.kind is not SourceKind.FILES or recipe.flatten is not None:
        return recipe
    image = Image("image.sif", ImageKind.SIF, "", "", argosy=True)
    chosen, _ = choose_runtime(runtime, session.host, image)
    return replace(recipe, flatten=not chosen.traits.unpacks)


def make_image(recipe: Recipe, folder: Path, session: Session) -> Brought:
    """Make or take the image that `recipe` describes, in `folder`.

    Raises
    ------
    ArgosyError
        As builds and readers of images do.
    """
    if recipe.kind is SourceKind.FILES:
        files = tuple(map(Path, recipe.sources))
        image, used = _built(recipe, recipe.base, files, folder, session, before=recipe.before, after=recipe.after)
        return Brought(image, _with_base(recipe, used))
    if recipe.kind is SourceKind.FOLDER:
        from argosy.wrap.installations import pack_folder  # noqa: PLC0415 - one kind of source of three needs it

        placed = pack_folder(recipe, folder, session)
        return Brought(
            placed.image, replace(_with_base(recipe, placed.base), at=placed.at), placed.needs, placed.inside
        )
    return Brought(_image(recipe, folder, session), recipe)


def _image(recipe: Recipe, folder: Path, session: Session) -> Path:
    taken = _taken(recipe, folder, session)
    if not (recipe.added or recipe.before or recipe.after):
        return taken
    base = taken.rename(folder / "base")
    image, _ = _built(recipe, str(base), (), folder, session, before=recipe.before, after=recipe.after)
    base.unlink()
    return image


def extend_image(recipe: Recipe, old: Path, folder: Path, session: Session, *, after: tuple[str, ...]) -> Brought:
    """Make the image of `recipe` out of `old`, which lacks only its last packages and the scripts `after` them.

    The layer alone is packed again; where its versions do not go with what is added, all is built anew from the
    sources, as pip would replace them.

    Raises
    ------
    ArgosyError
        As builds do.
    """
    try:
        return Brought(_built(recipe, str(old), (), folder, session, after=after)[0], recipe)
    except NoVersions as clash:
        if recipe.kind is SourceKind.FILES and not all(map(os.path.exists, recipe.sources)):
            clash.hint = f"bring {', '.join(recipe.sources)} back: other versions mean to build anew from it"
            raise
        session.reporter.note("the versions there do not go with what is added: all is built anew from the sources")
        return make_image(recipe, folder, session)


def keep_image(recipe: Recipe, old: Path, folder: Path) -> Brought:
    """Let the next version have the same image, by a further name for the same file."""
    place = folder / old.name
    if old.is_symlink():
        place.symlink_to(old.readlink())
    else:
        _copy(old, place)
    return Brought(place, recipe)


def _built(
    recipe: Recipe,
    base: str,
    files: tuple[Path, ...],
    folder: Path,
    session: Session,
    *,
    before: tuple[str, ...] = (),
    after: tuple[str, ...],
) -> tuple[Path, str]:
    """Build the image of a version; give it, and the base that was taken."""
    sources = list(files)
    if recipe.added or not files:
        (folder / ADDED).write_text("".join(f"{requirement}\n" for requirement in recipe.added), encoding="utf-8")
        sources.append(folder / ADDED)
    image = folder / "image.sif"
    request = BuildRequest(
        tuple(sources),
        base,
        image,
        flatten=bool(recipe.flatten),
        cuda=recipe.cuda,
        site=recipe.site,
        torch_backend=recipe.torch_backend,
        before=tuple(map(Path, before)),
        after=tuple(map(Path, after)),
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


def _with_base(recipe: Recipe, used: str) -> Recipe:
    """Note the base that was taken for the default one, so that later versions have the same."""
    if not recipe.default_base or used == recipe.base:
        return recipe
    return replace(recipe, base=used, default_base=False)


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
    in_cache = path.resolve().is_relative_to(session.paths.cache.resolve())
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
