"""Install the layer of an image: open the base, find a build backend, install packages, and run the user's steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from argosy.builder.backends.container import BuildContainer, find_build_container
from argosy.builder.base_layer import describe_base_layer, packed_layer, read_base_layer
from argosy.builder.bases.base import Base, must_be_made, open_base, restoring_cached_layer, unpack_base_layer
from argosy.builder.bases.choose import open_default_base, refuse_base_of_other_machine, suggesting_site_bases
from argosy.builder.conda import checks_conda, holds_conda, refuse_without_solution
from argosy.builder.downloads import static_uv
from argosy.builder.finish import InstalledLayer
from argosy.builder.freeze import match_lock
from argosy.builder.inputs import STAGES, refuse_other_base
from argosy.builder.install import PackageJob, install_packages
from argosy.builder.output.assemble import Partitions, choose_partitions, keep_apart, plan_known_copies
from argosy.builder.packed.make import why_packed_together
from argosy.builder.plan import BuildPlan
from argosy.builder.python.base_python import protecting_base_packages
from argosy.builder.python.bytecode import recompiling_changed_modules
from argosy.builder.python.installer import sweeping_if_it_fails
from argosy.builder.python.pins import excluded_notes, replaceable
from argosy.builder.python.torch_index import adding_torch_hints, explain_target, refuse_torch_in_image
from argosy.builder.records import BuildRequest, StepTimes
from argosy.builder.steps import (
    StageContext,
    StageResults,
    copy_stage_results,
    has_steps,
    open_changes,
    run_scripts,
    run_stages,
    run_steps,
    take_changes,
)
from argosy.core.errors import ArgosyError
from argosy.core.layout import ENV_PREFIX, ENV_SCRIPT, Activation, PrefixLayout, render_env_script
from argosy.core.parse import parse_json
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session, Step
from argosy.images.flat import layer_source
from argosy.images.oci import LABELS
from argosy.images.rootfs import locate_in_root, write_in_root
from argosy.images.sif.begin import BegunFile
from argosy.images.sif.write import FileSlice
from argosy.images.squashfs.pack import COMPRESSION, is_whiteout
from argosy.images.squashfs.superblock import Superblock, read_superblock
from argosy.images.tree_digests import walk_tree
from argosy.images.unpack import is_link
from argosy.recipes.project_file import Project
from argosy.recipes.recipe import render_sources
from argosy.recipes.relock import as_locked, without_held


def install_layer(
    plan: BuildPlan, clock: StepTimes, work: Path, begun: BegunFile | None = None
) -> tuple[Base, InstalledLayer]:
    """Open the base and install what the plan asks for into ``work/layer``.

    Parameters
    ----------
    begun
        The output, into which the base is copied meanwhile; None if it is not a SIF file.
    """
    session, recipe, lock = clock.session, plan.inputs.recipe, plan.inputs.lock
    notes: tuple[str, ...] = (*map(str, recipe.notes), *plan.settings.notes)
    with _showing_if_it_fails(notes, session):
        base, asked = _open_base(plan, clock, work), plan.request.flatten
        partitions = _choose_partitions(base, asked=asked)
        plan = replace(plan, request=replace(plan.request, flatten=partitions.flat))
        packed = packed_layer(base.image, base.lock, flat=partitions.flat)
        if begun:
            lowest = packed or (base.source if partitions.flat else None)
            begun.copy(plan_known_copies(base, (lowest,) if lowest else (), flat=partitions.flat))
        with clock.step("packages", render_sources(recipe)) as step:
            layer = _install(plan, base, packed, session, work, step)
            if plan.site and not (layer.parts and layer.parts.has_torch):
                refuse_torch_in_image(plan.site, layer.build_container, layer.tree, recipe)
    for note in explain_target(plan.target, layer.settings, layer.packages):
        session.reporter.note(note)
    if plan.request.bundle and lock:
        layer = replace(layer, packages=as_locked(layer.packages, lock.packages))
    if layer.python:
        notes += excluded_notes(recipe, layer.python.version, session.host.target)
    activation = _apply_layout(layer.tree, layer.build_container, layer.activation, plan.prefix_layout)
    layer = replace(layer, prefix_layout=plan.prefix_layout, activation=activation, notes=(*notes, *layer.notes))
    return base, _with_partitions(layer, partitions, asked=asked)


@contextmanager
def _showing_if_it_fails(notes: Sequence[str], session: Session) -> Iterator[None]:
    """Show the notes on the user's files before an error, which they may explain; otherwise the report has them."""
    try:
        yield
    except ArgosyError:
        for note in notes:
            session.reporter.note(note)
        raise


