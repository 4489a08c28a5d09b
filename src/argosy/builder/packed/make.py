"""Pack the wheels of a layer one by one: split the installed tree, compile, and pack each wheel on all processors.

uv installs all new wheels into the tree of the layer at once. The list of files that each wheel has (``RECORD``) then
splits the tree: its files move into a tree of the wheel, at the same path. The rest of the layer stays:
the virtual environment, and packages without a hash. A part depends only on its wheel:

- Modules are compiled in the wheel's own tree, so that no other package changes their byte code.
- A file that several wheels contain belongs to each of them. If its content differs, the tree has the file of only one
  wheel, so each of these wheels is installed again, alone, and split off. In the image, the file of the package whose
  name is last in the alphabet counts.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import msgspec

from argosy.builder.packed.store import TORCH, PackedWheel, WheelCache, WheelRecord, can_be_stored
from argosy.builder.python.base_python import site_folders
from argosy.builder.python.bytecode import BYTECODE, BytecodeCache, compile_layer, compile_wheels
from argosy.builder.python.file_lists import FileList, find_altered_packages, read_file_lists
from argosy.builder.python.packages import Installer, install_pins
from argosy.builder.python.pins import Demand, Pin, read_demand, read_demands
from argosy.builder.records import disk_use
from argosy.core.records import replace
from argosy.core.session import QuietReporter, Session, Step
from argosy.core.store import digest_of_file, link_or_copy, remove_tree
from argosy.images.squashfs.pack import normalise_tree, run_pack
from argosy.images.tree_digests import describe_entries

SITE = "/site-packages/"
TREES = "wheel-trees"
"""Folder in the work folder of the installer, which the container sees."""


class Wheels(msgspec.Struct, frozen=True):
    """The packages of a layer that are packed one by one.

    Attributes
    ----------
    installer
        The installer that has installed what is missing.
    cache
        The packed wheels of the cache.
    found
        The packed wheels in the cache.
    missing
        The wheels in the layer's tree that are still to be packed.
    others
        Names of the other packages in the tree.
    exact
        Whether the pins come from a lock.
    """

    installer: Installer
    cache: WheelCache
    found: tuple[PackedWheel, ...]
    missing: tuple[Pin, ...]
    others: frozenset[str]
    exact: bool

    @property
    def has_torch(self) -> bool:
        """Whether torch is a packed wheel, which was checked for the site when it was packed."""
        return any(wheel.record.name == TORCH for wheel in self.found)

    def demands(self) -> Iterator[Demand]:
        """Return the requirements of the packed wheels in the cache."""
        for wheel in self.found:
            for text in wheel.record.requires:
                yield from read_demand(f"{wheel.record.name} {wheel.record.version}", text)

    def paths(self) -> Iterator[str]:
        """Return the paths of all files and folders of the packed wheels in the cache."""
        for wheel in self.found:
            yield from wheel.entries()


def find_wheels(installer: Installer, pins: Sequence[Pin], cache: WheelCache, *, exact: bool) -> Wheels:
    """Find the packages whose packed wheels are in the cache."""
    stored = {pin.package.name: cache.find(pin) for pin in pins if can_be_stored(pin)}
    found = tuple(wheel for wheel in stored.values() if wheel)
    missing = tuple(pin for pin in pins if can_be_stored(pin) and not stored.get(pin.package.name))
    others = frozenset(pin.package.name for pin in pins if not can_be_stored(pin))
    return Wheels(installer, cache, found, missing, others, exact)


def pack_wheels(wheels: Wheels, step: Step) -> tuple[PackedWheel, ...]:
    """Pack the missing wheels, and return all wheels, sorted by name; the rest stays in the layer's tree.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If uv, the environment's Python or mksquashfs fails, or the disk is full.
    """
    installer = wheels.installer
    container, layer, work, python = installer.build_container, installer.layer, installer.work, installer.python
    trees = _split(wheels, step)
    bytecode = BytecodeCache(container.session.paths.cache / BYTECODE, python.build)
    compile_wheels(container, trees, work, bytecode, step)
    compile_layer(container, layer, work, bytecode, wheels.others, step)
    new = _pack_all(wheels, trees, container.session)
    return tuple(sorted((*wheels.found, *new), key=lambda wheel: wheel.record.name))


def _split(wheels: Wheels, step: Step) -> Mapping[str, Path]:
    """Move the files of each missing wheel into a tree of its own; return the trees by the packages' names.

    A pin whose marker excludes this machine is not installed, and has no tree.
    """
    layer, folder = wheels.installer.layer, wheels.installer.work / TREES
    pins = {pin.package.name: pin for pin in wheels.missing}
    files = {name: listed for name, listed in read_file_lists(layer).items() if name in pins}
    mixed = mixed_packages(files)
    for name in files:
        (folder / name).mkdir(parents=True)
    _move_files(layer, {name: listed for name, listed in files.items() if name not in mixed}, folder)
    for name in mixed:
        install_pins(wheels.installer, (pins[name],), step, exact=wheels.exact, again=True)
        _move_files(layer, {name: read_file_lists(layer)[name]}, folder)
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


def _move_files(layer: Path, files: Mapping[str, FileList], folder: Path) -> None:
    """Move files out of the layer into the trees of their packages; each package gets a link to a shared file."""
    owners = Counter(path for listed in files.values() for path in listed)
    emptied = set[Path]()
    for name, listed in files.items():
        for path in _moved_paths(layer, listed, {path for path in listed if owners[path] > 1}):
            target = folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            owners[path] -= 1
            move = link_or_copy if owners[path] > 0 else os.rename
            move(layer / path, target)
            emptied.update(Path(path).parents)
    for parent in sorted(emptied, reverse=True):
        with suppress(OSError):  # not empty
            (layer / parent).rmdir()


def _moved_paths(layer: Path, listed: FileList, shared: set[str]) -> Iterator[str]:
    """Return what to move for a package: a folder of its own as a whole, which is 50 times faster, else single files.

    Parameters
    ----------
    shared
        The files that other packages contain, too.
    """
    groups = defaultdict[str, list[str]](list)
    for path in listed:
        above, site, inside = path.partition(SITE)
        groups[f"{above}{site}{inside.partition('/')[0]}" if "/" in inside else path].append(path)
    for top, paths in groups.items():
        is_own = shared.isdisjoint(paths) and len(paths) == sum(len(names) for _, _, names in os.walk(layer / top))
        yield from (top,) if is_own else paths


def _pack_all(wheels: Wheels, trees: Mapping[str, Path], session: Session) -> Sequence[PackedWheel]:
    """Pack trees on all processors, the largest first, and store the parts."""
    processors = session.host.cpus
    share = replace(session.host, memory=session.host.memory // processors)
    apart, meter = replace(session, host=share, reporter=QuietReporter()), session.meter("packing", unit="wheels")
    sizes = {name: disk_use(tree) for name, tree in trees.items()}
    order = sorted((pin for pin in wheels.missing if pin.package.name in trees), key=lambda p: -sizes[p.package.name])
    pool = ThreadPoolExecutor(processors)
    try:
        packing = [pool.submit(_pack, pin, trees[pin.package.name], sizes[pin.package.name], apart) for pin in order]
        packed = list[PackedWheel]()
        for pin, future in zip(order, packing, strict=True):
            packed.append(wheels.cache.store(pin, future.result()))
            meter.update(len(packed), len(order))
        return packed
    finally:
        pool.shutdown(cancel_futures=True)


def _pack(pin: Pin, tree: Path, size: int, session: Session) -> PackedWheel:
    """Pack the tree of one wheel. Its files get the time of the image when they are joined."""
    name, part = pin.package.name, tree.with_name(f"{tree.name}.sqfs")
    normalise_tree(tree)
    entries = describe_entries(tree)
    run_pack(session, tree, part, time=0)
    record = WheelRecord(
        name=name,
        version=pin.package.version,
        digest=f"sha256:{digest_of_file(part)}",
        entries=tuple(entries.values()),
        size=size,
        requires=tuple(str(demand.requirement) for site in site_folders(tree) for demand in read_demands(site)),
        altered=next(find_altered_packages(tree, entries, {name}), ""),
    )
    remove_tree(tree)
    return PackedWheel(record, part)
