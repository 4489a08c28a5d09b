"""Create, update, roll back and prune a prefix: `argosy wrap`. Running commands keep the files of their version."""

from __future__ import annotations

import contextlib
import re
import uuid
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from argosy.core.errors import ImageError, UsageError
from argosy.core.os_errors import naming_option
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import remove_path
from argosy.images.open import open_image
from argosy.images.prefix import current_version, image_of_prefix, version_folder
from argosy.recipes.lock import PackageKind
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind, Settings, UpdateRequest, Version, WrapReport, WrapRequest
from argosy.wrap.new_version import (
    CreateImage,
    VersionDraft,
    add_version,
    extend_image,
    given_site,
    keep_image,
    make_image,
)
from argosy.wrap.plan import merge_files, refuse_relative_paths, settings_at_site
from argosy.wrap.versions import (
    CACHE,
    GONE,
    creating,
    locked_prefix,
    open_prefix,
    read_version,
    refuse_prefix,
    switch,
    versions,
)

TREE = re.compile(r"(joined-)?(sha256-[0-9a-f]{64}|(file|layer)(-[0-9a-f]+){5}|version-\d+)(-\d+)?")
"""Names of unpacked trees and of merged folders in the cache of a prefix; the last number is that of a user."""


def create_prefix(request: WrapRequest, session: Session) -> WrapReport:
    """Create a prefix whose ``bin`` contains one small wrapper for each command of an image.

    If it fails, the prefix does not exist, or is as empty as before.
    """
    prefix = request.prefix
    if request.recipe.kind is PrefixSourceKind.FOLDER and (request.recipe.before or request.recipe.after):
        raise UsageError(
            "--pre-install and --post-install cannot be used with an installation: it is wrapped unchanged",
            hint="run the scripts on the installation, then wrap it",
        )
    refuse_relative_paths(request.settings, request.recipe)
    _refuse_without_programs(request)
    refuse_prefix(prefix)
    existed = prefix.is_dir()
    settings = _at_site(request.settings, request.recipe, session)
    recipe = with_own_python(request.recipe, settings)
    draft = VersionDraft(uuid.uuid4().hex[:12], "new", recipe, settings)
    try:
        with (
            naming_option(prefix, "--prefix"),
            locked_prefix(prefix, session, doing=f"wrapping into {prefix}", new=True),
        ):
            refuse_prefix(prefix)
            with creating(prefix):
                return add_version(prefix, draft, _from_sources(recipe), session)
    finally:
        if not existed:
            with contextlib.suppress(OSError):  # not empty: it has a version, or another process uses it
                prefix.rmdir()


def _refuse_without_programs(request: WrapRequest) -> None:
    """Reject an installation without ``bin``, before it is copied."""
    source = Path(request.recipe.sources[0])
    if request.recipe.kind is not PrefixSourceKind.FOLDER or request.settings.paths or not source.is_dir():
        return
    if not (source / "bin").is_dir():
        raise UsageError(
            f"cannot find the commands of {source}: it has no folder bin",
            hint="pass the folder of an installation, or the folders of its programs: -w FOLDER,…",
        )


def update_prefix(request: UpdateRequest, settings: Settings | None, session: Session) -> WrapReport:
    """Create the next version of a prefix, then switch to it with one rename.

    If it fails, the prefix is unchanged.

    Parameters
    ----------
    settings
        The new settings of the commands; None keeps the present ones.
    """
    prefix = request.prefix
    with locked_prefix(prefix, session, doing=f"updating {prefix}"):
        old = open_prefix(prefix)
        recipe = plan_update(request, old.recipe)
        refuse_relative_paths(settings or old.settings, recipe)
        new = _at_site(settings, recipe, session) if settings else old.settings
        recipe = with_own_python(recipe, new)
        draft = VersionDraft(old.identity, _reason(request), recipe, new)
        create_image = _choose_image(request, recipe, other_settings=draft.settings != old.settings)
        if recipe.own_python and not old.recipe.own_python and not _has_own_python(prefix):
            create_image = _from_sources(recipe)
        return add_version(prefix, draft, create_image, session, previous=old.number)


def _at_site(settings: Settings, recipe: PrefixRecipe, session: Session) -> Settings:
    """Complete the settings of a prefix by the runtime of its site, if one is given or configured."""
    site = given_site(recipe, session)
    if site is None:
        return settings
    settings, note = settings_at_site(settings, site, session.host)
    if note:
        session.reporter.note(note)
    return settings


def with_own_python(recipe: PrefixRecipe, settings: Settings) -> PrefixRecipe:
    """Return the recipe with the Python of conda, if ``--host`` hides that of the base."""
    own = recipe.own_python or (settings.host and recipe.kind is PrefixSourceKind.FILES)
    return replace(recipe, own_python=own)


