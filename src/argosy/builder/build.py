"""Build an image, from the first line of the recipe to the renamed file; each step is a function of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer, find_build_container
from argosy.builder.bases.base import Base, open_base, putting_back, take_over_layer
from argosy.builder.bases.default_base import open_default
from argosy.builder.bases.for_site import aimed, naming_bases, refuse_elsewhere, site_of
from argosy.builder.bases.python import BasePython, ask_python
from argosy.builder.build_plan import (
    CONDA,
    STAGES,
    BuildPlan,
    differences,
    read_build_plan,
    refuse_other_base,
    standing_output,
    with_own_python,
)
from argosy.builder.compat_layout import apply_layout, prefix_layout_of
from argosy.builder.conda.environment import CondaContext, extend_conda, holds_conda, make_conda, open_conda_context
from argosy.builder.cost import measure_cost
from argosy.builder.finish import Finished, Made, finish_layer, variables_over
from argosy.builder.image_cache import copy_made_before, note_image
from argosy.builder.needs import needs_python, plan_needs
from argosy.builder.output.assemble import write_delta, write_whole
from argosy.builder.output.content import content_over
from argosy.builder.output.export import base_word, refuse_flat, refuse_output, write_output
from argosy.builder.output.layer_update import join_changes, layer_before
from argosy.builder.python.built_wheels import make_wheels
from argosy.builder.python.bytecode import following
from argosy.builder.python.conflicts import hidden_notes, replaceable, vendor_builds
from argosy.builder.python.git_access import reach_git
from argosy.builder.python.gpu_backend import check_torch
from argosy.builder.python.packages import choose_and_install, open_installer, shared_folder, write_namesakes
from argosy.builder.python.pins import Pin
from argosy.builder.python.protecting import holding_packages
from argosy.builder.python.torch_index import Target, aim_torch, choose_target, explain_target, explaining_torch
from argosy.builder.python.uv import static_uv
from argosy.builder.report import BuildReport, BuildRequest
from argosy.builder.request import complete_request
from argosy.builder.steps.run import (
    Staged,
    StepContext,
    bring_results,
    has_steps,
    open_changes,
    run_stages,
    run_steps,
    take_changes,
)
from argosy.builder.steps.scripts import run_scripts
from argosy.builder.timing import Clock
from argosy.core.cache_pins import BUILD, pin_entry
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.layout import ENV_PREFIX, ENV_SCRIPT, Activation, plan_activation, render_env_script
from argosy.core.locks import hold_lock
from argosy.core.os_errors import require_writable_folder
from argosy.core.progress import render_packages
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.core.store import atomic_file, final_name, sweep_parts, work_folder
from argosy.images.formats import OutputFormat, render_use
from argosy.images.identify import render_size
from argosy.images.open import layer_key
from argosy.images.rootfs_cache import keep_layer
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.pack import run_pack
from argosy.recipes.lock import Lock, LockedPackage
from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.recipe import Recipe
from argosy.recipes.relock import as_locked, without_held
from argosy.recipes.support import check_python, python_fits
from argosy.recipes.uv_options import UvSettings, plan_uv_settings


def build(request: BuildRequest, session: Session) -> BuildReport:
    """Build the image that `request` describes.

    Raises
    ------
    ArgosyError
        With what happened, its evidence and the way out; the output is then absent, or as it was.
    """
    request, session = complete_request(request, session.host), aimed(request, session)
    refuse_flat(request.form, flatten=request.flatten)
    build_plan = read_build_plan(request, session)
    if stands := standing_output(request, build_plan):
        return stands
    refuse_output(request.output, request.form, force=request.force)
    clock = Clock(session)
    for used in (BUILD, "uv", "conda", "bytecode"):
        pin_entry(session.paths.cache, used, waiting=session.waiting)
    with _alone(request.output, session), work_folder(session.work_parent()) as work:
        sweep_parts(request.output)
        refuse_output(request.output, request.form, force=request.force)
        if copied := copy_made_before(request, build_plan, clock):
            return copied
        base, made = make_layer(build_plan, request, clock, work)
        cost = measure_cost(work, made.tree)
        with clock.step("pack", f"{render_size(cost.new)} of new files") as step:
            finished = finish_layer(build_plan.recipe, base, made, session)
            lock = finished.lock
            size = _write_image(request, base, finished, made, session)
            step.result = f"{render_size(size)} written to {final_name(request.output)}"
        note_image(request, lock, session)
        cost = measure_cost(work, made.tree, request.output, before=cost)
        if request.keep:
            keep_layer(session, layer_key(lock), made.tree)
    made = replace(made, notes=(*made.notes, *differences(build_plan, lock)))
    return replace(_report(request, base, lock, made, size, clock), cost=cost)


def make_layer(build_plan: BuildPlan, request: BuildRequest, clock: Clock, work: Path) -> tuple[Base, Made]:
    """Open the base and install over it what the order names.

    Raises
    ------
    ArgosyError
        When the base is not the one that was locked, or something cannot be installed.
    """
    session = clock.session
    site = site_of(request, session.host)
    target = choose_target(request.torch_backend, request.cuda, site, build_plan.base)
    with clock.step("base", build_plan.base) as step:
        refuse_elsewhere(build_plan.base, site)
        needs = plan_needs(build_plan.recipe)
        opening = open_default if request.default_base else open_base
        base = opening(build_plan.base, session, work, needs=needs, options=request.engine, step=step)
        refuse_other_base(build_plan, base)
        if build_plan.lock:  # the same image again, under whatever name its base has here
            base = replace(base, reference=build_plan.lock.base.reference)
        step.result = _describe_base(base)
    with clock.step("packages", _describe_sources(build_plan.recipe)) as step:
        wanted = _wanted(request, build_plan.recipe, base, target, session)
        explaining = explaining_torch(target, build_plan.recipe, wanted.settings)
        with explaining, naming_bases(site), putting_back(base, session, work / "layer"):
            made = _install(wanted, build_plan, session, work, step)
        if request.after:
            with following(made.build_container, made.tree, made.python, step):
                run_scripts(request.after, made.build_container, made.tree, step)
        made = replace(made, altered=bool(request.before or request.after or made.project))
        if site:
            check_torch(site, made.build_container, made.tree, build_plan.recipe)
    for note in explain_target(target, made.settings, made.packages):
        session.reporter.note(note)
    if request.bundle and build_plan.lock:
        made = replace(made, packages=as_locked(made.packages, build_plan.lock.packages))
    prefix_layout = prefix_layout_of(request, build_plan)
    return base, replace(
        made,
        prefix_layout=prefix_layout,
        activation=apply_layout(made.tree, made.build_container, made.activation, prefix_layout),
    )


@contextmanager
def _alone(output: Path, session: Session) -> Iterator[None]:
    """Let one build at a time make a given output; the others wait and say for whom."""
    require_writable_folder(output.parent)
    name = output.with_name(f".{output.name}.lease")
    with hold_lock(name, what=f"building {output.name}", waiting=session.waiting):
        yield


class _Wanted(msgspec.Struct, frozen=True):
    """What is installed over which base, and how.

    Attributes
    ----------
    recipe
        Less the packages that a base of ours has already, where all versions are exact.
    target
        The machines that packages are chosen for.
    """

    request: BuildRequest
    recipe: Recipe
    base: Base
    target: Target
    settings: UvSettings


def _wanted(request: BuildRequest, recipe: Recipe, base: Base, target: Target, session: Session) -> _Wanted:
    config = read_pip_config(session.host.environment, Path(session.host.person.home))
    settings = aim_torch(plan_uv_settings(config, recipe), recipe, target.backend)
    settings = reach_git(settings, recipe, session.host)
    if recipe.exact and base.lock:
        recipe = without_held(recipe, base.lock.packages)
    return _Wanted(request, recipe, base, target, settings)


def _install(wanted: _Wanted, build_plan: BuildPlan, session: Session, work: Path, step: Step) -> Made:
    request, base, tree = wanted.request, wanted.base, work / "layer"
    project = build_plan.project if has_steps(build_plan.project) else None
    changing = project is not None or base.image.system
    take_over_layer(base, session, tree, kept=not (request.before or request.after or changing))
    before = layer_before(base, tree, flat=request.flatten)
    step.say("finding a way into the base")
    uv = static_uv(session, wanted.settings)
    build_container = find_build_container(session, base, uv, work, asked=request.backend, changing=changing)
    if (project or request.before or request.after) and not (wanted.recipe.wants_conda or holds_conda(tree)):
        build_container = holding_packages(build_container, work, replaceable(wanted.recipe))
    if not changing:
        made = _install_packages(wanted, build_container, step)
        return replace(made, before=before)
    staged = Staged()
    if project:
        means = StepContext(uv, request.backend, request.bundle / STAGES if request.bundle else None)
        staged = run_stages(project, build_plan.lock, session, work, step, means)
    with open_changes(build_container, work, tree) as changed:
        if project:
            run_steps(changed, project, session, step, before=True)
        made = _install_packages(wanted, changed, step)
        (tree / ENV_SCRIPT.lstrip("/")).write_text(render_env_script(made.activation), encoding="utf-8")
        bring_results(changed, staged.results, step)
        if project:
            with following(changed, tree, made.python, step):
                run_steps(changed, project, session, step, before=False)
    system = take_changes(changed, work, tree, base, made.settings.local_paths)
    return replace(made, system=system, project=project, staged=staged)


def _install_packages(wanted: _Wanted, build_container: BuildContainer, step: Step) -> Made:
    request, base, settings = wanted.request, wanted.base, wanted.settings
    work = Path(build_container.scratch).parent
    tree = work / "layer"
    run_scripts(request.before, build_container, tree, step)
    recipe = _with_python(wanted.recipe, base, build_container)
    supply = make_wheels if request.portable else None
    # A script may change a file where it is: not one that is the cache's too.
    shared = None if request.before or request.after else shared_folder(build_container, tree)
    if recipe.wants_conda or holds_conda(tree):
        spare = request.bundle / CONDA if request.bundle else None
        shop = open_conda_context(build_container, settings, step, layer=tree, work=work / "uv", spare=spare)
        shop = replace(shop, supply=supply, shared=shared)
        return _make_conda(shop, recipe, base, wanted.target)
    activation = plan_activation(extra=variables_over(recipe, base))
    if not needs_python(recipe):
        step.result = f"{_describe_sources(recipe)} ({build_container.backend.value}: {build_container.backend.why})"
        return Made(tree, build_container, None, _merged(base, ()), activation, _notes(recipe, settings), settings)
    python = _python_of(recipe, base, build_container)
    cache = build_container.session.paths.cache / "uv"
    kept = python.without(replaceable(recipe))
    installer = open_installer(build_container, kept, settings, layer=tree, work=work / "uv", cache=cache)
    installer = replace(installer, supply=supply, shared=shared, activated=_own_variables(recipe))
    pins = choose_and_install(installer, recipe, step)
    write_namesakes(tree, python)
    hidden = hidden_notes(dict(python.packages), ((pin.package.name, pin.package.version) for pin in pins))
    packages = _merged(base, pins)
    how = f"{build_container.backend.value}: {build_container.backend.why}"
    step.result = f"{_count(packages, base)} for Python {python.version} ({how})"
    return Made(tree, build_container, python, packages, activation, (*_notes(recipe, settings), *hidden), settings)


def _make_conda(shop: CondaContext, recipe: Recipe, base: Base, target: Target) -> Made:
    """Make an environment with a Python of its own, or add pip packages to that of an image of ours."""
    if recipe.wants_conda and shop.prefix.exists():
        raise UsageError(
            f"the base {base.reference} holds an environment already, and conda needs one of its own",
            evidence=f"it was built over {base.lock.base.reference}" if base.lock else f"there is {ENV_PREFIX}",
            hint="build from that base, with the environment files of both",
        )
    variables = variables_over(recipe, base)
    held = base.lock.packages if base.lock else ()
    if recipe.wants_conda:
        made = make_conda(shop, recipe, variables, cuda=target.cuda.value, archspec=target.archspec, time=base.time)
    else:
        made = extend_conda(shop, recipe, variables, held)
    if made.python:
        check_python(recipe.python, made.python.version, recipe.python_where)
    inside = f"Python {made.python.version} of its own" if made.python else "no Python"
    backend = shop.build_container.backend
    shop.step.result = f"{_count(made.packages, base)}, {inside} ({backend.value}: {backend.why})"
    notes = (*_notes(recipe, shop.settings), *made.notes)
    return Made(shop.layer, shop.build_container, made.python, made.packages, made.activation, notes, shop.settings)


def _own_variables(recipe: Recipe) -> str:
    """Render the environment file's variables for builds of packages, such as FORCE_CUDA and TORCH_CUDA_ARCH_LIST."""
    own = tuple((name, value) for name, value in recipe.variables if name != "PATH")
    return render_env_script(Activation((), (), own)) if own else ""


