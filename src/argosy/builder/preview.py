"""Show what a build would do: print its plan, and nothing is changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from argosy.builder.bases.base import base_file, is_copied, is_made_by_engine
from argosy.builder.bases.choose import needs_python, other_bases
from argosy.builder.bases.debian import debian_file, is_known, parse_debian, refuse_without_mmdebstrap
from argosy.builder.bases.engines import describe_expected_engine
from argosy.builder.bundle import BASE
from argosy.builder.image_cache import replace_own_output
from argosy.builder.inputs import BuildInputs
from argosy.builder.on_node import NodeOptions, find_build_site, needs_download, plan_node_options
from argosy.builder.output.export import refuse_output
from argosy.builder.plan import BuildPlan, plan_build
from argosy.builder.python.torch_index import describe_expected_index, explain_machines
from argosy.builder.records import BuildRequest
from argosy.builder.request import NO_PATH
from argosy.builder.resolve import resolve_build
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.find import means_reference
from argosy.images.identify import Kind, identify_file
from argosy.images.open import open_image
from argosy.recipes.merge import PYTHON_OF_DEBIAN, refuse_other_python
from argosy.recipes.option_row import OneOrMore
from argosy.recipes.project_file import Project, words
from argosy.recipes.read import lock_kind
from argosy.recipes.recipe import CondaPin, PipKind, PipLine, Recipe
from argosy.sites.load import sites_here


class BuildPreview(msgspec.Struct, frozen=True):
    """The preview of a build, which a dry run prints."""

    output: str
    """The image file; empty if the request names none."""
    form: str
    base: str
    base_bytes: int
    """Size of the base's file; 0 if it does not exist yet."""
    base_how: str
    """How the base is obtained."""
    pip: tuple[str, ...]
    conda: tuple[str, ...]
    """Packages that are requested by name, or listed in the lock."""
    locked: bool
    """Whether the versions of all packages are fixed already."""
    backend: str
    """The first build backend that is tried, and why."""
    work: str
    work_free: int
    output_free: int
    """Folder for work files, and the free bytes there and at the output.  On a compute node the folder may be
    empty, because the node chooses it, and the free bytes are 0, because they are unknown."""
    torch: str = ""
    """The index that torch comes from, and why; empty for the usual indexes."""
    machines: tuple[str, ...] = ()
    """The machines that conda packages are chosen for, and why."""
    node: tuple[str, ...] = ()
    """Slurm options of a build on a compute node; empty for a build on this machine."""
    notes: tuple[str, ...] = ()
    """Warnings about the input."""
    versions: str = ""
    """The origin of the versions of the packages, for example ``as locked by uv.lock``."""
    steps: tuple[str, ...] = ()
    """The stages and steps of the project file, in the order in which they run."""


MAX_NAMED_PACKAGES = 40
"""Packages listed in the text; ``--json`` lists all."""


def preview_build(request: BuildRequest, session: Session, *, here: bool = True) -> BuildPreview:
    """Resolve and plan a build, and describe the plan.

    Parameters
    ----------
    here
        Whether the build runs on this machine.
    """
    context = resolve_build(request, session)
    request, session = context.request, context.session
    if request.output != NO_PATH:
        request = replace_own_output(request, session)
        refuse_output(request.output, request.form, force=request.force)
    return _describe_plan(plan_build(context), session, here=here)


def _describe_plan(plan: BuildPlan, session: Session, *, here: bool) -> BuildPreview:
    """Describe a plan, with the free space and the state of the base on this machine."""
    request, inputs, recipe = plan.request, plan.inputs, plan.inputs.recipe
    backend, work = plan.backends[0], session.work_parent()
    size, how = _describe_base(plan, session, here=here)
    pip, conda = _requested_names(inputs)
    locked, versions = _describe_versions(inputs)
    return BuildPreview(
        output=str(request.output) if request.output != NO_PATH else "",
        form=request.form.value,
        base=_name_base(plan),
        base_bytes=size,
        base_how=how,
        pip=pip,
        conda=conda,
        locked=locked,
        versions=versions,
        backend=f"{backend.value}: {backend.why}",
        work=str(work),
        work_free=_free(work),
        output_free=_free(request.output.parent),
        torch=describe_expected_index(plan.target, plan.settings, recipe) if recipe.pip else "",
        machines=tuple(explain_machines(plan.target)) if recipe.wants_conda else (),
        notes=(*map(str, recipe.notes), *_explain_python(recipe)),
        steps=tuple(_describe_steps(request.project)) if request.project else (),
    )


