"""Pack the wheels of a layer one by one, in batches: while uv installs a batch, earlier ones are compiled and packed.

uv installs each batch into a copy of the empty virtual environment, which `split_tree` then splits into one tree for
each wheel. A part depends only on its wheel: its modules are compiled in the wheel's own tree, so that neither another
package nor the batch changes their byte code.

The tree of a wheel has the files that its ``RECORD`` lists, at the same paths. A file that several wheels contain
belongs to each of them. If its content differs, the installed tree has the file of only one wheel, so each of these
wheels is installed again, alone, and split off. In the image, the file of the package whose name is last in the
alphabet counts.

Not every build packs wheels one by one: `why_packed_together` decides.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self

from argosy.builder.bases.choose import needs_python
from argosy.builder.packed.store import (
    TORCH,
    PackedPackage,
    PackedParts,
    WheelCache,
    can_be_stored,
    pack_part,
    quiet_share,
)
from argosy.builder.python.base_python import site_folders
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_wheels
from argosy.builder.python.file_lists import FileList, find_altered_packages, read_file_lists
from argosy.builder.python.installer import Installer
from argosy.builder.python.packages import install_pins
from argosy.builder.python.pins import Pin, read_demands, replaceable
from argosy.builder.records import BuildRequest
from argosy.core.layout import ROOT
from argosy.core.records import replace
from argosy.core.render import render_size
from argosy.core.session import Session, Step
from argosy.core.store import link_or_copy, remove_path
from argosy.core.worker_threads import WorkerThreads
from argosy.images.formats import OutputFormat
from argosy.images.squashfs.pack import BLOCK_SIZE, COMPRESSION, normalise_tree
from argosy.images.squashfs.superblock import Superblock
from argosy.recipes.lock import Lock
from argosy.recipes.recipe import Recipe

BUILD_OPTIONS = frozenset({"--no-binary", "--only-binary", "--config-settings-package", "--build-constraints"})
"""Options of uv that change which file of a package is installed, or what is built from it."""

TREES, PARTS = "wheel-trees", "wheel-parts"
"""Folder in the work folder of the installer, which the container sees."""

FIRST_BATCH, BATCH = 16, 40
"""Number of wheels that one run of uv installs. Each run starts two containers; the first one overlaps nothing."""

SITE = "/site-packages/"


def build_options(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments for uv that change the content of a package."""
    pairs = itertools.pairwise(arguments)
    return tuple(f"{option} {value}" for option, value in pairs if option in BUILD_OPTIONS)


def why_packed_together(
    request: BuildRequest, recipe: Recipe, lock: Lock | None, joined: Superblock | None, *, steps: bool
) -> str:
    """Return why the packages are packed together, as one layer; empty if they are packed one by one.

    The answer depends only on what is built, never on the content of the cache: equal requests give equal bytes.

    Parameters
    ----------
    lock
        The lock of the base, if it is an image of Argosy.
    joined
        The superblock of the base, or of its layer, that packages are joined with; None if they are a layer of their
        own.
    steps
        Whether steps run in the image.
    """
    foreign = joined is not None and (joined.compressor, joined.block_size) != (COMPRESSION, BLOCK_SIZE)
    blocks = f"{joined.compressor} blocks of {render_size(joined.block_size)}" if joined else ""
    rules = (
        (request.form is not OutputFormat.SIF, f"the output format {request.form.value} is packed from a folder"),
        (steps, "steps may change the files of packages"),
        (bool(request.before or request.after), "scripts may change the files of packages"),
        (bool(recipe.unisolated), "--no-build-isolation builds packages against the others"),
        (request.portable, "packages without a wheel are built for the bundle"),
        (foreign, f"the base has {blocks}"),
        *(_rules_over_layer(request, recipe, lock, joined) if lock else ()),
    )
    return next((why for applies, why in rules if applies), "")


def _rules_over_layer(
    request: BuildRequest, recipe: Recipe, lock: Lock, joined: Superblock | None
) -> tuple[tuple[bool, str], ...]:
    """Return what prevents that packages are added to the layer of the base without unpacking it."""
    held = {package.name for package in lock.packages}
    return (
        (joined is None, "the layer of the base has another form"),
        (not needs_python(recipe), "no pip packages are added"),
        (recipe.wants_conda, "a conda environment is added to the layer of the base"),
        (lock.has_conda, "the layer of the base has conda packages"),
        (not held.isdisjoint(replaceable(recipe)), "packages of the base are replaced"),
        (bool(request.site) and TORCH in held, "the torch of the base is checked for the site"),
    )