def _with_python(recipe: Recipe, base: Base, build_container: BuildContainer) -> Recipe:
    """Let conda bring the Python that an environment file asks for, where the base has another one, or none.

    Not over a vendor's builds or a layer of ours: an environment of its own would not see them.
    """
    if recipe.wants_conda or not recipe.interpreter or base.lock:
        return recipe
    found = ask_python(build_container)
    if found and (python_fits(recipe.python, found.version, recipe.python_where) or vendor_builds(found.packages)):
        return recipe
    there = f"has {found.version}" if found else "has none"
    build_container.session.reporter.note(f"the base {there}: conda brings Python {recipe.python.lstrip('=')}".rstrip())
    return with_own_python(recipe)


def _python_of(recipe: Recipe, base: Base, build_container: BuildContainer) -> BasePython:
    python = ask_python(build_container)
    if python is None:
        raise CheckFailed(
            f"the base {base.reference} has no Python",
            evidence="looked for python3 and python on the base's PATH",
            hint="use a base that has one: a vendor's PyTorch image, or --base debian:bookworm (python3 is added)",
        )
    check_python(recipe.python, python.version, recipe.python_where)
    if not base.lock:
        return python
    # An image of ours as base: what its layer holds counts as the base's.
    old = tuple((p.name, p.version) for p in base.lock.packages)
    return replace(python, packages=tuple(dict([*python.packages, *old]).items()))


