"""Read the packages and steps that a build installs: from the user's files and project file, or from a lock.

A lock records steps and stages with the digests of their files.  Reading a lock returns the same tables, after the
files next to the lock were compared with their digests.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.bases.base import Base
from argosy.builder.bases.debian import parse_debian
from argosy.builder.records import BuildRequest
from argosy.core.errors import CheckFailed, ImageError, UsageError
from argosy.core.os_errors import reading
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.core.store import digest_of_file
from argosy.core.suggest import did_you_mean
from argosy.images.find import find_local
from argosy.images.identify import Kind, identify_file
from argosy.images.open import inspect_squashfs, open_image
from argosy.recipes.conda_request import SUBDIRS, CondaTarget
from argosy.recipes.conda_spec import parse_conda_spec
from argosy.recipes.lock import Lock, LockedSource, LockedStage, LockedStep, parse_lock
from argosy.recipes.option_row import OneOrMore
from argosy.recipes.project_file import (
    Fetch,
    Project,
    ProjectTable,
    StageTable,
    StepTable,
    refuse_contradictions,
    words,
)
from argosy.recipes.read import read_recipe
from argosy.recipes.recipe import Note, PipOption, Recipe, Where
from argosy.recipes.relock import changed_sources, changed_steps, locked_recipe

LOCK_FILE = "argosy.lock"
"""Default name of a lock file."""

WHEELS, CONDA, PROJECT, STAGES = "wheels", "conda", "project", "stages"
"""Folders of a bundle."""

FROM_BUNDLE = "pass no files and no --base: the bundle contains them; or run argosy bundle again"
"""The hint for a build from a bundle with other files or another base."""

IMAGES_WITH_LOCK = (Kind.SIF, Kind.SQUASHFS, Kind.ROOT_DIRECTORY)


class BuildInputs(msgspec.Struct, frozen=True):
    """The inputs of a build, read from the files of the request."""

    recipe: Recipe
    base: str
    """See `argosy.builder.bases.base.open_base`."""
    lock: Lock | None = None
    """The lock that the image must match; None if the build chooses versions."""
    project: Project | None = None
    """The project whose steps and stages run: the user's project file, or what the lock records of it."""


def read_inputs(request: BuildRequest, session: Session, lock: Lock | None) -> BuildInputs:
    """Read the user's files, or use the lock that replaces them."""
    stages = request.project.table.stage if request.project else ()
    for base in (request.base, *(stage.base for stage in stages)):
        if base.startswith("debian:"):
            parse_debian(base, session.host.environment)
    if request.project:
        request.project.refuse_missing()
    if lock is None:
        return BuildInputs(_read_files(request, session), request.base, project=request.project)
    shown, hint = ("the bundle", FROM_BUNDLE) if request.bundle else (request.locked, "")
    if request.sources:
        refuse_changed(lock, _read_files(request, session), shown, hint=hint)
    if request.project:
        refuse_changed_steps(lock, request.project, shown, hint=hint)
    recipe = locked_recipe(lock, request.locked, from_files=request.bundle is not None)
    if request.bundle:
        recipe = replace(recipe, options=(*recipe.options, *_bundle_options(request.bundle)))
    folder = request.bundle / PROJECT if request.bundle else _folder_of_lock(request.locked, session)
    project = request.project or locked_project(lock, request.locked, folder)
    return BuildInputs(recipe, request.base or lock.base.reference, lock, project)


def _folder_of_lock(locked: str, session: Session) -> Path:
    """Return the folder of the files that a lock's steps copy: the lock's folder, or the current one for an image."""
    path = Path(locked).absolute()
    return Path(session.host.cwd) if identify_file(path).kind in IMAGES_WITH_LOCK else path.parent


def _bundle_options(folder: Path) -> tuple[PipOption, ...]:
    """Return the pip options that allow only the wheels of a bundle."""
    where = Where(str(folder), 1)
    return (PipOption("no-index", "", where), PipOption("find-links", str(folder / WHEELS), where))


