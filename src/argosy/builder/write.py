"""Write the image of an installed layer in the form that the user asked for."""

from __future__ import annotations

from pathlib import Path

from argosy.builder.bases.base import Base
from argosy.builder.finish import FinishedLayer, InstalledLayer
from argosy.builder.output.assemble import write_delta, write_whole
from argosy.builder.output.content import content_over
from argosy.builder.output.export import write_output
from argosy.builder.output.layer_update import join_changes
from argosy.builder.report import BuildRequest
from argosy.core.session import Session
from argosy.core.store import atomic_file
from argosy.images.formats import OutputFormat
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.pack import run_pack


def write_image(
    request: BuildRequest, base: Base, finished: FinishedLayer, layer: InstalledLayer, session: Session
) -> int:
    """Write the image and return the size of its layer, or of the whole output if it has no layer, in bytes.

    Raises
    ------
    ArgosyError
        If a packer fails, or the disk is full.
    """
    lock, metadata, output = finished.lock, base.opened.sif, request.output
    content = content_over(base, layer.tree, lock, name=output.name.partition(".")[0])
    joined: tuple[Piece, ...] = ()
    if request.form is OutputFormat.SIF and layer.before:
        joined = join_changes(session, layer.tree, layer.before, finished.entries, time=lock.time)
    if request.form is OutputFormat.SIF and not request.flatten:
        with atomic_file(output, force=request.force) as beside:
            return write_delta(beside, base, lock, joined or (_pack(layer.tree, session, time=lock.time),))
    if joined:
        with atomic_file(output, force=request.force) as beside:
            return write_whole(beside, joined, content, metadata)
    return write_output(request.form, output, content, metadata, session, layer.tree.parent, force=request.force)


def _pack(tree: Path, session: Session, *, time: int) -> FileSlice:
    packed = tree.with_suffix(".sqfs")
    run_pack(session, tree, packed, time=time)
    return whole_of(packed)