def _merged(base: Base, pins: tuple[Pin, ...]) -> tuple[LockedPackage, ...]:
    """List what the layer holds: what a delta base's layer held, and what was added."""
    packages = {p.name: p for p in base.lock.packages} if base.lock else {}
    packages |= {pin.package.name: pin.package for pin in pins}
    return tuple(packages[name] for name in sorted(packages))


def _count(packages: tuple[LockedPackage, ...], base: Base) -> str:
    """Say how many packages the layer holds, and where a base brought some along, how many are new."""
    held = {(p.name, p.version) for p in base.lock.packages} if base.lock else set()
    new = sum((p.name, p.version) not in held for p in packages)
    return render_packages(len(packages)) + (f" ({len(packages) - new} of the base's layer, {new} new)" if held else "")


def _notes(recipe: Recipe, settings: UvSettings) -> tuple[str, ...]:
    return (*map(str, recipe.notes), *settings.notes)


def _write_image(request: BuildRequest, base: Base, finished: Finished, made: Made, session: Session) -> int:
    lock, papers, work = finished.lock, base.opened.sif, made.tree.parent
    content = content_over(base, made.tree, lock, name=request.output.name.partition(".")[0])
    joined: tuple[Piece, ...] = ()
    if request.form is OutputFormat.SIF and made.before:
        joined = join_changes(session, made.tree, made.before, finished.entries, time=lock.time)
    if request.form is OutputFormat.SIF and not request.flatten:
        with atomic_file(request.output, force=request.force) as beside:
            return write_delta(beside, base, lock, joined or (_packed(made.tree, session, time=lock.time),))
    if joined:
        with atomic_file(request.output, force=request.force) as beside:
            return write_whole(beside, joined, content, papers)
    return write_output(request.form, request.output, content, papers, session, work, force=request.force)


