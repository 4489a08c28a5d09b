"""Provide the unpacked layer of an image that extends another one, for runtimes that start containers from folders."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from argosy.builder.base_layer import packed_layer
from argosy.builder.packed.entries import recall_entries
from argosy.core.errors import ArgosyError
from argosy.core.model import Attach, ContainerRequest
from argosy.core.session import Session
from argosy.images.open import OpenedImage, layer_key, open_image
from argosy.images.rootfs_cache import LayerTree, link_layer, link_unchanged
from argosy.runtimes.open_container import layer_tree_key, open_container


def link_layer_tree(
    opened: OpenedImage, before: Path | None, request: ContainerRequest, there: Session, session: Session
) -> None:
    """Make the tree of an image's layer from hard links if possible; otherwise the runtime unpacks the layer.

    The files are those of the tree that a build kept, or of the image before.

    Parameters
    ----------
    before
        The image that `opened` extends; None if there is none.
    request
        The container that will be started.
    there
        The session with the cache for the tree.

    Raises
    ------
    ArgosyError
        If the container cannot be planned.
    """
    draft = open_container(request, opened.image.path, there, dry=True)
    if opened.lock is None or not draft.runtime.traits.unpacks:
        return
    attach = draft.entry.attach
    key = layer_tree_key(opened, attach, there)
    if not key:
        return
    link_layer(session, layer_key(opened.lock), there.paths.cache, key)
    if before is None:
        return
    with suppress(ArgosyError):  # a missing or damaged image
        old, new = (_describe_tree(image, attach, there, session) for image in (open_image(before), opened))
        if old and new:
            link_unchanged(there, old, new)


def _describe_tree(opened: OpenedImage, attach: Attach, there: Session, session: Session) -> LayerTree | None:
    """Describe the tree of an image's layer; return None if its entries are not known."""
    if opened.lock is None:
        return None
    packed = packed_layer(opened.image, opened.lock, flat=opened.image.layer_offset < 0)
    entries = recall_entries(packed, opened.lock.content, session.paths.cache) if packed else None
    return LayerTree(layer_tree_key(opened, attach, there), packed, entries) if packed and entries else None