def plan_update(request: UpdateRequest, old: PrefixRecipe) -> PrefixRecipe:
    """Return the recipe of the next version.

    Raises
    ------
    UsageError
        If the request does not fit the sources of the prefix, for example an image for a prefix built from files.
    """
    if request.image and old.kind is not PrefixSourceKind.IMAGE:
        raise UsageError("this prefix was built from files", evidence=str(old), hint="pass files or packages instead")
    if request.files and old.kind is not PrefixSourceKind.FILES:
        raise UsageError("this prefix wraps an image", evidence=str(old), hint="pass --image, or packages to add")
    if (request.packages or request.after) and old.kind is PrefixSourceKind.FOLDER:
        raise UsageError(
            "cannot add packages to an existing installation",
            evidence=str(old),
            hint="change the installation itself, then: argosy wrap update DIR",
        )
    files = merge_files(old.sources, request.files) if request.files else old.sources
    return replace(
        old,
        sources=(request.image,) if request.image else files,
        added=_added(old.added, request.packages),
        after=(*old.after, *request.after),
    )


def _added(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Merge the requirements of all updates; the last requirement for a package replaces earlier ones."""
    named = {name for text in now if (name := _name_of(text))}
    return tuple(dict.fromkeys((*(text for text in before if text in now or _name_of(text) not in named), *now)))


def _name_of(text: str) -> str:
    try:
        return canonicalize_name(Requirement(text).name)
    except InvalidRequirement:
        return ""


def rollback_prefix(prefix: Path, number: int, session: Session) -> WrapReport:
    """Switch a prefix to another version.

    Parameters
    ----------
    number
        Number of the version; 0 means the one before the current one, or the last one if there is no current one.
    """
    with locked_prefix(prefix, session, doing=f"switching {prefix}"):
        now, known = current_version(prefix) or 0, versions(prefix)
        if not known:
            open_prefix(prefix)
        wanted = number or max((each for each in known if each < now or not now), default=0)
        if wanted not in known or wanted == now:
            raise UsageError(
                f"cannot switch {prefix} to version {wanted}" if number else f"{prefix} has no version before {now}",
                evidence=f"versions: {', '.join(map(str, known))}; the current one is {now}",
                hint=f"see argosy wrap history {quote(str(prefix))}",
            )
        version = read_version(prefix, wanted)
        switch(prefix, wanted)
    return WrapReport(str(prefix), version, previous=now)


def read_history(prefix: Path) -> tuple[tuple[Version, bool], ...]:
    """Return the versions of a prefix, oldest first, each with whether it is the current one."""
    now = open_prefix(prefix).number
    return tuple((read_version(prefix, number), number == now) for number in versions(prefix))


class Pruned(msgspec.Struct, frozen=True):
    """The numbers of the versions and the names of the unpacked trees that `prune_prefix` removed."""

    versions: tuple[int, ...]
    trees: tuple[str, ...]


def prune_prefix(prefix: Path, keep: int, session: Session) -> Pruned:
    """Remove old versions, except the current one and the `keep` versions before it, and the trees only they need.

    Argosy never does this by itself: a job that still uses an old version would lose its files.
    """
    with locked_prefix(prefix, session, doing=f"pruning {prefix}"):
        now = open_prefix(prefix).number
        older = [number for number in versions(prefix) if number != now]
        kept = set(sorted(number for number in older if number < now)[-keep:] if keep else ())
        gone = tuple(number for number in older if number not in kept)
        for number in gone:
            _remove(version_folder(prefix, number))
        needed = {tree for number in versions(prefix) for tree in read_version(prefix, number).trees}
        unpacked = [each for each in (prefix / CACHE / "trees").glob("*") if TREE.fullmatch(each.name)]
        unneeded = sorted(each for each in unpacked if each.is_dir() and each.name not in needed)
        for tree in unneeded:
            _remove(tree)
    return Pruned(gone, tuple(each.name for each in unneeded))


def _choose_image(request: UpdateRequest, recipe: PrefixRecipe, *, other_settings: bool) -> CreateImage:
    """Choose the cheapest correct method to create the image of the next version.

    If only settings change, the image stays. If only packages are added, the image is the base. Otherwise the image is
    created from the sources again.
    """
    current = image_of_prefix(request.prefix)
    if current is not None and current.is_symlink() and not current.exists() and not request.image:
        raise ImageError(
            f"cannot read the image of {request.prefix}: it does not exist",
            evidence=str(current.readlink()),
            hint=f"restore it, or: argosy wrap update {quote(str(request.prefix))} --image FILE",
        )
    if current is not None and not (request.files or request.image):
        if request.packages or request.after:
            return lambda folder, session: extend_image(recipe, current, folder, session, after=request.after)
        if other_settings and recipe.kind is not PrefixSourceKind.FOLDER:
            return lambda folder, _: keep_image(recipe, current, folder)
    return _from_sources(recipe)


def _from_sources(recipe: PrefixRecipe) -> CreateImage:
    return lambda folder, session: make_image(recipe, folder, session)


def _has_own_python(prefix: Path) -> bool:
    """Return whether the environment in the image of a prefix has a Python from conda."""
    image = image_of_prefix(prefix)
    lock = open_image(image).lock if image else None
    return any(each.kind is PackageKind.CONDA and each.name == "python" for each in (lock.packages if lock else ()))


def _reason(request: UpdateRequest) -> str:
    files = (Path(file).name for file in (*request.files, *request.after))
    what = (*request.packages, *files, *filter(None, (request.image,)))
    return f"update: {', '.join(what)}" if what else "update"


def _remove(folder: Path) -> None:
    """Rename a folder, then remove it, so that a killed removal never leaves half a version."""
    beside = folder.with_name(f".{folder.name}{GONE}")
    remove_path(beside)
    folder.rename(beside)
    remove_path(beside)
