"""Lock an environment: install it as a build does, but write only its lock, which holds the content digest."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.choose import find_needs
from argosy.builder.finish import InstalledLayer, finish_layer
from argosy.builder.inputs import read_inputs, read_lock, refuse_changed, refuse_changed_steps, refuse_other_base
from argosy.builder.layer import install_layer
from argosy.builder.plan import BuildPlan, plan_build
from argosy.builder.records import BuildRequest, StepTimes
from argosy.builder.resolve import BuildContext, complete_request, resolve_build, resolve_target_session
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.os_errors import refuse_unwritable_folder
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.store import editing, refuse_existing, work_folder, write_text
from argosy.recipes.lock import Lock, render_lock
from argosy.recipes.relock import LockChange, compare_locks, held_recipe
from argosy.sites.load import load_site


class LockRequest(msgspec.Struct, frozen=True):
    """Request a lock file."""

    build: BuildRequest
    """Files, base and options, as for a build; the output is the lock file."""
    upgrade: tuple[str, ...] = ()
    """Packages that may change; all others keep the versions of the existing lock.  Empty to choose all again."""


class LockReport(msgspec.Struct, frozen=True):
    """Report a new lock file."""

    output: str
    digest: str
    base: str
    base_digest: str
    packages: int
    first: bool
    changes: tuple[LockChange, ...]
    """Differences from the previous lock; empty if there was none."""
    notes: tuple[str, ...]


def lock(request: LockRequest, session: Session) -> LockReport:
    """Choose versions, install them into a work folder, and write the lock file.

    If it fails, the lock file is unchanged.
    """
    context = resolve_build(request.build, session)
    session, output = context.session, context.request.output
    refuse_existing(output, force=True)
    refuse_unwritable_folder(output.parent)
    previous = read_lock(str(output), session) if output.exists() else None
    if request.upgrade:
        context = _keep_other_versions(context, previous, request.upgrade)
    plan, clock = plan_build(context), StepTimes(session)
    with work_folder(session.work_parent()) as work:
        base, layer = _install(plan, clock, work, upgrade=bool(request.upgrade))
        with clock.step("lock", "the content") as step:
            new = finish_layer(plan.inputs.recipe, base, layer, session).lock
            step.result = f"{new.content}"
    with editing(output, waiting=session.waiting):
        write_text(output, render_lock(new))
    return LockReport(
        output=str(output),
        digest=new.content,
        base=new.base.reference,
        base_digest=new.base.digest,
        packages=len(new.packages),
        first=previous is None,
        changes=compare_locks(previous, new) if previous else (),
        notes=layer.notes,
    )


def _keep_other_versions(context: BuildContext, previous: Lock | None, upgrade: tuple[str, ...]) -> BuildContext:
    """Keep the versions of the previous lock except those of the packages in `upgrade`."""
    if previous is None:
        raise UsageError(
            f"cannot upgrade: there is no lock {context.request.output}", hint="run argosy lock once without --upgrade"
        )
    recipe = held_recipe(context.inputs.recipe, previous, upgrade)
    return replace(context, inputs=replace(context.inputs, recipe=recipe))


def _install(plan: BuildPlan, clock: StepTimes, work: Path, *, upgrade: bool) -> tuple[Base, InstalledLayer]:
    try:
        return install_layer(plan, clock, work)
    except CheckFailed as error:
        if upgrade:
            error.hint = "the lock fixes all other versions: add more packages to --upgrade, or lock without --upgrade"
        raise


def check_lock(request: LockRequest, session: Session) -> Lock:
    """Check that a lock was made from these files and, if one is given, this base; nothing is installed."""
    output = str(request.build.output)
    asked = complete_request(replace(request.build, locked=output), session.host)  # the lock may name the base
    found = read_lock(output, session)
    if asked.project:
        refuse_changed_steps(found, asked.project, output)
    if asked.sources:
        files = read_inputs(replace(asked, base=asked.base or "-", locked=""), session, None).recipe
        refuse_changed(found, files, output)
    inputs = read_inputs(replace(asked, sources=(), project=None), session, found)
    if asked.base:
        site = load_site(asked.site, session.host) if asked.site else None
        session = resolve_target_session(asked, session, site, found)
        with work_folder(session.work_parent()) as work:
            needs = find_needs(inputs.recipe)
            refuse_other_base(inputs, open_base(asked.base, session, work, needs=needs, options=asked.engine))
    return found
