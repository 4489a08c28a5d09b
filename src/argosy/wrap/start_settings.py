"""What the shared file of a version says, as a record."""

from __future__ import annotations

import msgspec

from argosy.core.model import Attach, Bind, Devices, GpuMode
from argosy.wrap.root_entries import Root

NO_DEVICES = Devices()
NO_ROOT = Root()


class Start(msgspec.Struct, frozen=True):
    """All that the shared file of a version says.

    Attributes
    ----------
    what
        What was wrapped, for the reader.
    image
        The image's file name in the version's folder.
    elsewhere
        Where the image really lies, if that name is a link; empty otherwise.
    path
        The PATH inside, behind the prefix's own commands.
    drop
        Variables of the caller that stay outside.
    shadowed
        Folders at the image's root that hold something of its own.
    on_top
        Whether venvs on top need help to see the packages of the image.
    trees
        Unpacked trees in ``DIR/cache/trees``, the layer first, or absolute paths (bwrap).
    at
        Path of an installation in the layer that folders of the host would hide; empty otherwise.
    root
        How the root is put together without an overlay, where it can be (bwrap).
    layer_part
        Descriptor id of the layer, where it has to be bound out of the image's file; 0 otherwise.
    """

    number: int
    identity: str
    what: str
    runtime: str
    program: str
    image: str
    elsewhere: str
    path: str
    drop: tuple[str, ...]
    shadowed: tuple[str, ...]
    on_top: bool
    binds: tuple[Bind, ...]
    variables: tuple[tuple[str, str], ...]
    gpu: GpuMode
    host: bool
    attach: Attach = Attach.OVERLAY
    at: str = ""
    layer_part: int = 0
    trees: tuple[str, ...] = ()
    devices: Devices = NO_DEVICES
    root: Root = NO_ROOT
