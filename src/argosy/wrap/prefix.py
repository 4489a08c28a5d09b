"""The stories of `argosy wrap`: a new prefix, its next version, and the way back; the running commands never notice."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from argosy.core.errors import ImageError, UsageError
from argosy.core.model import Bind, ContainerRequest
from argosy.core.progress import render_commands
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import fill_once, remove_tree
from argosy.images.open import OpenedImage, inspect_squashfs, layer_key, open_image
from argosy.images.prefix import VERSIONS, current_version, image_of_prefix, version_folder
from argosy.images.rootfs_cache import link_layer
from argosy.recipes.lock import PackageKind
from argosy.runtimes.open_container import layer_tree_key, open_container
from argosy.version import VERSION as ARGOSY
from argosy.wrap.activation import ACTIVATE, ACTIVATE_FISH, MODULES
from argosy.wrap.check import check_gpu_build
from argosy.wrap.model import Recipe, Settings, SourceKind, UpdateRequest, Version, WrapReport, WrapRequest
from argosy.wrap.plan import (
    chosen_inside,
    judge_glibc,
    judge_host,
    judge_runtime,
    look_inside,
    merge_files,
    plan_commands,
    plan_paths,
)
from argosy.wrap.render import write_version_files
from argosy.wrap.root_entries import find_root
from argosy.wrap.sources import Brought, choose_partitions, extend_image, keep_image, make_image
from argosy.wrap.versions import (
    CACHE,
    alone,
    next_number,
    open_prefix,
    read_version,
    refuse_prefix,
    sweep,
    switch,
    versions,
    write_activation,
)

Bring = Callable[[Path, Session], Brought]
"""Brings the image into the folder of a version."""


def wrap(request: WrapRequest, session: Session) -> WrapReport:
    """Make a prefix whose ``bin`` holds one small wrapper for each command of an image.

    Raises
    ------
    ArgosyError
        With what happened, its evidence and the way out; the prefix is then absent, or as empty as it was.
    """
    prefix = request.prefix
    if request.recipe.kind is SourceKind.FOLDER and (request.recipe.before or request.recipe.after):
        raise UsageError("scripts belong to an image that is built", hint="run them on the installation, then wrap it")
    _refuse_without_programs(request)
    refuse_prefix(prefix)
    existed = prefix.is_dir()
    settled = with_own_python(request.recipe, request.settings)
    recipe = choose_partitions(settled, request.settings.runtime, session)
    draft = _Draft(uuid.uuid4().hex[:12], "new", recipe, request.settings)
    try:
        with alone(prefix, session, doing=f"wrapping into {prefix}", new=True):
            sweep(prefix)
            refuse_prefix(prefix)
            return _advance(prefix, draft, lambda folder, seen: make_image(recipe, folder, seen), session)
    except BaseException:
        _clear(prefix, keep=existed)
        raise


def _refuse_without_programs(request: WrapRequest) -> None:
    """Refuse an installation that would be copied whole before its missing programs are noticed."""
    source = Path(request.recipe.sources[0])
    if request.recipe.kind is not SourceKind.FOLDER or request.settings.paths or not source.is_dir():
        return
    if not (source / "bin").is_dir():
        raise UsageError(
            f"{source} has no folder bin, so which commands shall be wrapped?",
            hint="name the folder of an installation, or where its programs are: -w FOLDER,…",
        )


def update(request: UpdateRequest, settings: Settings | None, session: Session) -> WrapReport:
    """Make the next version of a prefix beside the current one, then switch to it by one rename.

    Parameters
    ----------
    settings
        How the commands start from now on; None keeps the settings.

    Raises
    ------
    ArgosyError
        The prefix is then as it was.
    """
    prefix = request.prefix
    with alone(prefix, session, doing=f"updating {prefix}"):
        old = open_prefix(prefix)
        sweep(prefix)
        recipe = with_own_python(plan_update(request, old.recipe), settings or old.settings)
        draft = _Draft(old.identity, _reason(request), recipe, settings or old.settings)
        bring = _bring(request, recipe, other_settings=draft.settings != old.settings)
        if recipe.own_python and not old.recipe.own_python and not _has_own_python(prefix):
            bring = _from_sources(recipe)
        return _advance(prefix, draft, bring, session, previous=old.number)


def with_own_python(recipe: Recipe, settings: Settings) -> Recipe:
    """Let conda bring the Python of environment files, if the host's system folders hide the base's."""
    own = recipe.own_python or (settings.host and recipe.kind is SourceKind.FILES)
    return replace(recipe, own_python=own)


def plan_update(request: UpdateRequest, old: Recipe) -> Recipe:
    """Give the recipe of the next version.

    Raises
    ------
    UsageError
        When an image is given to a prefix that was built from files, or files to one that wraps an image.
    """
    if request.image and old.kind is not SourceKind.IMAGE:
        raise UsageError("this prefix was built from files", evidence=str(old), hint="give files or packages instead")
    if request.files and old.kind is not SourceKind.FILES:
        raise UsageError("this prefix wraps an image", evidence=str(old), hint="give --image, or packages to add")
    if (request.packages or request.after) and old.kind is SourceKind.FOLDER:
        raise UsageError(
            "packages cannot be added to an installation that was moved in",
            evidence=str(old),
            hint="change the installation where it is, then: argosy wrap update DIR",
        )
    files = merge_files(old.sources, request.files) if request.files else old.sources
    return replace(
        old,
        sources=(request.image,) if request.image else files,
        added=_added(old.added, request.packages),
        after=(*old.after, *request.after),
    )


def _added(before: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """Join the requirements of all updates; of one package the last requirement counts."""
    named = {name for text in now if (name := _name_of(text))}
    return tuple(dict.fromkeys((*(text for text in before if text in now or _name_of(text) not in named), *now)))


def _name_of(text: str) -> str:
    try:
        return str(canonicalize_name(Requirement(text).name))
    except InvalidRequirement:
        return ""


def rollback(prefix: Path, number: int, session: Session) -> WrapReport:
    """Switch a prefix to an earlier version, or to any one by its number; 0 means the one before the current.

    Where the switch itself is missing, it means the last one.

    Raises
    ------
    UsageError
        When there is no such version.
    """
    with alone(prefix, session, doing=f"switching {prefix}"):
        now, known = current_version(prefix) or 0, versions(prefix)
        if not known:
            open_prefix(prefix)
        wanted = number or max((each for each in known if each < now or not now), default=0)
        if wanted not in known or wanted == now:
            raise UsageError(
                f"{prefix} has no version {wanted} to go to" if number else f"{prefix} has no version before {now}",
                evidence=f"versions: {', '.join(map(str, known))}; the current one is {now}",
                hint=f"see argosy wrap history {quote(str(prefix))}",
            )
        version = read_version(prefix, wanted)
        switch(prefix, wanted)
    return WrapReport(str(prefix), version, previous=now)


def history(prefix: Path) -> tuple[tuple[Version, bool], ...]:
    """Give the versions of a prefix, oldest first, and which one is the current."""
    now = open_prefix(prefix).number
    return tuple((read_version(prefix, number), number == now) for number in versions(prefix))


def prune(prefix: Path, keep: int, session: Session) -> tuple[int, ...]:
    """Remove old versions but the current one and the `keep` before it; give their numbers.

    A job that still runs from one of them loses its files: that is why nothing is removed unasked.
    """
    with alone(prefix, session, doing=f"pruning {prefix}"):
        now = open_prefix(prefix).number
        sweep(prefix)
        older = [number for number in versions(prefix) if number != now]
        kept = set(sorted(number for number in older if number < now)[-keep:] if keep else ())
        gone = tuple(number for number in older if number not in kept)
        for number in gone:
            _remove(version_folder(prefix, number))
        needed = {tree for number in versions(prefix) for tree in read_version(prefix, number).trees}
        for tree in (prefix / CACHE / "trees").glob("*"):
            if tree.is_dir() and tree.name not in needed:
                _remove(tree)
    return gone


class _Draft(msgspec.Struct, frozen=True):
    """What is known of a version before its image is there."""

    identity: str
    reason: str
    recipe: Recipe
    settings: Settings


def _advance(prefix: Path, draft: _Draft, bring: Bring, session: Session, *, previous: int = 0) -> WrapReport:
    """Make a version in a folder beside, give it its name, and switch to it."""
    start = time.monotonic()
    number = next_number(prefix)
    place = version_folder(prefix, number)
    with fill_once(place, what=f"version {number} of {prefix}", waiting=session.waiting) as folder:
        if folder is None:
            raise UsageError(f"{place} appeared meanwhile", hint="try again")
        brought = bring(folder, session)
        with session.step("wrap", "its commands") as step:
            version = _write_version_files(prefix, number, draft, brought, session)
            step.result = f"{render_commands(len(version.commands))}, started by {version.runtime}"
    write_activation(prefix, version)
    switch(prefix, number)
    return WrapReport(str(prefix), version, previous, time.monotonic() - start, version.notes)


def _write_version_files(prefix: Path, number: int, draft: _Draft, brought: Brought, session: Session) -> Version:
    settings, recipe, image = draft.settings, brought.recipe, brought.image
    opened = inspect_squashfs(open_image(image), session)
    paths = plan_paths(settings, argosy=opened.image.argosy, image=str(recipe), at=recipe.at)
    there = replace(session, paths=replace(session.paths, cache=prefix / CACHE))
    request = ContainerRequest(contain=True, workdir="/", gpu=settings.gpu, runtime=settings.runtime)
    lock = opened.lock
    if lock and open_container(request, str(image), there, dry=True).runtime.traits.unpacks:
        link_layer(session, layer_key(lock), there.paths.cache, layer_tree_key(opened, there))
    plan = open_container(request, str(image), there)
    judge_runtime(plan.runtime.name)
    found = brought.inside
    inside = look_inside(plan, () if found else paths, session, image=str(recipe))
    inside = chosen_inside(found, paths, inside) if found else inside
    judge_glibc(brought.needs, inside)
    check_gpu_build(recipe, plan, inside, session)
    commands = plan_commands(inside, paths, image=str(recipe))
    judge_host(settings, inside)
    cache = prefix / CACHE / "trees"
    own = tuple(Path(tree).parent.name for tree in plan.entry.trees if Path(tree).is_relative_to(cache))
    root = find_root(plan.entry, cache, own[0] if own else f"version-{number}", recipe.at, settings.binds, session)
    version = Version(
        number=number,
        identity=draft.identity,
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        reason=draft.reason,
        argosy=ARGOSY,
        recipe=recipe,
        settings=settings,
        runtime=plan.runtime.name,
        image=image.name,
        digest=opened.image.digest,
        size=_size(opened),
        trees=(*own, root.folder) if root.folder else own,
        commands=commands.commands,
        notes=plan_notes(commands.hidden, settings.binds),
    )
    write_version_files(image.parent, version, plan, inside, commands, root)
    return version


def plan_notes(hidden: tuple[tuple[str, str, str], ...], binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """Say which commands are hidden by others, and what is to be bound and is not on this machine."""
    gone = [bind.source for bind in binds if not bind.optional and not os.path.lexists(bind.source)]
    return (
        *(f"{name}: {taken} is wrapped, {other} is hidden by it" for name, taken, other in hidden),
        *(f"--bind {source}: it is not on this machine; the commands start only where it is" for source in gone),
    )


def _size(opened: OpenedImage) -> int:
    path = Path(opened.image.path)
    return path.stat().st_size if path.is_file() else 0


def _bring(request: UpdateRequest, recipe: Recipe, *, other_settings: bool) -> Bring:
    """Choose the cheapest right way to make the image of the next version.

    The current one stays where only settings change, and is the base where only packages are added; else the sources
    are read again.

    Raises
    ------
    ImageError
        When it is a link to an image that is gone.
    """
    current = image_of_prefix(request.prefix)
    if current is not None and current.is_symlink() and not current.exists() and not request.image:
        raise ImageError(
            f"the image of {request.prefix} is gone",
            evidence=f"it was {current.readlink()}",
            hint=f"bring it back, or: argosy wrap update {quote(str(request.prefix))} --image FILE",
        )
    if current is not None and not (request.files or request.image):
        if request.packages or request.after:
            return lambda folder, session: extend_image(recipe, current, folder, session, after=request.after)
        if other_settings and recipe.kind is not SourceKind.FOLDER:
            return lambda folder, _: keep_image(recipe, current, folder)
    return _from_sources(recipe)


def _from_sources(recipe: Recipe) -> Bring:
    return lambda folder, session: make_image(recipe, folder, session)


def _has_own_python(prefix: Path) -> bool:
    """Tell whether the environment in the image of a prefix has a Python from conda."""
    image = image_of_prefix(prefix)
    lock = open_image(image).lock if image else None
    return any(each.kind is PackageKind.CONDA and each.name == "python" for each in (lock.packages if lock else ()))


def _reason(request: UpdateRequest) -> str:
    files = (Path(file).name for file in (*request.files, *request.after))
    what = (*request.packages, *files, *filter(None, (request.image,)))
    return f"update: {', '.join(what)}" if what else "update"


def _remove(folder: Path) -> None:
    """Take a folder away by a rename first, so that a killed removal never leaves half a version with its name."""
    beside = folder.with_name(f".{folder.name}.gone.part")
    remove_tree(beside)
    folder.rename(beside)
    remove_tree(beside)


def _clear(prefix: Path, *, keep: bool) -> None:
    """Leave nothing of a new prefix that failed."""
    if current_version(prefix) is not None or not prefix.is_dir():
        return
    for name in (VERSIONS, CACHE, MODULES):
        remove_tree(prefix / name)
    for name in (ACTIVATE, ACTIVATE_FISH):
        (prefix / name).unlink(missing_ok=True)
    if not keep and not any(prefix.iterdir()):
        prefix.rmdir()