def _read_files(request: BuildRequest, session: Session) -> Recipe:
    host = session.host
    subdir = CondaTarget(host.target, "").subdir if host.target in SUBDIRS else ""
    if not request.sources:
        return Recipe()
    recipe = read_recipe(map(str, request.sources), environment=host.environment, subdir=subdir)
    named = tuple(map(canonicalize_name, request.unisolated))
    recipe = replace(
        recipe,
        unisolated=tuple(dict.fromkeys((*recipe.unisolated, *named))),
        replaceable=tuple(map(canonicalize_name, request.replaceable)),
        notes=(*recipe.notes, *_unknown_notes(recipe, named)),
    )
    return with_own_python(recipe) if request.prefix_layout.own_python else recipe


def _unknown_notes(recipe: Recipe, unisolated: tuple[str, ...]) -> Iterator[Note]:
    """Describe packages to build last that no line requests; a line without a name could be any package."""
    asked = {line.name for line in recipe.pip}
    for name in dict.fromkeys(unisolated):
        if name not in asked and "" not in asked:
            hint = did_you_mean(name, asked, "")
            yield Note(f"--no-build-isolation {name}: no line requests this package{f'; {hint}' if hint else ''}")


def with_own_python(recipe: Recipe) -> Recipe:
    """Let conda install the Python of an environment file, instead of using the base's.

    An environment file with only a ``pip:`` section gets Python and pip from conda, as with conda itself.
    """
    file = next((source.path for source in recipe.sources if source.path.endswith((".yml", ".yaml"))), "")
    if recipe.wants_conda or not (recipe.interpreter or (file and recipe.pip)):
        return recipe
    specs = recipe.interpreter or (parse_conda_spec("pip", Where(file, 1)),)
    return replace(recipe, conda=specs, interpreter=())


def source_records(recipe: Recipe) -> tuple[LockedSource, ...]:
    """Return what a lock records of the user's files: the name and the sha256 of each."""
    return tuple(LockedSource(Path(source.path).name, source.sha256) for source in recipe.sources)


def refuse_changed(lock: Lock, recipe: Recipe, file: str, *, hint: str = "") -> None:
    """Refuse a lock that was made from other files."""
    if changed := changed_sources(lock, source_records(recipe)):
        raise CheckFailed(
            f"{file} was made from other files",
            evidence="\n".join(changed),
            hint=hint or "run argosy lock again with the same files and base",
        )


def read_lock(name: str, session: Session) -> Lock:
    """Read a lock file, or the lock in an image, which may be a file or a name in the catalog.

    Raises
    ------
    UsageError, ImageError
        If there is no such file, it is not a lock, or the image contains none.
    """
    path = find_local(name, session) or Path(name)
    kind = identify_file(path).kind
    if kind is Kind.MISSING:
        raise UsageError(f"there is no lock {name}", hint="create one: argosy lock SOURCES --base BASE -o argosy.lock")
    if kind not in IMAGES_WITH_LOCK:
        with reading(path):
            text = path.read_text(errors="replace", encoding="utf-8")
        if not text.lstrip().startswith("{"):
            raise ImageError(f"{name} is not a lock", hint="use a file that argosy lock wrote, or an image with a lock")
        return parse_lock(text, name)
    lock = inspect_squashfs(open_image(path.absolute()), session).lock
    if lock is None:
        raise ImageError(
            f"{name} contains no lock",
            evidence="it was not built by Argosy",
            hint=f"argosy images freeze {quote(name)} lists its packages",
        )
    return lock


def refuse_other_base(inputs: BuildInputs, base: Base, bundle: Path | None = None) -> None:
    """Refuse a base that has other bytes than the base that was locked, maybe in a bundle."""
    if inputs.lock and inputs.lock.base.digest != base.digest:
        raise CheckFailed(
            f"the base {base.reference} is not the one that was locked",
            evidence=f"locked: {inputs.lock.base.reference}  {inputs.lock.base.digest}\nfound:  {base.digest}",
            hint=FROM_BUNDLE if bundle else "pass the locked file with --base, or run argosy lock again with this base",
        )


NO_BASES: Mapping[str, Base] = {}


def record_steps(project: Project | None) -> tuple[LockedStep, ...]:
    """Return the locked form of a project's steps."""
    return tuple(_step(project, step) for step in project.table.step) if project else ()


def _step(project: Project, step: StepTable) -> LockedStep:
    return LockedStep(
        run=_lines(step.run),
        copy=_files(project, step.copy),
        url=redact(step.fetch.url) if step.fetch else "",
        sha256=step.fetch.sha256 if step.fetch else "",
        to=step.to,
        before=step.before,
    )


