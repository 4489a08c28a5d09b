"""Lock an environment: everything that a build does but packing, so that the lock knows the content itself."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.for_site import aimed
from argosy.builder.build import make_layer
from argosy.builder.build_plan import BuildPlan, read_build_plan, read_lock, refuse_changed, refuse_other_base
from argosy.builder.finish import Made, finish_layer
from argosy.builder.needs import plan_needs
from argosy.builder.report import BuildRequest
from argosy.builder.request import complete_request
from argosy.builder.steps.locks import refuse_changed_steps
from argosy.builder.timing import Clock
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.os_errors import require_writable_folder
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import atomic_file, refuse_existing, work_folder
from argosy.recipes.lock import Lock, render_lock
from argosy.recipes.lock_diff import Change, compare_locks
from argosy.recipes.relock import held_recipe


class LockRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy lock`.

    Attributes
    ----------
    build
        Files, base and choices, as for a build; its output is the lock file.
    upgrade
        Packages that may change, while all others stay as the lock has them; empty: all are chosen anew.
    """

    build: BuildRequest
    upgrade: tuple[str, ...] = ()


class LockReport(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes
    ----------
    changes
        Differences to the lock that was there; empty where there was none.
    """

    output: str
    digest: str
    base: str
    base_digest: str
    packages: int
    first: bool
    changes: tuple[Change, ...]
    notes: tuple[str, ...]


def lock(request: LockRequest, session: Session) -> LockReport:
    """Choose versions, install them into a work folder, and write the lock file.

    Raises
    ------
    ArgosyError
        As a build does; the lock file is then as it was.
    """
    session = aimed(request.build, session)
    request = replace(request, build=complete_request(request.build, session.host))
    output = request.build.output
    refuse_existing(output, force=True)
    require_writable_folder(output.parent)
    build_plan = read_build_plan(request.build, session)
    before = read_lock(str(output), session) if output.exists() else None
    if request.upgrade:
        if before is None:
            raise UsageError(f"there is no lock {output} to upgrade", hint="lock once without --upgrade")
        build_plan = replace(build_plan, recipe=held_recipe(build_plan.recipe, before, request.upgrade))
    clock = Clock(session)
    with work_folder(session.work_parent()) as work:
        base, made = _make(build_plan, request, clock, work)
        with clock.step("lock", "the content") as step:
            made_lock = finish_layer(build_plan.recipe, base, made, session).lock
            step.result = f"{made_lock.content}"
    with atomic_file(output, force=True) as beside:
        beside.write_text(render_lock(made_lock), encoding="utf-8")
    return _report(output, made_lock, before, made.notes)


def _make(build_plan: BuildPlan, request: LockRequest, clock: Clock, work: Path) -> tuple[Base, Made]:
    try:
        return make_layer(build_plan, request.build, clock, work)
    except CheckFailed as error:
        if request.upgrade:
            error.hint = "versions that you did not write are the lock's: name those too by --upgrade, or lock all anew"
        raise


def _report(output: Path, made: Lock, before: Lock | None, notes: tuple[str, ...]) -> LockReport:
    return LockReport(
        output=str(output),
        digest=made.content,
        base=made.base.reference,
        base_digest=made.base.digest,
        packages=len(made.packages),
        first=before is None,
        changes=compare_locks(before, made) if before else (),
        notes=notes,
    )


def check_lock(request: LockRequest, session: Session) -> Lock:
    """Check that a lock is of these files and, where one is given, of this base; nothing is chosen or installed.

    Raises
    ------
    CheckFailed
        When a file has changed, or a step, or the base.
    """
    output = str(request.build.output)
    asked = complete_request(replace(request.build, locked=output), session.host)  # the lock may be what names the base
    found = read_lock(output, session)
    if asked.project:
        refuse_changed_steps(found, asked.project, output)
    if asked.sources:
        refuse_changed(
            found, read_build_plan(replace(asked, base=asked.base or "-", locked=""), session).recipe, output
        )
    build_plan = read_build_plan(replace(asked, sources=(), project=None), session)
    if asked.base:
        session = aimed(asked, session)
        with work_folder(session.work_parent()) as work:
            refuse_other_base(
                build_plan,
                open_base(asked.base, session, work, needs=plan_needs(build_plan.recipe), options=asked.engine),
            )
    return found