def _choose_partitions(base: Base, *, asked: bool | None) -> Partitions:
    """Choose the form of the image: one partition, or two."""
    joins = base.packing.compressor == COMPRESSION  # only then /opt matters
    linked = joins and asked is None and is_link(base.source, "opt")
    built = base.lock is not None
    return choose_partitions(asked=asked, base=base.image, packing=base.packing, built=built, opt_is_link=linked)


def _with_partitions(layer: InstalledLayer, chosen: Partitions, *, asked: bool | None) -> InstalledLayer:
    """Return the layer with the form of its image."""
    removes_files = layer.system and any(is_whiteout(Path(path)) for path in walk_tree(str(layer.tree)))
    partitions = keep_apart(chosen, asked=asked, removes_files=removes_files)
    return replace(layer, partitions=partitions)


def _open_base(plan: BuildPlan, clock: StepTimes, work: Path) -> Base:
    request, inputs = plan.request, plan.inputs
    refuse_base_of_other_machine(inputs.base, plan.site)
    if checks_conda(inputs.recipe) and must_be_made(
        inputs.base, clock.session, needs=plan.needs, options=request.engine
    ):
        # It may take minutes; the packages are checked first.
        with clock.step("conda", "looking for a solution") as step:
            cuda, archspec = plan.target.cuda.value, plan.target.archspec
            refuse_without_solution(inputs.recipe, clock.session, step, cuda=cuda, archspec=archspec)
            step.result = "there is a solution for the packages"
    with clock.step("base", inputs.base) as step:
        open_it = open_default_base if request.default_base else open_base
        base = open_it(inputs.base, clock.session, work, needs=plan.needs, options=request.engine, step=step)
        refuse_other_base(inputs, base, request.bundle)
        if inputs.lock:  # the base may have another name here; the image must be the same
            base = replace(base, reference=inputs.lock.base.reference)
        step.result = _describe_base(base, default=inputs.base if request.default_base else "")
    return base


def _install(
    plan: BuildPlan, base: Base, packed: FileSlice | None, session: Session, work: Path, step: Step
) -> InstalledLayer:
    """Install packages, and run the user's steps and scripts around them."""
    request, recipe, tree = plan.request, plan.inputs.recipe, work / "layer"
    with (
        adding_torch_hints(plan.target, recipe, plan.settings),
        suggesting_site_bases(plan.site),
        restoring_cached_layer(base, session, tree),
        sweeping_if_it_fails(session),
    ):
        layer = _install_over_base(plan, base, packed, session, work, step)
    if request.after:
        with recompiling_changed_modules(layer.build_container, tree, layer.python, step):
            run_scripts(request.after, layer.build_container, tree, step)
    return replace(layer, altered=bool(request.before or request.after or layer.project))


def _install_over_base(
    plan: BuildPlan, base: Base, packed: FileSlice | None, session: Session, work: Path, step: Step
) -> InstalledLayer:
    request, tree = plan.request, work / "layer"
    project = plan.inputs.project if has_steps(plan.inputs.project) else None
    changes_system = project is not None or base.image.system
    scripts = bool(request.before or request.after)
    recipe = plan.inputs.recipe
    if base.is_converted:
        unpack_base_layer(base, session, tree, from_cache=False)
        base = match_lock(base, tree, session)
    if recipe.exact and base.lock:
        recipe = without_held(recipe, base.lock.packages)
    joined = _joined_superblock(request, base, packed)
    together = why_packed_together(request, recipe, base.lock, joined, steps=changes_system)
    extended = read_base_layer(base, packed, session, work) if packed and not together else None
    if extended:
        tree.mkdir()
    elif not base.is_converted:
        together = together or ("the base's layer differs from its lock" if base.lock else "")
        unpack_base_layer(base, session, tree, from_cache=not (scripts or changes_system))
    continued = extended or describe_base_layer(base, tree, packed)
    step.say("choosing a build backend")
    uv = static_uv(session, plan.settings)
    container = find_build_container(session, base, uv, work, plan.backends, keep_changes=changes_system)
    if (project or scripts) and not (recipe.wants_conda or holds_conda(tree)):
        container = protecting_base_packages(container, work, replaceable(recipe))
    job = PackageJob(
        request, recipe, base, plan.target, plan.settings, tree, work / "uv", together, extended, plan.site
    )
    if not changes_system:
        return replace(install_packages(job, container, step), continues=continued)
    stages = StageResults()
    if project:
        bases = request.bundle / STAGES if request.bundle else None
        stages = run_stages(StageContext(project, plan.inputs.lock, session, work, step, uv, plan.backends, bases))
    with open_changes(container, work, tree) as changed:
        layer = _install_between_steps(job, project, stages, changed, step)
    system = take_changes(changed, work, tree, base, layer.settings.local_paths)
    # A layer that changes the system does not continue another one.
    continued = None if system else continued
    return replace(layer, continues=continued, system=system, project=project, staged=stages)


