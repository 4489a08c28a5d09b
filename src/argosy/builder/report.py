"""Define the records of a build: its request and its report."""

from __future__ import annotations

from pathlib import Path

import msgspec

from argosy.builder.bases.engines import EngineOptions
from argosy.builder.cost import Cost
from argosy.core.layout import NO_PREFIX_LAYOUT, PrefixLayout
from argosy.images.formats import OutputFormat
from argosy.recipes.project_tables import Project


class BuildRequest(msgspec.Struct, frozen=True):
    """Request a build.

    Attributes
    ----------
    sources
        Environment files and requirements files, merged in this order; a definition file or Dockerfile among them is
        the base.
    base
        See `argosy.builder.bases.base.open_base`.
    form
        Format of the output.
    flatten
        Write one partition instead of base and layer, for runtimes that cannot attach a second one.
    backend
        The build backend to use; empty to try all.
    cuda
        CUDA version of the nodes' driver, for conda packages; empty for none.
    locked
        A lock file, or an image with a lock, whose packages are installed exactly; empty to choose versions.  With a
        lock, the base may be empty.
    site
        The site that the image is for, or empty: its GPUs decide which index torch comes from, and torch is checked.
    torch_backend
        Last part of the address of PyTorch's index (``cu128``); ``none`` for the usual indexes; empty for the site's.
    bundle
        Folder of an unpacked bundle with all packages, so that no network is needed; None to use the network.
    portable
        Whether every package must be a file: packages without a wheel are built.
    arch
        Architecture that the image is for; empty for the site's, or this machine's.
    prefix_layout
        The layout that another tool would produce; a lock has its own.
    before, after
        Scripts that run in the container before and after the packages are installed; the lock does not record them.
    engine
        Options for the engine that builds a definition file or Dockerfile.
    unisolated
        Packages that are built last and see all others, for example extensions that compile against torch.
    replaceable
        Packages of the base that another version in the layer may hide.
    project
        The project file whose steps and stages run, or None.
    keep
        Whether to keep the layer's tree in the cache for the next build over this image.
    default_base
        Whether the user gave no base: another one may replace the default.
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
    """Record the seconds of one step."""

    step: str
    seconds: float


class BuildReport(msgspec.Struct, frozen=True):
    """Report a build.

    Attributes
    ----------
    digest
        Content digest of the layer.
    base_bytes, layer_bytes
        Sizes of both squashfs file systems, in bytes; a flat image has no layer.
    python
        Python version of the environment, or empty.
    packages
        Number of packages in the layer.
    seconds
        Duration of the whole build, including the removal of work files.
    use
        Lines that show how to use the output.
    cost
        Peak disk and memory use; None if nothing was built.
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
