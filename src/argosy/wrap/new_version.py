"""Create a version of a prefix: its image, the wrappers of its commands, and the switch to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from argosy.builder.base_layer import link_layer_tree
from argosy.core.errors import UsageError
from argosy.core.model import Bind, ContainerRequest, GpuMode
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.core.store import fill_once
from argosy.images.open import OpenedImage, inspect_squashfs, open_image
from argosy.images.prefix import current_version, image_of_prefix, version_folder
from argosy.images.programs import lacks_path
from argosy.recipes.user_config import configured_site
from argosy.runtimes.choose import gpu_at_sites
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import open_container
from argosy.sites.load import load_site, sites_here
from argosy.sites.profile import Site
from argosy.version import VERSION as ARGOSY
from argosy.wrap.activation import write_activation
from argosy.wrap.check import refuse_gpu_build_at_site
from argosy.wrap.model import InContainer, PrefixRecipe, Settings, Version, WrapReport
from argosy.wrap.plan import (
    chosen_inside,
    plan_commands,
    plan_paths,
    refuse_host_setting,
    refuse_missing_paths,
    refuse_newer_glibc,
    refuse_unsupported_runtime,
    refuse_unusable_interpreter,
    venv_interpreter,
)
from argosy.wrap.probe import probe_image
from argosy.wrap.render import write_version_files
from argosy.wrap.root_entries import find_root
from argosy.wrap.sources import VersionImage
from argosy.wrap.versions import CACHE, next_number, switch

CreateImage = Callable[[Path, Session], VersionImage]
"""Function that creates the image in the folder of a version."""


def given_site(recipe: PrefixRecipe, session: Session) -> Site | None:
    """Return the site that the recipe or the user's configuration names; None if neither does."""
    name = configured_site(recipe.site, session.host.environment)
    return load_site(name, session.host) if name else None


def with_gpu_mode(settings: Settings, recipe: PrefixRecipe, runtime: str, session: Session) -> Settings:
    """Complete the settings by the GPU mode of the site: the given or configured one, else those that are detected.

    Each start looks for the devices of NVIDIA and AMD, so only ``none`` differs from ``auto``.
    """
    if settings.gpu is not GpuMode.AUTO:
        return settings
    site = given_site(recipe, session)
    return replace(settings, gpu=gpu_at_sites(settings.gpu, runtime, (site,) if site else sites_here(session.host)))


class Draft(msgspec.Struct, frozen=True):
    """Facts about a version before its image exists."""

    identity: str
    reason: str
    recipe: PrefixRecipe
    settings: Settings


def add_version(
    prefix: Path, draft: Draft, create_image: CreateImage, session: Session, *, previous: int = 0
) -> WrapReport:
    """Create a version in a temporary folder, rename that folder, and switch to the version."""
    start = time.monotonic()
    number = next_number(prefix)
    place = version_folder(prefix, number)
    with fill_once(place, what=f"version {number} of {prefix}", waiting=session.waiting) as folder:
        if folder is None:
            raise UsageError(f"another process created {place}", hint="try again")
        new = create_image(folder, session)
        with session.step("wrap", "its commands") as step:
            version = _write_version_files(prefix, number, draft, new, session)
            step.result = f"{count(len(version.commands), 'command')}, started by {version.runtime}"
    write_activation(prefix, version)
    switch(prefix, number)
    return WrapReport(str(prefix), version, previous, time.monotonic() - start, version.notes)


def _write_version_files(prefix: Path, number: int, draft: Draft, new: VersionImage, session: Session) -> Version:
    """Choose the commands of an image, write their wrappers and the facts of the version, and return these."""
    settings, recipe, image = draft.settings, new.recipe, new.image
    opened = inspect_squashfs(open_image(image), session)
    paths = plan_paths(settings, argosy=opened.image.argosy, image=str(recipe), at=recipe.at)
    if new.inside is None:
        refuse_missing_paths([path for path in paths if lacks_path(path, opened.image)], str(recipe))
    prefix_session = replace(session, paths=replace(session.paths, cache=prefix / CACHE))
    plan = _prepare_start(opened, image_of_prefix(prefix), settings, prefix_session, session)
    settings = with_gpu_mode(settings, recipe, plan.runtime.name, session)
    inside = _list_programs(plan, paths, new, session)
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
        notes=collect_notes(commands.hidden, settings.binds),
    )
    write_version_files(image.parent, version, plan, inside, commands, root)
    return version


def _prepare_start(
    opened: OpenedImage, before: Path | None, settings: Settings, prefix_session: Session, session: Session
) -> ContainerPlan:
    """Plan the container of the commands; an image that must be unpacked is unpacked into the prefix.

    Parameters
    ----------
    before
        The image of the version before; None if there is none.
    prefix_session
        The session with the cache of the prefix.
    """
    image = opened.image.path
    request = ContainerRequest(contain=True, workdir="/", gpu=settings.gpu, runtime=settings.runtime)
    if opened.lock:
        link_layer_tree(opened, before, request, prefix_session, session)
    plan = open_container(request, image, prefix_session)
    refuse_unsupported_runtime(plan.runtime.name)
    return plan


def _list_programs(plan: ContainerPlan, paths: tuple[str, ...], new: VersionImage, session: Session) -> InContainer:
    """List the programs to wrap, and check that the image can run them."""
    recipe = new.recipe
    if new.inside is None:
        inside = probe_image(plan, paths, session, image=str(recipe))
    else:
        interpreter = venv_interpreter(new.inside)
        in_image = probe_image(plan, (interpreter,) if interpreter else (), session, image=str(recipe))
        folder = Path(interpreter).parent.parent
        prefix = str(folder) if interpreter and current_version(folder) is not None else ""
        refuse_unusable_interpreter(recipe.sources[0], interpreter, in_image, prefix=prefix)
        inside = chosen_inside(new.inside, paths, in_image)
    refuse_newer_glibc(new.needs, inside)
    refuse_gpu_build_at_site(recipe, plan, inside, session)
    return inside


def collect_notes(hidden: tuple[tuple[str, str, str], ...], binds: tuple[Bind, ...]) -> tuple[str, ...]:
    """Return notes on commands that others hide, and on bind mounts whose source this machine does not have."""
    gone = [bind.source for bind in binds if not bind.optional and not os.path.lexists(bind.source)]
    return (
        *(f"{name}: {taken} is wrapped and hides {other}" for name, taken, other in hidden),
        *(f"--bind {source}: not on this machine; the commands start only on machines that have it" for source in gone),
    )
