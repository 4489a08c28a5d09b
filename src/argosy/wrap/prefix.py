"""Create, update, roll back and prune a prefix: `argosy wrap`. Running commands keep the files of their version."""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from argosy.builder.base_layer import link_layer_tree
from argosy.core.errors import ImageError, UsageError
from argosy.core.model import Bind, ContainerRequest, GpuMode
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import fill_once, remove_tree
from argosy.images.open import OpenedImage, inspect_squashfs, open_image
from argosy.images.prefix import VERSIONS, current_version, image_of_prefix, version_folder
from argosy.recipes.lock import PackageKind
from argosy.recipes.user_config import configured_site
from argosy.runtimes.choose import gpu_at_sites
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import open_container
from argosy.sites.load import load_site, sites_here
from argosy.sites.profile import Site
from argosy.version import VERSION as ARGOSY
from argosy.wrap.activation import write_activation
from argosy.wrap.check import refuse_gpu_build_at_site
from argosy.wrap.model import InContainer, Recipe, Settings, SourceKind, UpdateRequest, Version, WrapReport, WrapRequest
from argosy.wrap.plan import (
    chosen_inside,
    look_inside,
    merge_files,
    plan_commands,
    plan_paths,
    refuse_host_setting,
    refuse_missing_paths,
    refuse_newer_glibc,
    refuse_relative_paths,
    refuse_unsupported_runtime,
    refuse_unusable_interpreter,
    settings_at_site,
    venv_interpreter,
)
from argosy.wrap.render import write_version_files
from argosy.wrap.root_entries import find_root
from argosy.wrap.sources import Brought, extend_image, keep_image, make_image
from argosy.wrap.versions import (
    ACTIVATE,
    ACTIVATE_FISH,
    CACHE,
    MODULES,
    locked_prefix,
    next_number,
    open_prefix,
    read_version,
    refuse_prefix,
    sweep,
    switch,
    versions,
)

Bring = Callable[[Path, Session], Brought]
"""Function that creates the image in the folder of a version."""


def wrap(request: WrapRequest, session: Session) -> WrapReport:
    """Create a prefix whose ``bin`` contains one small wrapper for each command of an image.

    Raises
    ------
    ArgosyError
        If any step fails. The prefix then does not exist, or is as empty as before.
    """
    prefix = request.prefix
    if request.recipe.kind is SourceKind.FOLDER and (request.recipe.before or request.recipe.after):
        raise UsageError("scripts need an image that Argosy builds", hint="run them on the installation, then wrap it")
    refuse_relative_paths(request.settings, request.recipe)
    _refuse_without_programs(request)
    refuse_prefix(prefix)
    existed = prefix.is_dir()
    settings = _at_site(request.settings, request.recipe, session)
    recipe = with_own_python(request.recipe, settings)
    draft = _Draft(uuid.uuid4().hex[:12], "new", recipe, settings)
    try:
        with locked_prefix(prefix, session, doing=f"wrapping into {prefix}", new=True):
            sweep(prefix)
            refuse_prefix(prefix)
            return _create(prefix, draft, session)
    finally:
        if not existed:
            with contextlib.suppress(OSError):  # not empty: it has a version, or another process uses it
                prefix.rmdir()


def _create(prefix: Path, draft: _Draft, session: Session) -> WrapReport:
    """Create the first version of a locked prefix; remove everything again if that fails."""
    try:
        return _advance(prefix, draft, _from_sources(draft.recipe), session)
    except BaseException:
        _clear(prefix)
        raise


def _refuse_without_programs(request: WrapRequest) -> None:
    """Reject an installation without ``bin``, before it is copied."""
    source = Path(request.recipe.sources[0])
    if request.recipe.kind is not SourceKind.FOLDER or request.settings.paths or not source.is_dir():
        return
    if not (source / "bin").is_dir():
        raise UsageError(
            f"cannot find the commands of {source}: it has no folder bin",
            hint="pass the folder of an installation, or the folders of its programs: -w FOLDER,…",
        )


