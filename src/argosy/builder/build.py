"""Build an image: resolve the request, plan, install the layer, write the file, report."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from argosy.builder.base_layer import join_changes, remember_layer
from argosy.builder.bases.base import Base
from argosy.builder.finish import FinishedLayer, InstalledLayer, finish_layer
from argosy.builder.image_cache import (
    copy_cached_image,
    describe_differences,
    remember_image,
    replace_own_output,
    report_finished_output,
    report_output,
)
from argosy.builder.layer import install_layer
from argosy.builder.output.assemble import (
    Whole,
    content_over,
    plan_known_copies,
    plan_metadata,
    write_delta,
    write_whole,
)
from argosy.builder.output.export import name_base_for_use, refuse_output, reserve_output, write_output
from argosy.builder.plan import BuildPlan, plan_build
from argosy.builder.records import BuildReport, BuildRequest, StepTimes, measure_cost
from argosy.builder.request import refuse_no_output
from argosy.builder.resolve import resolve_build
from argosy.core.cache import BUILD, final_name, pin_entry
from argosy.core.errors import ArgosyError
from argosy.core.process import Command
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session
from argosy.core.store import atomic_file, work_folder
from argosy.core.worker_threads import WorkerThreads
from argosy.images.formats import OutputFormat
from argosy.images.open import layer_key
from argosy.images.rootfs_cache import store_layer
from argosy.images.sif.begin import BegunFile
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.join import join_squashfs
from argosy.images.squashfs.pack import run_pack

CACHES = (BUILD, "uv", "conda", "bytecode")
"""The parts of the cache that a build uses."""
SBOM_MODULE = "argosy.recipes.sbom"
"""A module that takes 40 ms to import, so a thread does it while the packages are installed."""


def build_image(request: BuildRequest, session: Session) -> BuildReport:
    """Build the image that `request` describes, unless the output or the cache already has it.

    If it fails, the output is absent, or as it was before.
    """
    context = resolve_build(request, session)
    request, session = context.request, context.session
    refuse_no_output(request)
    if report := report_finished_output(request, context.inputs):
        return report
    request = replace_own_output(request, session)
    context = replace(context, request=request)
    refuse_output(request.output, request.form, force=request.force)
    clock = StepTimes(session)
    for used in CACHES:
        pin_entry(session.paths.cache, used, waiting=session.waiting)
    # Another build may write the output while this one waits for the lock, so it is checked again.
    with reserve_output(request.output, request.form, session, force=request.force):
        if report := copy_cached_image(request, context.inputs, clock):
            return report
        return build(plan_build(context), clock)


@contextmanager
def hiding_file(file: Path, shown: str, *, command: str) -> Iterator[None]:
    """Correct the errors of a build from a requirements file that Argosy wrote.

    Parameters
    ----------
    file
        The file, which the user does not know.
    shown
        The command or option that the user gave the packages to; the evidence shows it instead of the file.
    command
        The command that has the options that a hint may name.
    """
    try:
        yield
    except ArgosyError as error:
        error.evidence = re.sub(rf"{re.escape(str(file))}(:\d+)?", shown, error.evidence)
        if "--allow-replace" in error.hint:
            error.hint += f" (an option of '{command}')"
        raise


def build(plan: BuildPlan, clock: StepTimes) -> BuildReport:
    """Carry out a plan: install the layer, write the image, and report.

    If it fails, the output is absent, or as it was before.
    """
    request, session = plan.request, clock.session
    with work_folder(session.work_parent()) as work, BegunFile(request.output) as begun, WorkerThreads(2) as helper:
        helper.submit(import_module, SBOM_MODULE)
        base, layer = install_layer(plan, clock, work, begun if request.form is OutputFormat.SIF else None)
        if layer.work_trees:
            # A thread would wait for the interpreter's lock at each of 30,000 files.
            helper.submit(session.runner.run, Command(("rm", "-rf", "--", *map(str, layer.work_trees))))
        cost = measure_cost(work, layer.tree, without=layer.work_trees)
        new = cost.new + sum(part.record.size for part in layer.packed)
        together = f", packed together: {layer.together}" if layer.together else ""
        with clock.step("pack", f"{render_size(new)} of new files{together}") as step:
            finished = finish_layer(plan.inputs.recipe, base, layer, session)
            size = _write_image(request, base, finished, layer, session, begun, helper)
            whole = request.output.stat().st_size if request.form is OutputFormat.SIF else size
            step.result = f"{render_size(whole)} written to {final_name(request.output)}"
        lock = finished.lock
        remember_image(request, lock, session)
        if request.form is OutputFormat.SIF:
            remember_layer(request.output, lock, finished.entries, session)
        cost = measure_cost(work, layer.tree, request.output, without=layer.work_trees, before=cost)
        unpacked = sum(part.record.size for part in layer.parts.made) if layer.parts else 0
        cost = replace(cost, new=new, disk=max(cost.disk, unpacked))
        if request.keep and not layer.parts:
            store_layer(session, layer_key(lock), layer.tree)
    layer = replace(layer, notes=(*layer.notes, *describe_differences(plan.inputs, lock)))
    above = name_base_for_use(lock)
    report = report_output(request, lock, layer_bytes=size, activation=layer.activation, base=above)
    return replace(
        report,
        backend=layer.build_container.backend.value,
        timings=tuple(clock.timings),
        seconds=time.monotonic() - clock.started,
        notes=layer.notes,
        cost=cost,
        cached=len(layer.found),
        partitions=str(layer.partitions) if request.form is OutputFormat.SIF else "",
        together=layer.together,
    )


def _write_image(
    request: BuildRequest,
    base: Base,
    finished: FinishedLayer,
    layer: InstalledLayer,
    session: Session,
    begun: BegunFile,
    helper: Executor,
) -> int:
    """Write the image and return the size of its layer, or of the whole output if it is not a SIF file, in bytes."""
    lock, sif, output = finished.lock, base.opened.sif, request.output
    content = content_over(base, layer.tree, lock, name=output.name.partition(".")[0])
    if request.form is OutputFormat.SIF:
        metadata = helper.submit(plan_metadata, sif, lock)  # while mksquashfs runs
        flat = layer.partitions.flat
        pieces = _join_layer(finished, layer, session, base, begun)
        if not (flat or pieces):
            pieces = (_pack(layer.tree, session, time=lock.time),)
        if pieces:
            # `write_sif` flushes the file to the disk. The rename may survive a crash that loses unflushed content.
            with atomic_file(output, force=request.force, flush=False) as beside:
                if not flat:
                    return write_delta(beside, base, lock, pieces, metadata.result(), begun)
                whole = Whole(pieces, None if content.inseparable else content.base)
                return write_whole(beside, whole, content, metadata.result(), begun) - content.base.length
    return write_output(request.form, output, content, sif, session, layer.tree.parent, force=request.force)


def _join_layer(
    finished: FinishedLayer, layer: InstalledLayer, session: Session, base: Base, begun: BegunFile
) -> tuple[Piece, ...]:
    """Join the layer from parts: packed packages, or the layer of the base; return nothing if there are no parts.

    The result contains the base if the image is flat. The parts are copied into the begun file meanwhile.
    """
    time, flat = finished.lock.time, layer.partitions.flat
    if layer.parts:
        rest = _pack(layer.tree, session, time=time)
        parts = (rest, *(part.source for part in finished.packed))
        below = layer.continues.packed if layer.continues else base.source
        lowest, above = (below, parts) if layer.continues or flat else (rest, parts[1:])
        begun.copy(plan_known_copies(base, (lowest, *above), flat=flat))
        return join_squashfs(lowest, above, time=time, restamp=True)
    if layer.continues:
        return join_changes(session, layer.tree, layer.continues, finished.entries, time=time)
    return ()


def _pack(tree: Path, session: Session, *, time: int) -> FileSlice:
    packed = tree.with_suffix(".sqfs")
    run_pack(session, tree, packed, time=time)
    return whole_of(packed)
