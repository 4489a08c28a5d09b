"""Say what a build would do: it reads the user's files and asks the machine, and makes nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.builder.backends.backends import candidates
from argosy.builder.bases.base import base_file, is_copied, is_made
from argosy.builder.bases.engines import foretell_engine
from argosy.builder.bases.for_site import aimed, site_of
from argosy.builder.bases.mmdebstrap import debian_file, is_known, parse_debian
from argosy.builder.build_plan import BuildPlan, read_build_plan
from argosy.builder.needs import plan_needs
from argosy.builder.on_node import NodeOptions, find_build_site, needs_download, plan_node_options
from argosy.builder.output.export import refuse_output
from argosy.builder.python.torch_index import aim_torch, choose_target, explain_machines, foretell_index
from argosy.builder.report import BuildRequest
from argosy.builder.request import complete_request
from argosy.core.os_errors import require_writable_folder
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.images.identify import render_size
from argosy.images.registry.references import is_reference
from argosy.recipes.pip_settings import read_pip_config
from argosy.recipes.recipe import Recipe
from argosy.recipes.uv_options import plan_uv_settings


class BuildPreview(msgspec.Struct, frozen=True):
    """What a build would do.

    Attributes
    ----------
    base_bytes
        Size of the base's file; 0 where there is none here yet.
    base_how
        What is done with it, in words.
    pip, conda
        What is asked for by name, or stands in the lock.
    locked
        Whether versions are fixed already.
    torch
        From which index torch comes if it is wanted, and why; empty: from the usual ones.
    machines
        For which machines conda's packages are chosen, and why.
    carrier
        The first way that is tried to run programs in the base, and why.
    work, work_free, output_free
        Folder for work files; bytes that are free there and where the image will be.  On a compute node the folder is
        empty where the node chooses it, and 0 bytes are known of.
    node
        What a job on a compute node asks for; empty where it is built here.
    notes
        What was understood differently from how it was written, or is probably not meant.
    """

    output: str
    form: str
    base: str
    base_bytes: int
    base_how: str
    pip: tuple[str, ...]
    conda: tuple[str, ...]
    locked: bool
    backend: str
    work: str
    work_free: int
    output_free: int
    torch: str = ""
    machines: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


MOST_NAMES = 40
"""Of more packages the first are named for people; ``--json`` names all."""


def preview_build(request: BuildRequest, session: Session, *, here: bool = True) -> BuildPreview:
    """Read what is asked for, and give what would be done, on this machine where that is not a compute node's task.

    Raises
    ------
    ArgosyError
        As a build does, for what can be seen before it begins.
    """
    request, session = complete_request(request, session.host), aimed(request, session)
    build_plan = read_build_plan(request, session)
    refuse_output(request.output, request.form, force=request.force)
    require_writable_folder(request.output.parent)
    target = choose_target(request.torch_backend, request.cuda, site_of(request, session.host), build_plan.base)
    config = read_pip_config(session.host.environment, Path(session.host.person.home))
    settings = aim_torch(plan_uv_settings(config, build_plan.recipe), build_plan.recipe, target.backend)
    backend = next(iter(candidates(session.host, request.backend)))
    size, how = _judge_base(build_plan.base, plan_needs(build_plan.recipe), request, session, here=here)
    work = session.work_parent()
    pip, conda = _asked(build_plan)
    return BuildPreview(
        output=str(request.output),
        form=request.form.value,
        base=build_plan.base,
        base_bytes=size,
        base_how=how,
        pip=pip,
        conda=conda,
        locked=build_plan.lock is not None or _is_locked(build_plan.recipe),
        backend=f"{backend.value}: {backend.why}",
        work=str(work),
        work_free=_free(work),
        output_free=_free(request.output.parent),
        torch=foretell_index(target, settings, build_plan.recipe) if build_plan.recipe.pip else "",
        machines=tuple(explain_machines(target)) if build_plan.recipe.wants_conda else (),
        notes=(*map(str, build_plan.recipe.notes), *_judge_python(build_plan.recipe)),
    )


def preview_on_node(request: BuildRequest, wishes: NodeOptions, session: Session) -> BuildPreview:
    """Give what a build on a compute node of the request's site would do; this machine may be of another architecture.

    Raises
    ------
    ArgosyError
        As `preview_build`; also when the site has no compute nodes, or requires an option that nobody gave.
    """
    site = find_build_site(request, session)
    there = replace(session, host=replace(session.host, arch=site.node.arch or session.host.arch))
    preview = preview_build(request, there, here=False)
    fetched = ("the nodes have no network: base and packages are fetched here first",)
    return replace(
        preview,
        node=plan_node_options(wishes, site, session.host.environment),
        backend="chosen on the node, by what works there",
        work=site.build.work_dir,
        work_free=0,
        notes=(*(fetched if needs_download(site, request) else ()), *preview.notes),
    )


def _judge_base(
    base: str, needs: tuple[str, ...], request: BuildRequest, session: Session, *, here: bool
) -> tuple[int, str]:
    """Give the size of the base's file and what is done with it; that of another site need not be on this machine."""
    if base.startswith("debian:"):
        made = debian_file(base, session, needs)
        if made.is_file():
            return made.stat().st_size, f"{render_size(made.stat().st_size)}, made before"
        suite, _ = parse_debian(base, session.host.environment)
        return 0, "made first" if is_known(suite) else f"made first, if there is a suite {suite}"
    if is_reference(base):
        return 0, "fetched first, where it is not here yet"
    if request.site and not is_made(base, request.engine) and not Path(base).exists():
        return 0, f"not on this machine, looked for at {request.site}"
    if is_made(base, request.engine):
        return 0, foretell_engine(base, request.engine, session, here=here)
    file = base_file(base, session)
    size = file.stat().st_size if is_copied(file, session) else 0
    return size, f"{render_size(size)}, copied as it is" if size else "packed first"


