"""What a build is asked and what it reports: records only."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.bases.engines import EngineOptions
from argosy.builder.cost import Cost
from argosy.core.layout import NO_PREFIX_LAYOUT, PrefixLayout
from argosy.images.formats import OutputFormat
from argosy.recipes.project_tables import Project


class BuildRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy build`.

    Attributes
    ----------
    sources
        Environment files and requirements files, merged in this order; one definition file or Dockerfile among them
        is the base.
    base
        See `argosy.builder.bases.base.open_base`.
    form
        What is written: see `OutputFormat`.
    flatten
        One partition instead of base and layer: for runtimes that attach no second one.
    carrier
        Name of the carrier to use; empty tries all.
    cuda
        Version of CUDA that the driver of the nodes supports, for which conda packages are chosen; empty: none.
    locked
        A lock file, or an image with its lock, whose packages are installed to the byte; empty: versions are chosen.
        The base may then be empty: the lock names it.
    site
        Name of the site that the image is for: torch is taken from the index for the GPUs there, and checked; empty:
        neither.
    torch_backend
        Last word of PyTorch's index that torch comes from (``cu128``); ``none``: no such index; empty: by the site.
    bundle
        Folder of an unpacked bundle, from which packages are taken: no network is needed; None: from the network.
    portable
        Whether all must come as files that can be taken along: a wheel is made of what has none.
    arch
        Architecture of the machines that the image is for; empty: the site's, else this machine's.
    guise
        What makes the image look as another tool would have made it; a lock brings its own.
    before, after
        Scripts run inside before and after the packages are installed; what they leave in the layer stays, unlocked.
    engine
        What the engine of a definition file or Dockerfile is told.
    unisolated
        Names of packages that are built after all others, and see them: extensions that compile against torch.
    replaceable
        Names of packages of the base that may be hidden by another version in the layer; all others are kept.
    project
        The project file whose steps and stages are carried out; None for none.
    keep
        Whether the layer's tree stays in the cache, for the next build over this image.
    default_base
        Whether the user named no base: another one is taken if this one cannot be made here.
    """

    sources: tuple[Path, ...]
    base: str
    output: Path
    force: bool = False
    flatten: bool = False
    form: OutputFormat = OutputFormat.SIF
    backend: str = ""
    cuda: str = ""
    locked: str = ""
    site: str = ""
    torch_backend: str = ""
    bundle: Path | None = None
    portable: bool = False
    arch: str = ""
    prefix_layout: PrefixLayout = NO_PREFIX_LAYOUT
    before: tuple[Path, ...] = ()
    after: tuple[Path, ...] = ()
    engine: EngineOptions = msgspec.field(default_factory=EngineOptions)
    unisolated: tuple[str, ...] = ()
    replaceable: tuple[str, ...] = ()
    project: Project | None = None
    keep: bool = False
    default_base: bool = False


class Timing(msgspec.Struct, frozen=True):
    """Seconds spent in one step of a build."""

    step: str
    seconds: float


class BuildReport(msgspec.Struct, frozen=True):
    """What a build did.

    Attributes
    ----------
    digest
        Content digest of the layer.
    base_bytes, layer_bytes
        Sizes of the two squashfs, in bytes; a flat image has no layer.
    python
        Version of the Python inside.
    packages
        How many packages the layer holds.
    seconds
        How long the whole build took, the removal of its work files included.
    use
        Lines that say how the output is used.
    cost
        What it took of disk and memory; None where nothing was done.
    """

    output: str
    digest: str
    base: str
    base_digest: str
    base_bytes: int
    layer_bytes: int
    python: str
    packages: int
    backend: str
    timings: tuple[Timing, ...]
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    form: str = OutputFormat.SIF.value
    use: tuple[str, ...] = ()
    cost: Cost | None = None
