"""Convert steps and stages between a project file and a lock.

The lock records them with the digests of their files.  Reading a lock returns the same tables, after the files beside
the lock were compared with their digests.
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
    """Refuse a base of a stage that has other bytes than the one that was locked.

    Raises
    ------
    CheckFailed
        The evidence shows both digests.
    """
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
    check_project(project)
    refuse_changed_steps(lock, project, file, hint=f"put the files that steps copy into {folder}")
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
    """Refuse a lock with other steps or stages than a project.

    Raises
    ------
    CheckFailed
        The evidence lists the differences.
    """
    if changed := changed_steps(lock, record_steps(project), record_stages(project)):
        raise CheckFailed(
            f"the steps in {file} are not those that were locked",
            evidence="\n".join(changed),
            hint=hint or "run argosy lock again",
        )
