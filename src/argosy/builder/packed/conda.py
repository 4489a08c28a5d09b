"""Pack conda packages one by one, as squashfs parts at their final paths, and keep them in the cache.

A package whose part is in the cache is neither downloaded nor linked nor compiled. All packages of an environment are
linked only if something must see their files: link scripts, activation scripts, the ``pip:`` section, or rattler, which
decides between packages that contain the same file. Their parts are used even then, except for packages whose files
were changed: these go with the rest of the layer, as do packages without a SHA-256 and those that share a path.

All decisions depend only on the packages, never on the content of the cache, so that equal packages give equal bytes.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.builder.conda_packages import PackageMeta
from argosy.builder.packed.store import PACKED, PackedPackage, entry_name, find_part, pack_part, quiet_share, store_part
from argosy.builder.python.bytecode import compile_conda_packages
from argosy.core.layout import ENV_PREFIX
from argosy.core.session import Session
from argosy.core.store import link_or_copy
from argosy.core.worker_threads import WorkerThreads
from argosy.images.squashfs.pack import normalise_tree
from argosy.recipes.conda_request import CondaPackage

TREES, PARTS = "conda-trees", "conda-parts"
"""Folders in the work folder of the installation, which the container sees."""

PREFIX = ENV_PREFIX.lstrip("/")
PYTHON = "python"
PYTHON_PATH = "bin/python"
TORCH_PATH = "/site-packages/torch/__init__.py"
SCRIPT = re.compile(r"bin/\.[^/]+-post-link\.sh|etc/conda/activate\.d/[^/]+\.sh")
"""Scripts that run when an environment is installed or activated."""

State = tuple[int, int, int]
"""Inode, size in bytes, and time of the last change of the content in nanoseconds."""


class CondaCache(msgspec.Struct, frozen=True):
    """Find and store packed conda packages."""

    cache: Path
    """Folder of the whole cache."""
    base: str
    """Digest of the base's squashfs: its libraries run the Python that compiles the modules."""
    tools: tuple[str, ...]
    """Versions of rattler and of mksquashfs."""
    python: str = ""
    """SHA-256 of the environment's package of Python; empty if there is none."""

    def entry(self, package: CondaPackage) -> Path:
        """Return the folder for a packed package."""
        facts = ("conda", self.base, self.tools, self.python, package.name, package.sha256)
        return self.cache / PACKED / entry_name(package.name, package.version, facts)

    def find(self, packages: Iterable[CondaPackage]) -> dict[str, PackedPackage]:
        """Return the packed packages in the cache by their names."""
        found = {package.name: find_part(self.entry(package), self.cache) for package in packages if package.sha256}
        return {name: part for name, part in found.items() if part}


def needs_all_linked(packages: Collection[CondaPackage], meta: Mapping[str, PackageMeta], *, for_site: bool) -> bool:
    """Return whether all packages must be linked, because something needs their files, or some cannot be packed.

    Parameters
    ----------
    meta
        The metadata of the packages, as far as they are known.
    for_site
        Whether the image is for a site, for whose GPUs torch is checked.
    """
    paths = [path for each in meta.values() for path in each.own_paths]
    return (
        not meta.keys() <= packable_names(packages, meta)
        or any(SCRIPT.fullmatch(path) for path in paths)
        or (for_site and any(path.endswith(TORCH_PATH) for path in paths))
    )


def packable_names(packages: Iterable[CondaPackage], meta: Mapping[str, PackageMeta]) -> set[str]:
    """Return the names of the known packages that can be packed one by one.

    None can be if the cache would not know the version of Python.
    """
    hashes = {package.name: package.sha256 for package in packages}
    pythons = {name for name, each in meta.items() if PYTHON_PATH in each.own_paths}
    if not pythons <= {PYTHON} or not hashes.get(PYTHON, "none"):
        return set()
    owners = Counter(path for each in meta.values() for path in set(each.own_paths))
    shared = {path for path, count in owners.items() if count > 1}
    linked = owners.keys() & _folders_of(owners)  # a package has a link where another one has a folder
    return {
        name
        for name, each in meta.items()
        if hashes[name]
        and shared.isdisjoint(each.own_paths)
        and (not linked or linked.isdisjoint({*each.own_paths, *_folders_of(each.own_paths)}))
    }


def _folders_of(paths: Iterable[str]) -> set[str]:
    """Return all folders that contain some paths."""
    folders = set[str]()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