def _packed(tree: Path, session: Session, *, time: int) -> FileSlice:
    packed = tree.with_suffix(".sqfs")
    run_pack(session, tree, packed, time=time)
    return whole_of(packed)


def _report(request: BuildRequest, base: Base, lock: Lock, made: Made, size: int, clock: Clock) -> BuildReport:
    program = "python" if lock.python else "COMMAND"
    return BuildReport(
        output=str(request.output),
        digest=lock.content,
        base=base.reference,
        base_digest=base.digest,
        base_bytes=base.image.base_size,
        layer_bytes=size,
        python=lock.python,
        packages=len(lock.packages),
        backend=made.build_container.backend.value,
        timings=tuple(clock.timings),
        seconds=time.monotonic() - clock.started,
        notes=made.notes,
        form=request.form.value,
        use=render_use(request.form, request.output, base=base_word(lock), program=program, activation=made.activation),
    )


def _describe_base(base: Base) -> str:
    parts = [base.reference]
    if base.added:
        *several, last = base.added
        parts.append(f"{' and '.join(filter(None, (', '.join(several), last)))} added for the environment")
    parts += filter(None, (base.how,))
    return f"{', '.join(parts)}: {render_size(base.image.base_size)}"


def _describe_sources(recipe: Recipe) -> str:
    return ", ".join(Path(source.path).name for source in recipe.sources) or "none asked for"