def find_wheels(pins: Sequence[Pin], cache: WheelCache) -> PackedParts:
    """Find the packages whose packed wheels are in the cache."""
    stored = {pin.package.name: cache.find(pin) for pin in pins if can_be_stored(pin)}
    found = tuple(wheel for wheel in stored.values() if wheel)
    missing = tuple(pin for pin in pins if can_be_stored(pin) and not stored.get(pin.package.name))
    return PackedParts(found, missing, tuple(pin for pin in pins if not can_be_stored(pin)))


def pack_missing(
    wheels: PackedParts,
    installer: Installer,
    cache: WheelCache,
    check: Callable[[Installer, Sequence[Pin]], None],
    step: Step,
    *,
    exact: bool,
) -> PackedParts:
    """Install, compile and pack the missing wheels, and store them in the cache.

    Their trees stay, because ext4 does not use an inode again for some minutes: it would skip each inode of a removed
    tree for each file that is created after that.

    Parameters
    ----------
    installer
        Its tree is an empty virtual environment, which stays as it is.
    check
        Refuses packages in an installer's tree that must not be in the image; it runs before they are stored.
    """
    trees = installer.work / TREES
    with _Packer(installer, cache, len(wheels.missing)) as packer:
        for number, pins in enumerate(_batches(wheels.missing)):
            batch = installer.into(installer.work / f"batch-{number}")
            shutil.copytree(installer.layer / ROOT.lstrip("/"), batch.layer / ROOT.lstrip("/"), symlinks=True)
            install_pins(batch, pins, step, exact=exact)
            check(batch, pins)
            packer.add(pins, split_tree(batch, pins, trees, step, exact=exact))
        return replace(wheels, missing=(), made=tuple(packer.results()), trees=(trees,))


def discard_trees(installer: Installer) -> None:
    """Remove what `pack_missing` left, so that it can run again with other pins."""
    for folder in (installer.work / TREES, installer.work / PARTS, *installer.work.glob("batch-*")):
        remove_path(folder)


def _batches(pins: tuple[Pin, ...]) -> Iterator[tuple[Pin, ...]]:
    yield pins[:FIRST_BATCH]
    for first in range(FIRST_BATCH, len(pins), BATCH):
        yield pins[first : first + BATCH]


class _Packer:
    """Compiles and packs the trees of wheels in threads.

    Modules are compiled batch by batch, on all processors. Two batches overlap, so that these are also busy while the
    compiler starts and while the last modules of a batch are compiled.
    """

    def __init__(self, installer: Installer, cache: WheelCache, count: int) -> None:
        container = installer.build_container
        self._installer, self._cache, self._count = installer, cache, count
        self._parts = installer.work / PARTS  # not below the trees, which are removed while a part is still read
        self._parts.mkdir()
        self._bytecode = BytecodeCache(container.session.paths.cache / BYTECODE, installer.python.build)
        self._session = quiet_share(container.session)
        self._compiling, self._packing = WorkerThreads(2), WorkerThreads(container.session.host.cpus)
        self._batches = list[Future[list[Future[PackedPackage]]]]()

    def __enter__(self) -> Self:
        """Return the packer."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Wait for the running threads. After an error, what has not begun is not done."""
        self._compiling.__exit__(kind, error, at)
        self._packing.__exit__(kind, error, at)

    def add(self, pins: Sequence[Pin], trees: Mapping[str, Path]) -> None:
        """Compile and pack the trees of some wheels while the caller continues."""
        self._batches.append(self._compiling.submit(self._compile, pins, trees))
        if self._installer.build_container.kind.needs_tree:
            # Two programs in one tree: the first to end would remove the mount points of the other.
            self._batches[-1].result()

    def results(self) -> Iterator[PackedPackage]:
        """Return the packed wheels when they are stored."""
        meter = self._installer.build_container.session.meter("packing", unit="wheels")
        packing = itertools.chain.from_iterable(batch.result() for batch in self._batches)
        for done, future in enumerate(packing, start=1):
            yield future.result()
            meter.update(done, self._count)

    def _compile(self, pins: Sequence[Pin], trees: Mapping[str, Path]) -> list[Future[PackedPackage]]:
        """Compile the modules of a batch, and begin to pack its wheels, the largest first."""
        container, work = self._installer.build_container, self._installer.work
        compile_wheels(container, trees, work, self._bytecode)
        installed = [(pin, trees[pin.package.name]) for pin in pins if pin.package.name in trees]
        sized = [(normalise_tree(tree), pin, tree) for pin, tree in installed]
        sized.sort(key=lambda each: each[0], reverse=True)
        return [self._packing.submit(self._pack, *each) for each in sized]

    def _pack(self, size: int, pin: Pin, tree: Path) -> PackedPackage:
        return self._cache.store(pin, _pack_tree(pin, tree, self._parts / f"{tree.name}.sqfs", size, self._session))