def update(request: UpdateRequest, settings: Settings | None, session: Session) -> WrapReport:
    """Create the next version of a prefix, then switch to it with one rename.

    Parameters
    ----------
    settings
        The new settings of the commands; None keeps the present ones.

    Raises
    ------
    ArgosyError
        If any step fails. The prefix is then unchanged.
    """
    prefix = request.prefix
    with locked_prefix(prefix, session, doing=f"updating {prefix}"):
        old = open_prefix(prefix)
        sweep(prefix)
        recipe = plan_update(request, old.recipe)
        refuse_relative_paths(settings or old.settings, recipe)
        new = _at_site(settings, recipe, session) if settings else old.settings
        recipe = with_own_python(recipe, new)
        draft = _Draft(old.identity, _reason(request), recipe, new)
        bring = _bring(request, recipe, other_settings=draft.settings != old.settings)
        if recipe.own_python and not old.recipe.own_python and not _has_own_python(prefix):
            bring = _from_sources(recipe)
        return _advance(prefix, draft, bring, session, previous=old.number)


def _at_site(settings: Settings, recipe: Recipe, session: Session) -> Settings:
    """Complete the settings of a prefix by the runtime of its site, if one is given or configured."""
    site = _given_site(recipe, session)
    if site is None:
        return settings
    settings, note = settings_at_site(settings, site, session.host)
    if note:
        session.reporter.note(note)
    return settings


def _given_site(recipe: Recipe, session: Session) -> Site | None:
    name = configured_site(recipe.site, session.host.environment)
    return load_site(name, session.host) if name else None


def with_gpu_mode(settings: Settings, recipe: Recipe, runtime: str, session: Session) -> Settings:
    """Complete the settings by the GPU mode of the site: the given or configured one, else those that are detected.

    Each start looks for the devices of NVIDIA and AMD, so only ``none`` differs from ``auto``.
    """
    if settings.gpu is not GpuMode.AUTO:
        return settings
    site = _given_site(recipe, session)
    return replace(settings, gpu=gpu_at_sites(settings.gpu, runtime, (site,) if site else sites_here(session.host)))


def with_own_python(recipe: Recipe, settings: Settings) -> Recipe:
    """Return the recipe with the Python of conda, if ``--host`` hides that of the base."""
    own = recipe.own_python or (settings.host and recipe.kind is SourceKind.FILES)
    return replace(recipe, own_python=own)


def plan_update(request: UpdateRequest, old: Recipe) -> Recipe:
    """Return the recipe of the next version.

    Raises
    ------
    UsageError
        If the request does not fit the sources of the prefix, for example an image for a prefix built from files.
    """
    if request.image and old.kind is not SourceKind.IMAGE:
        raise UsageError("this prefix was built from files", evidence=str(old), hint="pass files or packages instead")
    if request.files and old.kind is not SourceKind.FILES:
        raise UsageError("this prefix wraps an image", evidence=str(old), hint="pass --image, or packages to add")
    if (request.packages or request.after) and old.kind is SourceKind.FOLDER:
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
        return str(canonicalize_name(Requirement(text).name))
    except InvalidRequirement:
        return ""


