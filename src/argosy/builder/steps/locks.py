"""Steps and stages in a lock: what a project file asked for with the digests of its files, and the way back.

project file -> records with digests -> lock; lock -> the same tables, its files looked up beside it and compared.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from argosy.builder.bases.base import Base
from argosy.core.errors import CheckFailed
from argosy.core.redact import redact
from argosy.core.store import digest_of_file
from argosy.recipes.lock import Lock, LockedSource, LockedStage, LockedStep
from argosy.recipes.option_row import OneOrMore
from argosy.recipes.project_file import check_project
from argosy.recipes.project_tables import Fetch, Project, ProjectTable, StageTable, StepTable, words
from argosy.recipes.relock import changed_steps

NO_BASES: Mapping[str, Base] = {}


def record_steps(project: Project | None) -> tuple[LockedStep, ...]:
    """Give what a lock keeps of a project's steps; the digest of a file that is not there is empty."""
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
    """Give what a lock keeps of a project's stages.

    Parameters
    ----------
    bases
        What each stage was carried out in, by its name; without it the lock does not say which bytes these were.
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
    """Refuse a base of a stage whose bytes are not those that were locked.

    Raises
    ------
    CheckFailed
        With both digests.
    """
    if locked and locked.digest not in {"", base.digest}:
        raise CheckFailed(
            f"the base of stage {locked.name} is not the one that was locked",
            evidence=f"locked: {locked.base}  {locked.digest}\nthere:  {base.digest}",
            hint="bring the base that was locked, or lock again over this one: argosy lock",
        )


def _lines(value: OneOrMore) -> tuple[str, ...]:
    return tuple(redact(line) for line in words(value))


def _files(project: Project, value: OneOrMore) -> tuple[LockedSource, ...]:
    return tuple(LockedSource(word, digest_copied(project.folder / word)) for word in words(value))


def digest_copied(path: Path) -> str:
    """Give the sha256 of a file, or of the sorted list of a folder's files, links and who may run them.

    64 zeros where there is nothing.
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
    """Give the steps and stages of a lock as the project that asks for them; None where it has none.

    Parameters
    ----------
    file
        Where the lock was read from, for messages.
    folder
        Where the files lie that the steps copy: they must be those that were locked.

    Raises
    ------
    CheckFailed
        When one of them has changed, or is not there.
    UsageError
        When a step of the lock is none that a project file could have.
    """
    if not lock.steps and not lock.stages:
        return None
    table = ProjectTable(step=tuple(map(_step_table, lock.steps)), stage=tuple(map(_stage_table, lock.stages)))
    project = Project(folder / Path(file).name, file, "", table)
    check_project(project)
    refuse_changed_steps(lock, project, file, hint=f"the files that steps copy are looked for in {folder}: bring them")
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
    """Refuse a lock whose steps or stages are not those of a project.

    Raises
    ------
    CheckFailed
        Naming what differs.
    """
    if changed := changed_steps(lock, record_steps(project), record_stages(project)):
        raise CheckFailed(
            f"the steps in {file} are not those that were locked",
            evidence="\n".join(changed),
            hint=hint or "lock again: argosy lock",
        )