def _pack_tree(pin: Pin, tree: Path, part: Path, size: int, session: Session) -> PackedPackage:
    """Pack the tree of one wheel; record its requirements, and whether its files differ from its own list."""
    name, version = pin.package.name, pin.package.version
    requires = tuple(str(demand.requirement) for site in site_folders(tree) for demand in read_demands(site))
    packed = pack_part(session, tree, part, name=name, version=version, size=size, requires=requires)
    altered = next(find_altered_packages(tree, packed.entries, {name}), "")
    return replace(packed, record=replace(packed.record, altered=altered))


def split_tree(
    installer: Installer, pins: Collection[Pin], folder: Path, step: Step, *, exact: bool
) -> dict[str, Path]:
    """Move the files of each wheel out of the installer's tree; return the new trees by the packages' names.

    A pin whose marker excludes this machine is not installed, and has no tree.
    """
    layer, wheels = installer.layer, {pin.package.name: pin for pin in pins}
    files = {name: listed for name, listed in read_file_lists(layer).items() if name in wheels}
    tops = Counter(top for listed in files.values() for top in {_top_of(path) for path in listed})
    mixed = mixed_packages(files)
    _move_files(layer, {name: listed for name, listed in files.items() if name not in mixed}, tops, folder)
    for name in mixed:
        install_pins(installer, (wheels[name],), step, exact=exact, again=True)
        _move_files(layer, {name: read_file_lists(layer)[name]}, tops, folder)
    return {name: folder / name for name in files}


def mixed_packages(files: Mapping[str, FileList]) -> list[str]:
    """Return the packages that contain a file with the same path and different content, sorted."""
    owners = defaultdict[str, list[str]](list)
    for name, listed in files.items():
        for path in listed:
            owners[path].append(name)
    shared = {path: names for path, names in owners.items() if len(names) > 1}
    differing = (names for path, names in shared.items() if len({files[name][path] for name in names}) > 1)
    return sorted({name for names in differing for name in names})


def _move_files(layer: Path, files: Mapping[str, FileList], tops: Mapping[str, int], folder: Path) -> None:
    """Move files into the trees of their packages; each package gets a link to a shared file.

    Parameters
    ----------
    tops
        Number of packages with files in each folder of ``site-packages``. A folder of one package is moved as a whole,
        which is 50 times faster.
    """
    owners = Counter(path for listed in files.values() for path in listed)
    for name, listed in files.items():
        (folder / name).mkdir(parents=True)
        for path in _moved_paths(listed, tops):
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            owners[path] -= 1
            move = link_or_copy if owners[path] > 0 else os.rename
            move(layer / path, target)


def _top_of(path: str) -> str:
    """Return the folder directly below ``site-packages`` that contains a file; the file itself if there is none."""
    above, site, inside = path.partition(SITE)
    return f"{above}{site}{inside.partition('/')[0]}" if "/" in inside else path


def _moved_paths(listed: FileList, tops: Mapping[str, int]) -> Iterator[str]:
    """Return what to move for a package: its own folders, and its files in folders of several packages."""
    own = {top for path in listed if tops[top := _top_of(path)] == 1}
    yield from sorted(own)
    yield from (path for path in listed if _top_of(path) not in own)