def _joined_superblock(request: BuildRequest, base: Base, packed: FileSlice | None) -> Superblock | None:
    """Return the superblock of what the packages are joined with: the base's layer, or the base of a flat image."""
    if base.lock is None and request.flatten:
        return base.packing
    return read_superblock(packed.path, packed.offset) if packed and layer_source(base.image) else None


def _install_between_steps(
    job: PackageJob, project: Project | None, stages: StageResults, container: BuildContainer, step: Step
) -> InstalledLayer:
    """Run the steps before the packages, install the packages, copy the stages' results, run the other steps."""
    session = container.session
    if project:
        run_steps(container, project, session, step, before=True)
    layer = install_packages(job, container, step)
    # Steps run in the environment of the image.
    write_in_root(job.tree, ENV_SCRIPT, render_env_script(layer.activation))
    copy_stage_results(container, stages.results, step)
    if project:
        with recompiling_changed_modules(container, job.tree, layer.python, step):
            run_steps(container, project, session, step, before=False)
    return layer


def _describe_base(base: Base, *, default: str) -> str:
    parts = [f"{base.reference} (the default)" if base.reference == default else base.reference]
    if base.added:
        *several, last = base.added
        parts.append(f"{' and '.join(filter(None, (', '.join(several), last)))} added for the environment")
    parts += filter(None, (base.how,))
    return f"{', '.join(parts)}: {render_size(base.source.length)}"


def _apply_layout(
    tree: Path, build_container: BuildContainer, activation: Activation, prefix_layout: PrefixLayout
) -> Activation:
    """Add the link and the labels of a layout to a layer, and return the matching activation."""
    if prefix_layout.labels:
        _add_labels(tree, build_container, prefix_layout.labels)
    if not prefix_layout.prefix:
        return activation
    link = locate_in_root(tree, prefix_layout.prefix)
    if (tree / ENV_PREFIX.lstrip("/")).is_dir() and not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ENV_PREFIX)
    return rename_prefix(activation, prefix_layout.prefix)


def rename_prefix(activation: Activation, prefix: str) -> Activation:
    """Return an activation whose variables use another path of the same environment.

    Python derives ``sys.prefix`` from the path that it was started from, and does not follow a link in that path.
    """
    return replace(
        activation,
        prepend=tuple((name, _renamed(value, prefix)) for name, value in activation.prepend),
        identity=tuple(
            (name, Path(prefix).name if name == "CONDA_DEFAULT_ENV" else _renamed(value, prefix))
            for name, value in activation.identity
        ),
        default=tuple((name, _renamed(value, prefix)) for name, value in activation.default),
    )


def _renamed(value: str, prefix: str) -> str:
    """Replace the environment's prefix at the start of each path in a colon-separated list."""
    parts = value.split(":")
    matches = [part == ENV_PREFIX or part.startswith(f"{ENV_PREFIX}/") for part in parts]
    return ":".join(
        prefix + part.removeprefix(ENV_PREFIX) if match else part for part, match in zip(parts, matches, strict=True)
    )


def _add_labels(tree: Path, build_container: BuildContainer, labels: tuple[tuple[str, str], ...]) -> None:
    """Write the labels of the base and of the layout; labels of the base that cannot be read are left out."""
    try:
        existing = parse_json(build_container.run("cat", f"/{LABELS}").stdout)
    except ValueError:
        existing = {}
    merged = (existing if isinstance(existing, dict) else {}) | dict(labels)
    write_in_root(tree, LABELS, json.dumps(merged, indent=1, sort_keys=True) + "\n")