def record_stages(project: Project | None, bases: Mapping[str, Base] = NO_BASES) -> tuple[LockedStage, ...]:
    """Return the locked form of a project's stages.

    Parameters
    ----------
    bases
        The base of each stage by its name; without it, the lock does not contain the digests of the bases.
    """
    return tuple(_stage(project, stage, bases.get(stage.name)) for stage in project.table.stage) if project else ()


def _stage(project: Project, stage: StageTable, base: Base | None) -> LockedStage:
    return LockedStage(
        name=stage.name,
        base=stage.base,
        copy=_files(project, stage.copy),
        run=_lines(stage.run),
        results=tuple(stage.results.items()),
        digest=base.digest if base else "",
        pinned=base.reference if base and "@sha256:" in base.reference else "",
    )


def refuse_other_stage(locked: LockedStage | None, base: Base) -> None:
    """Refuse a base of a stage that has other bytes than the one that was locked."""
    if locked and locked.digest not in {"", base.digest}:
        raise CheckFailed(
            f"the base of stage {locked.name} is not the one that was locked",
            evidence=f"locked: {locked.base}  {locked.digest}\nfound:  {base.digest}",
            hint="use the base that was locked, or run argosy lock again",
        )


def _lines(value: OneOrMore) -> tuple[str, ...]:
    return tuple(redact(line) for line in words(value))


def _files(project: Project, value: OneOrMore) -> tuple[LockedSource, ...]:
    return tuple(LockedSource(word, digest_copied(project.folder / word)) for word in words(value))


def digest_copied(path: Path) -> str:
    """Return the sha256 of a file, or of the sorted list of a folder's files, links and execute permissions.

    Return 64 zeros if the path does not exist.
    """
    if not path.is_dir():
        return digest_of_file(path) if path.is_file() else "0" * 64
    total = hashlib.sha256()
    for entry in sorted(path.rglob("*")):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            total.update(f"l {name}\0{entry.readlink()}\0".encode(errors="surrogateescape"))
        elif entry.is_file():
            sign = "x" if os.access(entry, os.X_OK) else "f"
            total.update(f"{sign} {name}\0{digest_of_file(entry)}\0".encode(errors="surrogateescape"))
        elif entry.is_dir():
            total.update(f"d {name}\0".encode(errors="surrogateescape"))
    return total.hexdigest()


def locked_project(lock: Lock, file: str, folder: Path) -> Project | None:
    """Return the steps and stages of a lock as a project, or None if the lock has none.

    Parameters
    ----------
    file
        The file of the lock, for messages.
    folder
        Folder of the files that the steps copy; their digests must match.

    Raises
    ------
    CheckFailed
        If a file has changed or is missing.
    UsageError
        If a step of the lock is invalid in a project file.
    """
    if not lock.steps and not lock.stages:
        return None
    table = ProjectTable(step=tuple(map(_step_table, lock.steps)), stage=tuple(map(_stage_table, lock.stages)))
    project = Project(folder / Path(file).name, file, "", table)
    refuse_contradictions(project)
    copies = (*(step.copy for step in lock.steps), *(stage.copy for stage in lock.stages))
    hint = "restore the locked files, or run argosy lock again"
    if not all((folder / source.path).exists() for sources in copies for source in sources):
        hint = f"put the files that steps copy into {folder}"
    refuse_changed_steps(lock, project, file, hint=hint)
    return project


def _step_table(step: LockedStep) -> StepTable:
    return StepTable(
        run=step.run,
        copy=tuple(source.path for source in step.copy),
        fetch=Fetch(url=step.url, sha256=step.sha256) if step.url else None,
        to=step.to,
        before="packages" if step.before else "",
    )


def _stage_table(stage: LockedStage) -> StageTable:
    files = tuple(source.path for source in stage.copy)
    return StageTable(name=stage.name, base=stage.base, copy=files, run=stage.run, results=dict(stage.results))


def refuse_changed_steps(lock: Lock, project: Project | None, file: str, *, hint: str = "") -> None:
    """Refuse a lock with other steps or stages than a project."""
    if changed := changed_steps(lock, record_steps(project), record_stages(project)):
        raise CheckFailed(
            f"the steps in {file} are not those that were locked",
            evidence="\n".join(changed),
            hint=hint or "run argosy lock again",
        )
