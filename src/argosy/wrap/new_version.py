"""Create a version of a prefix: create its image, list its programs, write their wrappers, and switch to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from argosy.builder.base_layer import link_layer_tree
from argosy.builder.build import build_image, hiding_file
from argosy.builder.records import BuildRequest
from argosy.core.cache import fill_once
from argosy.core.errors import ImageError, NoVersions, UsageError
from argosy.core.layout import PrefixLayout
from argosy.core.model import Bind, ContainerRequest, GpuMode
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.session import Session
from argosy.core.shared_folders import is_public
from argosy.core.store import link_or_copy
from argosy.core.tool_errors import tool_error
from argosy.images.find import fetch_or_find_image
from argosy.images.identify import Kind, identify_file
from argosy.images.open import OpenedImage, inspect_squashfs, open_image
from argosy.images.prefix import current_version, image_of_prefix, version_folder
from argosy.images.programs import lacks_path
from argosy.recipes.user_config import configured_site
from argosy.runtimes.choose import gpu_at_sites
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import open_container, start_command
from argosy.sites.load import load_site, sites_here
from argosy.sites.profile import Site
from argosy.version import VERSION as ARGOSY
from argosy.wrap.activation import write_activation
from argosy.wrap.check import refuse_gpu_build_at_site
from argosy.wrap.installations import pack_folder
from argosy.wrap.model import InContainer, PrefixRecipe, PrefixSourceKind, Settings, Version, VersionImage, WrapReport
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
from argosy.wrap.render import write_version_files
from argosy.wrap.root_entries import find_root
from argosy.wrap.templates import read_template
from argosy.wrap.versions import CACHE, keep_readers, next_number, share_new_prefix, switch

PROBE_MARK = "argosy:"
"""Prefix of each line of ``probe.sh``, because an image's own scripts may print, too."""


CONTAINER_HINT = "see whether a container of the image starts: argosy run IMAGE -- /bin/sh -c true"

BAD_SUPERBLOCK = "bad superblock"
ROOT_HINT = (
    "wrap it as an ordinary user, for example the owner of your software folder: for root, Apptainer mounts the image "
    "with this machine's kernel, which may lack the image's compression"
)

SUFFIX = {Kind.SIF: ".sif", Kind.SQUASHFS: ".sqsh", Kind.ROOT_DIRECTORY: ""}
ADDED = "added.txt"


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


class VersionDraft(msgspec.Struct, frozen=True):
    """Facts about a version before its image exists."""

    identity: str
    reason: str
    recipe: PrefixRecipe
    settings: Settings