def _describe_steps(project: Project) -> Iterator[str]:
    """Describe the stages and steps of a project file in their order, each by its first line."""
    for stage in project.table.stage:
        yield f"stage {stage.name or stage.base} over {stage.base}: {_first_line(stage.run)}"
    for early in (True, False):
        for step in (step for step in project.table.step if bool(step.before) is early):
            when = "before the packages" if early else "after the packages"
            what = f"fetch {step.fetch.url}" if step.fetch else f"copy {_first_line(step.copy)}"
            yield f"{when}: " + (f"run {_first_line(step.run)}" if step.run else f"{what} to {step.to}")


def _first_line(given: OneOrMore) -> str:
    """Return the first of one or more lines, and the number of the others."""
    lines = words(given)
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"{lines[0]}{more}" if lines else ""


def preview_on_node(request: BuildRequest, options: NodeOptions, session: Session) -> BuildPreview:
    """Describe a build on a compute node of the request's site, which may have another architecture."""
    site = find_build_site(request, session)
    node_session = replace(session, host=replace(session.host, arch=site.node.architecture or session.host.arch))
    preview = preview_build(request, node_session, here=False)
    downloads = ("the nodes have no network; this machine downloads the base and the packages first",)
    return replace(
        preview,
        node=plan_node_options(options, site, session.host.environment),
        backend="chosen on the node",
        work=site.build.work_dir,
        work_free=0,
        notes=(*(downloads if needs_download(site, request) else ()), *preview.notes),
    )


def _name_base(plan: BuildPlan) -> str:
    """Return the base as users know it: for a bundle, the one in its lock."""
    lock, bundle = plan.inputs.lock, plan.request.bundle
    if lock and bundle and plan.inputs.base == str(bundle / BASE):
        return lock.base.reference
    return f"{plan.inputs.base} (the default)" if plan.request.default_base else plan.inputs.base


def _describe_base(plan: BuildPlan, session: Session, *, here: bool) -> tuple[int, str]:
    """Return the size of the base's file and how it is obtained; a site's base may be missing on this machine."""
    request, base = plan.request, plan.inputs.base
    if request.bundle and base == str(request.bundle / BASE):
        size = Path(base).stat().st_size if Path(base).is_file() else 0
        return size, f"{render_size(size)}, from the bundle" if size else "from the bundle"
    if base.startswith("debian:"):
        return _describe_debian(plan, session, here=here)
    if means_reference(base, session):
        return 0, "downloaded first, unless the cache has it"
    if request.site and not is_made_by_engine(base, request.engine) and not Path(base).exists():
        return 0, f"not on this machine, expected at {request.site}"
    if is_made_by_engine(base, request.engine):
        return 0, describe_expected_engine(base, request.engine, session, here=here)
    file = base_file(base, session)
    _refuse_other_python(plan.inputs.recipe, file)
    size = file.stat().st_size if is_copied(file, session) else 0
    return size, f"{render_size(size)}, copied unchanged" if size else "packed first"


def _refuse_other_python(recipe: Recipe, file: Path) -> None:
    """Refuse another Python than that of an Argosy image, as the build does: its packages need that one."""
    if not recipe.python or recipe.wants_conda or identify_file(file).kind not in {Kind.SIF, Kind.ROOT_DIRECTORY}:
        return
    lock = open_image(file).lock
    if lock and lock.python:
        refuse_other_python(recipe.python, lock.python, recipe.python_where, lock.base.reference)


def _describe_debian(plan: BuildPlan, session: Session, *, here: bool) -> tuple[int, str]:
    """Return the size of a Debian in the cache, or how it is created or what replaces it."""
    base = plan.inputs.base
    suite, _ = parse_debian(base, session.host.environment)
    made_here = not here or "mmdebstrap" in session.host.programs
    file = debian_file(base, session, plan.needs)
    if made_here or file.is_file():
        _refuse_python_of_debian(plan.inputs, suite)
    if file.is_file():
        return file.stat().st_size, f"{render_size(file.stat().st_size)}, in the cache"
    if not made_here:
        if not plan.request.default_base:
            refuse_without_mmdebstrap(suite, session)
        others = other_bases(sites_here(session.host), plan.needs)
        return 0, f"mmdebstrap is not installed on this machine, so the base is {' or '.join(others)}"
    return 0, "created first" if is_known(suite) else f"created first, if the suite {suite} exists"


def _refuse_python_of_debian(inputs: BuildInputs, suite: str) -> None:
    """Refuse another Python than that of a Debian, as the build does, unless conda installs the Python."""
    recipe, found = inputs.recipe, PYTHON_OF_DEBIAN.get(suite, "")
    if recipe.python and found and needs_python(recipe) and not (recipe.interpreter or inputs.lock):
        refuse_other_python(recipe.python, found, recipe.python_where)


