"""Define the records of a build, its request and its report, and measure its time, disk and memory use."""

from __future__ import annotations

import os
import resource
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from argosy.builder.bases.engines import EngineOptions
from argosy.core.layout import NO_PREFIX_LAYOUT, PrefixLayout
from argosy.core.session import Session, Step
from argosy.images.formats import OutputFormat
from argosy.recipes.project_file import Project


class BuildRequest(msgspec.Struct, frozen=True):
    """Request a build."""

    sources: tuple[Path, ...]
    """Environment files and requirements files, merged in this order; a definition file or Dockerfile among them is
    the base."""
    base: str
    """See `argosy.builder.bases.base.open_base`."""
    output: Path
    force: bool = False
    flatten: bool | None = None
    """Whether to write one partition instead of base and layer; None to choose by the base."""
    form: OutputFormat = OutputFormat.SIF
    """Format of the output."""
    backend: str = ""
    """The build backend to use; empty to try all."""
    cuda: str = ""
    """CUDA version of the nodes' driver, for conda packages; empty for none."""
    locked: str = ""
    """A lock file, or an image with a lock, whose packages are installed exactly; empty to choose versions.  With a
    lock, the base may be empty."""
    site: str = ""
    """The site that the image is for, or empty: its GPUs decide which index torch comes from, and torch is checked."""
    torch_backend: str = ""
    """Last part of the address of PyTorch's index (``cu128``), or ``none`` for the usual indexes.  Empty for the
    site's."""
    bundle: Path | None = None
    """Folder of an unpacked bundle with all packages, so that no network is needed; None to use the network."""
    portable: bool = False
    """Whether every package must be a file: packages without a wheel are built."""
    arch: str = ""
    """Architecture that the image is for; empty for the site's, or this machine's."""
    prefix_layout: PrefixLayout = NO_PREFIX_LAYOUT
    """The layout that another tool would produce; a lock has its own."""
    before: tuple[Path, ...] = ()
    after: tuple[Path, ...] = ()
    """Scripts that run in the container before and after the packages are installed; the lock does not record them."""
    engine: EngineOptions = msgspec.field(default_factory=EngineOptions)
    """Options for the engine that builds a definition file or Dockerfile."""
    unisolated: tuple[str, ...] = ()
    """Packages that are built last and see all others, for example extensions that compile against torch."""
    replaceable: tuple[str, ...] = ()
    """Packages of the base that another version in the layer may hide."""
    project: Project | None = None
    """The project file whose steps and stages run, or None."""
    keep: bool = False
    """Whether to keep the layer's tree in the cache for the next build over this image, if its packages are packed
    together."""
    default_base: bool = False
    """Whether the user gave no base: another one may replace the default."""


class Timing(msgspec.Struct, frozen=True):
    """The seconds of one step."""

    step: str
    seconds: float


class BuildReport(msgspec.Struct, frozen=True):
    """Report a build."""

    output: str
    digest: str
    """Content digest of the layer."""
    base: str
    base_digest: str
    base_bytes: int
    layer_bytes: int
    """Sizes of the base and of the new data, in bytes."""
    python: str
    """Python version of the environment, or empty."""
    packages: int
    """Number of packages in the layer."""
    backend: str
    timings: tuple[Timing, ...]
    seconds: float = 0.0
    """Duration of the whole build, including the removal of work files."""
    notes: tuple[str, ...] = ()
    form: str = OutputFormat.SIF.value
    use: tuple[str, ...] = ()
    """Lines that show how to use the output."""
    cost: Cost | None = None
    """Peak disk and memory use; None if nothing was built."""
    cached: int = 0
    """Number of packages that were packed by earlier builds."""
    partitions: str = ""
    """Whether the image is flat or has a partition for the layer, and why; empty for other formats."""
    together: str = ""
    """Why the packages were packed together and not one by one; empty if they were packed one by one."""


BLOCK = 512
KIBIBYTE = 1024


class Cost(msgspec.Struct, frozen=True):
    """The peak use of a build."""

    new: int
    """Bytes of the layer's tree on disk: the unpacked new files of the image."""
    disk: int
    """Peak bytes on disk of work files and output, without the cache."""
    memory: int
    """Bytes of the largest process among this one and its children."""


def disk_use(path: Path, *, without: Collection[Path] = ()) -> int:
    """Return the bytes of a file or tree on disk, counting hard links once; 0 if it does not exist."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    total = status.st_blocks * BLOCK
    if not stat.S_ISDIR(status.st_mode):
        return total
    seen: set[int] = set()
    folders = [str(path)]
    skipped = set(map(str, without))
    while folders:
        # Some folders are readable only for the kernel, for example the work folder of an overlay.
        with suppress(PermissionError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.path in skipped:  # another thread may be removing it: it has no status then
                    continue
                status = entry.stat(follow_symlinks=False)
                if status.st_nlink > 1 and status.st_ino in seen:
                    continue
                total += status.st_blocks * BLOCK
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.path)
                elif status.st_nlink > 1:
                    seen.add(status.st_ino)
    return total


def measure_cost(
    work: Path, tree: Path, output: Path | None = None, *, without: Collection[Path] = (), before: Cost | None = None
) -> Cost:
    """Measure the use now, and return the maximum of this and `before`; with `before`, the tree is not walked again."""
    new = before.new if before else disk_use(tree)
    disk = new + disk_use(work, without=(tree, *without)) + (disk_use(output) if output else 0)
    return Cost(new, max(disk, before.disk if before else 0), _peak_memory())


def _peak_memory() -> int:
    """Return the peak memory in bytes of this process and of the children that it waited for."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * KIBIBYTE


class StepTimes(msgspec.Struct):
    """Collect the times of the steps, in the order in which they end."""

    session: Session
    timings: list[Timing] = msgspec.field(default_factory=list)
    started: float = msgspec.field(default_factory=time.monotonic)

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[Step]:
        """Report a step and record its time."""
        with self.session.step(name, what) as step:
            yield step
        self.timings.append(Timing(name, step.seconds))
