"""What is to be built: from the user's files, or from a lock of ours; it opens no base and installs nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.bases.base import Base
from argosy.builder.bases.mmdebstrap import parse_debian
from argosy.builder.report import BuildReport, BuildRequest
from argosy.builder.steps.locks import locked_project, refuse_changed_steps
from argosy.core.errors import CheckFailed, ImageError, UsageError
from argosy.core.layout import plan_activation
from argosy.core.model import Image
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.catalog import find_held
from argosy.images.find import refined
from argosy.images.formats import OutputFormat, render_use
from argosy.images.identify import Kind, identify_file
from argosy.images.open import open_image
from argosy.recipes.conda_request import SUBDIRS, CondaTarget
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.lock import Lock, LockedSource, parse_lock
from argosy.recipes.project_tables import Project
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import PipOption, Recipe, Where
from argosy.recipes.relock import changed_sources, locked_recipe

LOCK_FILE = "argosy.lock"
"""The name of a lock where none is given."""

WHEELS, CONDA, PROJECT, STAGES = "wheels", "conda", "project", "stages"
"""Folders of a bundle."""

IMAGES = (Kind.SIF, Kind.SQUASHFS, Kind.ROOT_DIRECTORY)


class BuildPlan(msgspec.Struct, frozen=True):
    """What is to be built.

    Attributes
    ----------
    base
        As `argosy.builder.bases.base.open_base` takes it.
    lock
        What the image must be; None where versions are chosen now.
    project
        Whose steps and stages are carried out: the user's project file, or what the lock says of it.
    """

    recipe: Recipe
    base: str
    lock: Lock | None = None
    project: Project | None = None


def read_build_plan(request: BuildRequest, session: Session) -> BuildPlan:
    """Read the user's files, or the lock that stands for them.

    Raises
    ------
    ArgosyError
        When one of them is missing or cannot be meant, or the files are not those that were locked.
    """
    stages = request.project.table.stage if request.project else ()
    for base in (request.base, *(stage.base for stage in stages)):
        if base.startswith("debian:"):
            parse_debian(base, session.host.environment)
    if request.project:
        request.project.refuse_missing()
    if not request.locked:
        return BuildPlan(_read_files(request, session), request.base, project=request.project)
    lock = read_lock(request.locked, session)
    if request.sources:
        refuse_changed(lock, _read_files(request, session), request.locked)
    if request.project:
        refuse_changed_steps(lock, request.project, request.locked)
    recipe = locked_recipe(lock, request.locked, from_files=request.bundle is not None)
    if request.bundle:
        recipe = replace(recipe, options=(*recipe.options, *_bundled(request.bundle)))
    beside = request.bundle / PROJECT if request.bundle else _folder_of(request.locked, session)
    project = request.project or locked_project(lock, request.locked, beside)
    return BuildPlan(recipe, request.base or lock.base.reference, lock, project)


def _folder_of(locked: str, session: Session) -> Path:
    """Give the folder of what a lock's steps copy: the lock file's own; the current one where an image is the lock."""
    path = Path(locked).absolute()
    return Path(session.host.cwd) if identify_file(path).kind in IMAGES else path.parent


def _bundled(folder: Path) -> tuple[PipOption, ...]:
    """Give pip's options that let nothing but a bundle's wheels in."""
    where = Where(str(folder), 1)
    return (PipOption("no-index", "", where), PipOption("find-links", str(folder / WHEELS), where))


def _read_files(request: BuildRequest, session: Session) -> Recipe:
    host = session.host
    subdir = CondaTarget(host.target, "").subdir if host.target in SUBDIRS else ""
    if not request.sources:
        return Recipe()
    recipe = read_recipe(map(str, request.sources), environment=host.environment, subdir=subdir)
    asked = (request.unisolated, request.replaceable)
    late, free = (tuple(str(canonicalize_name(name)) for name in names) for names in asked)
    recipe = replace(recipe, unisolated=tuple(dict.fromkeys((*recipe.unisolated, *late))), replaceable=free)
    return with_own_python(recipe) if request.prefix_layout.own_python else recipe


def with_own_python(recipe: Recipe) -> Recipe:
    """Let conda bring the Python of an environment file, which would else be the base's.

    An environment file that only has a ``pip:`` section gets Python and pip from conda, as conda itself does it.
    """
    file = next((source.path for source in recipe.sources if source.path.endswith((".yml", ".yaml"))), "")
    if recipe.wants_conda or not (recipe.interpreter or (file and recipe.pip)):
        return recipe
    named = recipe.interpreter or (parse_conda_spec("pip", Where(file, 1)),)
    return replace(recipe, conda=named, interpreter=())


def source_records(recipe: Recipe) -> tuple[LockedSource, ...]:
    """Give what a lock keeps of the user's files: the name and the sha256 of each."""
    return tuple(LockedSource(Path(source.path).name, source.sha256) for source in recipe.sources)