class CondaPacker(msgspec.Struct, frozen=True):
    """Packs linked packages."""

    build_container: BuildContainer
    layer: Path
    """The tree with the linked packages."""
    work: Path
    """Folder of its work files, mounted at `WORK_INSIDE`."""
    cache: CondaCache

    def pack(
        self, packages: Collection[CondaPackage], meta: Mapping[str, PackageMeta], python: str, kept: Collection[str]
    ) -> dict[str, PackedPackage]:
        """Compile and pack each of some packages, store the parts in the cache, and return them by name.

        Parameters
        ----------
        python
            Version of the environment's Python; empty if there is none.
        kept
            Names of the packages whose files stay in the layer, too.
        """
        if not packages:
            return {}
        trees = {package.name: self.work / TREES / package.name for package in packages}
        for name, tree in trees.items():
            _take_files(self.layer, tree, meta[name].files, move=name not in kept)
        if python:
            compile_conda_packages(self.build_container, trees, self.work, python)
        return dict(self._pack_trees(packages, meta, trees))

    def _pack_trees(
        self, packages: Collection[CondaPackage], meta: Mapping[str, PackageMeta], trees: Mapping[str, Path]
    ) -> Iterator[tuple[str, PackedPackage]]:
        """Pack the trees on all processors, the largest first."""
        session = self.build_container.session
        (self.work / PARTS).mkdir()
        sizes = {package: normalise_tree(trees[package.name]) for package in packages}
        quiet = quiet_share(session)
        meter = session.meter("packing", unit="packages")
        with WorkerThreads(session.host.cpus) as pool:
            tasks = [
                pool.submit(self._pack_tree, package, meta[package.name], trees[package.name], sizes[package], quiet)
                for package in sorted(packages, key=lambda package: -sizes[package])
            ]
            for done, task in enumerate(tasks, start=1):
                part = task.result()
                meter.update(done, len(tasks))
                yield part.record.name, part

    def _pack_tree(
        self, package: CondaPackage, meta: PackageMeta, tree: Path, size: int, session: Session
    ) -> PackedPackage:
        part, record = self.work / PARTS / f"{package.name}.sqfs", msgspec.json.encode(meta.data, order="sorted")
        packed = pack_part(session, tree, part, name=package.name, version=package.version, size=size, meta=record)
        return store_part(self.cache.entry(package), packed, self.cache.cache)


def _take_files(layer: Path, tree: Path, files: Iterable[str], *, move: bool) -> None:
    """Move or link the files of a package into a tree of its own."""
    take, folders = os.rename if move else link_or_copy, set[str]()
    (tree / PREFIX).mkdir(parents=True)  # some packages have no files
    for file in files:
        path = f"{PREFIX}/{file}"
        folder = path.rpartition("/")[0]
        if folder not in folders:
            folders.add(folder)
            (tree / folder).mkdir(parents=True, exist_ok=True)
        take(layer / path, tree / path)


def file_states(layer: Path, meta: Mapping[str, PackageMeta]) -> dict[str, State | None]:
    """Return the state of each file of some packages; None for a file that does not exist."""
    return {file: _state(f"{layer}/{PREFIX}/{file}") for each in meta.values() for file in each.files}


def _state(path: str) -> State | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def changed_packages(layer: Path, meta: Mapping[str, PackageMeta], before: Mapping[str, State | None]) -> set[str]:
    """Return the names of the packages of which a file is missing, or has changed since `before`."""
    now = file_states(layer, meta)
    changed = {file for file, state in now.items() if state is None or state != before[file]}
    return {name for name, each in meta.items() if not changed.isdisjoint(each.files)}


def packed_paths(parts: Iterable[PackedPackage], meta: Iterable[PackageMeta]) -> set[str]:
    """Return the paths in the image that packed packages have: their files, listed files, and all folders above."""
    paths = {path for part in parts for path in part.entries}
    for file in itertools.chain.from_iterable(each.files for each in meta):
        path = f"{PREFIX}/{file}"
        while path not in paths:
            paths.add(path)
            path = path.rpartition("/")[0]
    return paths


def move_others(tree: Path, target: Path, packed: Collection[str], inside: str = "") -> None:
    """Move all files and folders of a tree that are not packed into another tree."""
    with os.scandir(tree / inside) as entries:
        for entry in entries:
            path = f"{inside}{entry.name}"
            if path not in packed:
                (target / inside).mkdir(parents=True, exist_ok=True)
                os.rename(entry.path, target / path)  # noqa: PTH104 - no Path for each
            elif entry.is_dir(follow_symlinks=False):
                move_others(tree, target, packed, f"{path}/")