def add_version(
    prefix: Path, draft: VersionDraft, create_image: CreateImage, session: Session, *, previous: int = 0
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
        keep_readers(prefix, folder, version.trees)
    write_activation(prefix, version)
    if not previous:
        share_new_prefix(prefix)
    switch(prefix, number)
    return WrapReport(str(prefix), version, previous, time.monotonic() - start, version.notes)


def _write_version_files(
    prefix: Path, number: int, draft: VersionDraft, new: VersionImage, session: Session
) -> Version:
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
    """Plan the container of the commands; an image that must be unpacked is unpacked into the prefix."""
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


def probe_image(plan: ContainerPlan, paths: Iterable[str], session: Session, *, image: str) -> InContainer:
    """Start a container once, and list the programs to wrap.

    Raises
    ------
    ImageError
        If the image has no shell.
    ToolFailed
        If the container does not start.
    """
    command = start_command(plan, ("/bin/sh", "-c", read_template("probe.sh"), "sh", *paths), session)
    reply = session.runner.run(command)
    inside = parse_probe(reply.stdout)
    if inside is not None:
        return inside
    if any(text in reply.stderr for text in ('"/bin/sh"', "/bin/sh: no such", "no /bin/sh", "execvp /bin/sh")):
        raise ImageError(
            f"cannot list the programs of {image}: it has no /bin/sh",
            evidence=reply.stderr.strip(),
            hint="use an image with a shell, or start the program with argosy run IMAGE -- PROGRAM",
        )
    hint = ROOT_HINT if BAD_SUPERBLOCK in reply.stderr and not plan.entry.person.uid else CONTAINER_HINT
    raise tool_error(command, reply, doing="looking for programs in the image", hint=hint)


def parse_probe(text: str) -> InContainer | None:
    """Parse the output of ``probe.sh``; return None if the script did not finish."""
    rows = [line.removeprefix(PROBE_MARK).partition(":") for line in text.splitlines() if line.startswith(PROBE_MARK)]
    found: dict[str, list[str]] = {}
    for key, _, value in rows:
        found.setdefault(key, []).append(value)
    if "end" not in found:
        return None
    return InContainer(
        programs=tuple(found.get("program", ())),
        missing=tuple(found.get("missing", ())),
        path=next(iter(found.get("path", ())), ""),
        neighbours=tuple(found.get("neighbour", ())),
        folders=tuple(found.get("folder", ())),
        python=next(iter(found.get("python", ())), ""),
        glibc=next(iter(found.get("glibc", ())), "").removeprefix("glibc "),
        venv=_parse_settings(found.get("setting", ())),
    )


def _parse_settings(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    rows = (line.partition("=") for line in lines)
    return tuple((key.strip().lower(), value.strip()) for key, sign, value in rows if sign)


def make_image(recipe: PrefixRecipe, folder: Path, session: Session) -> VersionImage:
    """Create the image that `recipe` describes in `folder`."""
    if recipe.kind is PrefixSourceKind.FILES:
        files = tuple(map(Path, recipe.sources))
        image, used = _build_image(recipe, recipe.base, files, folder, session)
        return VersionImage(image, recipe.over(used))
    if recipe.kind is PrefixSourceKind.FOLDER:
        return pack_folder(recipe, folder, session)
    return VersionImage(_make_from_image(recipe, folder, session), recipe)


def _make_from_image(recipe: PrefixRecipe, folder: Path, session: Session) -> Path:
    taken = _copy_or_link_image(recipe, folder, session)
    if not (recipe.added or recipe.before or recipe.after):
        return taken
    base = taken.rename(folder / "base")
    image, _ = _build_image(recipe, str(base), (), folder, session)
    base.unlink()
    return image


def extend_image(
    recipe: PrefixRecipe, old: Path, folder: Path, session: Session, *, after: tuple[str, ...]
) -> VersionImage:
    """Create the image of `recipe` from `old`, which lacks only the last packages and the scripts `after` them.

    Only the new packages are packed, unless a script may change others. If they need other versions of those in `old`,
    the image is rebuilt from the sources.
    """
    try:
        return VersionImage(
            _build_image(replace(recipe, before=(), after=after), str(old), (), folder, session)[0], recipe
        )
    except NoVersions as clash:
        if recipe.kind is PrefixSourceKind.FILES and not all(map(os.path.exists, recipe.sources)):
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


def _build_image(
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
    if not recipe.added:
        return image, build_image(request, session).base
    with hiding_file(folder / ADDED, "argosy wrap update", command="argosy wrap new"):
        return image, build_image(request, session).base


def _copy_or_link_image(recipe: PrefixRecipe, folder: Path, session: Session) -> Path:
    """Copy an image if it is in a cache, which may be cleaned; otherwise link to it, because images are large."""
    reference = recipe.sources[0]
    path = fetch_or_find_image(reference, session)
    kind = identify_file(path).kind
    if kind not in SUFFIX:
        raise UsageError(f"cannot wrap {reference}: it is {identify_file(path).description}", hint="pass an image")
    place = folder / f"image{SUFFIX[kind]}"
    in_cache = path.resolve().is_relative_to(session.paths.cache.resolve())
    if (recipe.copy or in_cache) and path.is_file():
        link_or_copy(path.resolve(), place)
    else:
        place.symlink_to(path.resolve())
        if not is_public(path.resolve()) and is_public(folder):
            session.reporter.note(
                f"other users can see the prefix, but not {path}, to which it links: --copy stores the image in it"
            )
    return place