def _is_locked(recipe: Recipe) -> bool:
    """Tell whether a lock of another tool leaves nothing to choose."""
    hashed = all(line.hashes for line in recipe.pip)
    return bool(recipe.pip or recipe.conda_pins) and hashed and not recipe.conda


def _judge_python(recipe: Recipe) -> Iterator[str]:
    """Say where the Python that an environment file asks for may come from: the base is not open yet."""
    if recipe.interpreter and recipe.python and not recipe.wants_conda:
        yield f"Python {recipe.python.lstrip('=')} is the base's where that fits; else conda brings it"


def _asked(build_plan: BuildPlan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name what is asked of pip and of conda, each package once: two lines may ask for one."""
    recipe = build_plan.recipe
    asked = (*recipe.interpreter, *recipe.conda) if recipe.conda else ()
    conda = (*(pin.name for pin in recipe.conda_pins), *(spec.name for spec in asked))
    return tuple(dict.fromkeys(line.name or line.text for line in recipe.pip)), tuple(dict.fromkeys(conda))


def _free(folder: Path) -> int:
    """Give the free bytes of the disk that a folder is, or will be, on."""
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _describe_work(preview: BuildPreview) -> str:
    if preview.node:
        return f"{preview.work or 'TMPDIR or the cache'} on the node"
    return f"{preview.work}: {preview.work_free / 1e9:.1f} GB free"


def render_preview(preview: BuildPreview) -> str:
    """Render a preview for people."""
    how = "as locked" if preview.locked else "versions are chosen by the build"
    asked = (*preview.conda, *preview.pip)
    more = f" and {len(asked) - MOST_NAMES} more" if len(asked) > MOST_NAMES else ""
    names = (", ".join(asked[:MOST_NAMES]) or "none") + more
    copies = f"{render_size(preview.base_bytes)} for the base, and" if preview.base_bytes else "the base, and"
    return "\n".join(
        (
            f"would build  {preview.output} ({preview.form})",
            f"base         {preview.base}: {preview.base_how}",
            f"packages     {len(preview.conda)} of conda, {len(preview.pip)} of pip, {how}: {names}",
            *((f"torch        from {preview.torch}",) if preview.torch else ()),
            *(f"conda        for {machines}" for machines in preview.machines),
            f"carrier      {preview.backend}",
            f"disk         {copies} the packages packed, beside the image: {preview.output_free / 1e9:.1f} GB free",
            f"work files   the packages unpacked, in {_describe_work(preview)}",
            *(f"note         {note}" for note in preview.notes),
            *((f"on a node    {' '.join(map(quote, preview.node))}",) if preview.node else ()),
        )
    )