def rollback(prefix: Path, number: int, session: Session) -> WrapReport:
    """Switch a prefix to another version.

    Parameters
    ----------
    number
        Number of the version; 0 means the one before the current one, or the last one if there is no current one.

    Raises
    ------
    UsageError
        If there is no such version.
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


def history(prefix: Path) -> tuple[tuple[Version, bool], ...]:
    """Return the versions of a prefix, oldest first, each with whether it is the current one."""
    now = open_prefix(prefix).number
    return tuple((read_version(prefix, number), number == now) for number in versions(prefix))


def prune(prefix: Path, keep: int, session: Session) -> tuple[int, ...]:
    """Remove old versions, except the current one and the `keep` versions before it, and return their numbers.

    Argosy never does this by itself: a job that still uses an old version would lose its files.
    """
    with locked_prefix(prefix, session, doing=f"pruning {prefix}"):
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
    """Facts about a version before its image exists."""

    identity: str
    reason: str
    recipe: Recipe
    settings: Settings


def _advance(prefix: Path, draft: _Draft, bring: Bring, session: Session, *, previous: int = 0) -> WrapReport:
    """Create a version in a temporary folder, rename that folder, and switch to the version."""
    start = time.monotonic()
    number = next_number(prefix)
    place = version_folder(prefix, number)
    with fill_once(place, what=f"version {number} of {prefix}", waiting=session.waiting) as folder:
        if folder is None:
            raise UsageError(f"another process created {place}", hint="try again")
        brought = bring(folder, session)
        with session.step("wrap", "its commands") as step:
            version = _write_version_files(prefix, number, draft, brought, session)
            step.result = f"{count(len(version.commands), 'command')}, started by {version.runtime}"
    write_activation(prefix, version)
    switch(prefix, number)
    return WrapReport(str(prefix), version, previous, time.monotonic() - start, version.notes)


def _write_version_files(prefix: Path, number: int, draft: _Draft, brought: Brought, session: Session) -> Version:
    settings, recipe, image = draft.settings, brought.recipe, brought.image
    opened = inspect_squashfs(open_image(image), session)
    paths = plan_paths(settings, argosy=opened.image.argosy, image=str(recipe), at=recipe.at)
    if brought.inside is None:
        refuse_missing_paths(paths, opened.image, shown=str(recipe))
    there = replace(session, paths=replace(session.paths, cache=prefix / CACHE))
    plan = _prepare_start(opened, image_of_prefix(prefix), settings, there, session)
    settings = with_gpu_mode(settings, recipe, plan.runtime.name, session)
    inside = _list_programs(plan, paths, brought, session)
    commands = plan_commands(inside, paths, image=str(recipe))
    refuse_host_setting(settings, inside)
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
        size=image.stat().st_size if image.is_file() else 0,
        trees=(*own, root.folder) if root.folder else own,
        commands=commands.commands,
        notes=plan_notes(commands.hidden, settings.binds),
    )
    write_version_files(image.parent, version, plan, inside, commands, root)
    return version


def _prepare_start(
    opened: OpenedImage, before: Path | None, settings: Settings, there: Session, session: Session
) -> ContainerPlan:
    """Plan the container of the commands; an image that must be unpacked is unpacked into the prefix.

    Parameters
    ----------
    before
        The image of the version before; None if there is none.
    there
        The session with the cache of the prefix.
    """
    image = opened.image.path
    request = ContainerRequest(contain=True, workdir="/", gpu=settings.gpu, runtime=settings.runtime)
    if opened.lock:
        link_layer_tree(opened, before, request, there, session)
    plan = open_container(request, image, there)
    refuse_unsupported_runtime(plan.runtime.name)
    return plan


def _list_programs(plan: ContainerPlan, paths: tuple[str, ...], brought: Brought, session: Session) -> InContainer:
    """List the programs to wrap, and check that the image can run them."""
    found, recipe = brought.inside, brought.recipe
    interpreter = venv_interpreter(found) if found else ""
    inside = look_inside(plan, (interpreter,) if interpreter else () if found else paths, session, image=str(recipe))
    refuse_unusable_interpreter(recipe.sources[0], interpreter, inside)
    inside = chosen_inside(found, paths, inside) if found else inside
    refuse_newer_glibc(brought.needs, inside)
    refuse_gpu_build_at_site(recipe, plan, inside, session)
    return inside


def plan_notes(hidden: tuple[tuple[str, str, str], ...], binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """Return notes on commands that others hide, and on bind mounts whose source this machine does not have."""
    gone = [bind.source for bind in binds if not bind.optional and not os.path.lexists(bind.source)]
    return (
        *(f"{name}: {taken} is wrapped and hides {other}" for name, taken, other in hidden),
        *(f"--bind {source}: not on this machine; the commands start only on machines that have it" for source in gone),
    )


def _bring(request: UpdateRequest, recipe: Recipe, *, other_settings: bool) -> Bring:
    """Choose the cheapest correct method to create the image of the next version.

    If only settings change, the image stays. If only packages are added, the image is the base. Otherwise the image is
    created from the sources again.

    Raises
    ------
    ImageError
        If the current image is a link to a missing file.
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
        if other_settings and recipe.kind is not SourceKind.FOLDER:
            return lambda folder, _: keep_image(recipe, current, folder)
    return _from_sources(recipe)


def _from_sources(recipe: Recipe) -> Bring:
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
    beside = folder.with_name(f".{folder.name}.gone.part")
    remove_tree(beside)
    folder.rename(beside)
    remove_tree(beside)


def _clear(prefix: Path) -> None:
    """Remove everything of a locked new prefix whose creation failed."""
    if current_version(prefix) is not None:
        return
    for name in (VERSIONS, CACHE, MODULES):
        remove_tree(prefix / name)
    for name in (ACTIVATE, ACTIVATE_FISH):
        (prefix / name).unlink(missing_ok=True)