def refuse_changed(lock: Lock, recipe: Recipe, file: str) -> None:
    """Refuse a lock that was made from other files.

    Raises
    ------
    CheckFailed
        Naming the files that differ.
    """
    if changed := changed_sources(lock, source_records(recipe)):
        raise CheckFailed(
            f"{file} was made from other files",
            evidence="\n".join(changed),
            hint="lock again: argosy lock, with the same files and base",
        )


def read_lock(name: str, session: Session) -> Lock:
    """Read a lock file, or the lock that an image carries: a file of one, or its name in the catalog.

    Raises
    ------
    UsageError, ImageError
        When there is no such file, it is no lock, or an image that has none.
    """
    path = Path(name)
    path = path if path.exists() else find_held(name, session) or path
    kind = identify_file(path).kind
    if kind is Kind.MISSING:
        raise UsageError(f"there is no lock {name}", hint="make one: argosy lock SOURCES --base BASE -o argosy.lock")
    if kind not in IMAGES:
        text = path.read_text(errors="replace", encoding="utf-8")
        if not text.lstrip().startswith("{"):
            raise ImageError(f"{name} is no lock", hint="name what 'argosy lock' wrote, or an image that carries one")
        return parse_lock(text, name)
    lock = refined(open_image(path.absolute()), session).lock
    if lock is None:
        raise ImageError(
            f"{name} carries no lock",
            evidence="Argosy did not make it",
            hint=f"argosy images freeze {quote(name)} lists what is in it",
        )
    return lock


def refuse_other_base(build_plan: BuildPlan, base: Base) -> None:
    """Refuse a base whose bytes are not those that were locked.

    Raises
    ------
    CheckFailed
        With both digests.
    """
    if build_plan.lock and build_plan.lock.base.digest != base.digest:
        raise CheckFailed(
            f"the base {base.reference} is not the one that was locked",
            evidence=f"locked: {build_plan.lock.base.reference}  {build_plan.lock.base.digest}\nthere:  {base.digest}",
            hint="give the file that was locked by --base, or lock again over this one",
        )


def standing_output(request: BuildRequest, build_plan: BuildPlan) -> BuildReport | None:
    """Give the report for an output that already is what the lock says; None where it must be built."""
    if build_plan.lock is None or not is_whole_order(request, build_plan.lock):
        return None
    if identify_file(request.output).kind is not Kind.SIF:
        return None
    there = open_image(request.output)
    flat = there.image.layer_part == 0
    if there.lock is None or flat != request.flatten or not is_same(there.lock, build_plan.lock):
        return None
    note = f"{request.output} is what the lock says already: nothing was done"
    return report_standing(request, there.image, there.lock, (note,))


def is_whole_order(request: BuildRequest, lock: Lock) -> bool:
    """Tell whether a lock says all of the image file that is asked for."""
    scripts = request.before or request.after  # what they leave is in no lock
    return request.form is OutputFormat.SIF and bool(lock.content) and not scripts


def report_standing(request: BuildRequest, image: Image, lock: Lock, notes: tuple[str, ...]) -> BuildReport:
    """Report an output for which nothing was installed or packed: its content is that of `image`, by that lock."""
    return BuildReport(
        output=str(request.output),
        digest=lock.content,
        base=lock.base.reference,
        base_digest=lock.base.digest,
        base_bytes=image.base_size,
        layer_bytes=image.layer_size,
        python=lock.python,
        packages=len(lock.packages),
        backend="",
        timings=(),
        notes=notes,
        use=render_use(request.form, request.output, base="", program="python", activation=plan_activation()),
    )


def is_same(one: Lock, other: Lock) -> bool:
    """Tell whether two locks are of the same content over the same base, made by the same steps."""
    made = (one.steps, one.stages) == (other.steps, other.stages)
    return made and one.content == other.content and one.base.digest == other.base.digest


def differences(build_plan: BuildPlan, made: Lock) -> tuple[str, ...]:
    """Say in which points an image built from a lock differs, or may differ, from the one that was locked."""
    lock = build_plan.lock
    if lock is None or not lock.content:
        return ()
    if lock.content != made.content:
        return (f"the content is not that of the lock: {made.content} instead of {lock.content}",)
    if lock.tools.mksquashfs != made.tools.mksquashfs:
        packers = f"mksquashfs {made.tools.mksquashfs} instead of {lock.tools.mksquashfs}"
        return (f"same content, other packer ({packers}): the file's own bytes may differ",)
    return ()