def _describe_versions(inputs: BuildInputs) -> tuple[bool, str]:
    """Return whether the versions of all packages are fixed, and where they come from."""
    recipe, packages = inputs.recipe, [line for line in inputs.recipe.pip if line.kind is PipKind.INDEX]
    if inputs.lock is not None:
        return True, "as locked"
    if (recipe.pip or recipe.conda_pins) and not recipe.conda:
        locks = [line for line in (*recipe.constraints, *recipe.overrides) if _is_lock(line.where.file)]
        if all(line.hashes for line in recipe.pip):
            return True, f"as locked by {_name_files((*recipe.pip, *recipe.conda_pins))}"
        if packages and {line.name for line in packages} <= {line.name for line in locks}:
            return True, f"as locked by {_name_files((*locks, *recipe.conda_pins))}"
        pins = {line.name: line for line in (*recipe.constraints, *recipe.pip) if _is_pinned(line)}
        if packages and all(line.name in pins or line.kind is PipKind.LOCAL for line in recipe.pip):
            used = [pins[line.name] for line in recipe.pip if line.name in pins]
            return False, f"pinned by {_name_files(used)}, other dependencies as the build chooses"
    return False, "the build chooses versions"


def _is_lock(file: str) -> bool:
    name = Path(file).name
    return name == "uv.lock" or lock_kind(name) is not None


def _is_pinned(line: PipLine) -> bool:
    """Return whether a line fixes a version: of an index, in an archive, or of a repository."""
    if line.kind is not PipKind.INDEX:
        return line.kind is PipKind.URL or re.search(r"@[0-9a-f]{40}\b", line.spec) is not None
    limits = tuple(Requirement(line.spec).specifier)
    return len(limits) == 1 and limits[0].operator in {"==", "==="} and "*" not in limits[0].version


def _name_files(lines: Iterable[PipLine | CondaPin]) -> str:
    return " and ".join(dict.fromkeys(Path(line.where.file).name for line in lines))


def _explain_python(recipe: Recipe) -> Iterator[str]:
    """Explain where the Python of an environment file comes from; the base is not open yet."""
    if recipe.interpreter and recipe.python and not recipe.wants_conda:
        yield f"Python {recipe.python.lstrip('=')} comes from the base if it has that version; otherwise from conda"


def _requested_names(inputs: BuildInputs) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the pip and conda packages, each once: two lines may request the same package."""
    recipe = inputs.recipe
    specs = (*recipe.interpreter, *recipe.conda) if recipe.conda else ()
    conda = (*(pin.name for pin in recipe.conda_pins), *(spec.name for spec in specs))
    return tuple(dict.fromkeys(line.name or line.text for line in recipe.pip)), tuple(dict.fromkeys(conda))


def _free(folder: Path) -> int:
    """Return the free bytes of the file system of a folder, which need not exist yet."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _describe_work(preview: BuildPreview) -> str:
    if preview.node:
        return f"{preview.work or 'TMPDIR or the cache'} on the node"
    return f"{preview.work}; {preview.work_free / 1e9:.1f} GB free"


def render_preview(preview: BuildPreview) -> str:
    """Render a preview as text."""
    names = (*preview.conda, *preview.pip)
    more = f" and {len(names) - MAX_NAMED_PACKAGES} more" if len(names) > MAX_NAMED_PACKAGES else ""
    listed = f"{', '.join(names[:MAX_NAMED_PACKAGES])}{more}"
    counts = (
        f"{len(preview.conda)} from conda, {len(preview.pip)} from pip, {preview.versions}: {listed}"
        if names
        else "none"
    )
    base = f"{render_size(preview.base_bytes)} for the base, more for" if preview.base_bytes else "the base and"
    return "\n".join(
        (
            f"would build  {preview.output or 'an image without a name; -o FILE gives one'} ({preview.form})",
            f"base         {preview.base}: {preview.base_how}",
            f"packages     {counts}",
            *(f"step         {step}" for step in preview.steps),
            *((f"torch        from {preview.torch}",) if preview.torch else ()),
            *(f"conda        for {machines}" for machines in preview.machines),
            f"backend      {preview.backend}",
            f"disk         {base} the packed packages; {preview.output_free / 1e9:.1f} GB free",
            f"work files   the unpacked packages, in {_describe_work(preview)}",
            *(f"note         {note}" for note in preview.notes),
            *((f"on a node    {' '.join(map(quote, preview.node))}",) if preview.node else ()),
        )
    )
