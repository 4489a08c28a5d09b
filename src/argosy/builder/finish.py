"""Finish an installed layer: write Argosy's own files, compute the content digest, and write the lock.

If the base is an Argosy image, for example in `argosy wrap update`, only the files that changed since the base's layer
are packed, and joined with the base's squashfs: the base's layer already contains all others, compressed.  The
comparison uses the content of every file, so the same base and the same tree give the same bytes, independent of
caches.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.builder.bases.base import Base
from argosy.builder.inputs import record_stages, record_steps, source_records, with_own_python
from argosy.builder.output.choose import FLAT, Partitions
from argosy.builder.packed.make import Wheels
from argosy.builder.packed.store import PackedWheel
from argosy.builder.python.base_python import BasePython
from argosy.builder.python.file_lists import find_altered_packages
from argosy.builder.python.torch_index import torch_index_of
from argosy.builder.steps import StageResults
from argosy.core.layout import (
    APPTAINER_BASE,
    APPTAINER_ENV,
    ENTER,
    ENV_SCRIPT,
    LOCK,
    NO_PREFIX_LAYOUT,
    PROFILE,
    Activation,
    PrefixLayout,
    render_apptainer_base,
    render_enter,
    render_env_script,
    render_source_line,
)
from argosy.core.session import Session
from argosy.core.store import link_or_copy
from argosy.images.rootfs import locate_in_root, write_in_root
from argosy.images.sif.write import FileSlice, Piece, whole_of
from argosy.images.squashfs.join import can_join, join_squashfs
from argosy.images.squashfs.pack import normalise_tree, packer_version, run_pack
from argosy.images.squashfs.source import SplitFile
from argosy.images.squashfs.superblock import read_superblock
from argosy.images.squashfs.tables import FIRST, unused_share
from argosy.images.tree_digests import Entries, describe_with_notes, digest_entries, merge_entries
from argosy.recipes.conda_request import requested_specs
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, Tools, render_lock
from argosy.recipes.project_file import Project
from argosy.recipes.recipe import Recipe
from argosy.recipes.relock import locked_indexes
from argosy.recipes.uv_options import UvSettings
from argosy.version import VERSION

MOST_CHANGED = 0.5
"""If a larger share of the tree's bytes is new, the whole tree is packed."""
MOST_DEAD = 0.25
"""If updates have replaced or removed a larger share of the layer's bytes, the whole tree is packed without them."""


class Changes(msgspec.Struct, frozen=True):
    """List paths that are new or have changed, and paths that are gone or have another type, sorted."""

    new: tuple[str, ...]
    gone: tuple[str, ...]


class BaseLayer(msgspec.Struct, frozen=True):
    """The base's layer: its squashfs, or that of a flat image, and its entries.

    Attributes
    ----------
    base_bytes
        Bytes of the files of the base in that squashfs; 0 if they are apart, or unknown.
    """

    packed: FileSlice
    entries: Entries
    base_bytes: int = 0


def describe_base_layer(base: Base, tree: Path, *, flat: bool) -> BaseLayer | None:
    """Describe the base's layer, which was just unpacked into `tree`.

    Parameters
    ----------
    flat
        Whether the new image is flat; the squashfs can be reused only if the base is flat, too.

    Returns
    -------
    None if there is no such layer, or if it also contains system folders.
    """
    image, lock = base.image, base.lock
    if lock is None or lock.system or flat != (image.layer_offset < 0):
        return None
    where = (image.base_offset, image.base_size) if flat else (image.layer_offset, image.layer_size)
    base_bytes = base.packing.data_end - FIRST if isinstance(base.source, SplitFile) else 0
    return BaseLayer(FileSlice(Path(image.path), *where), describe_with_notes(tree), base_bytes)


def plan_changes(before: Entries, now: Entries) -> Changes:
    """Compare two trees; the lock, which is written last, always counts as changed."""
    new = tuple(name for name, entry in now.items() if before.get(name) != entry)
    gone = (name for name, entry in before.items() if name not in now or _kind(now[name]) != _kind(entry))
    return Changes((*new, LOCK.lstrip("/")), tuple(gone))


def _kind(entry: bytes) -> int:
    return stat.S_IFMT(int(entry.split(b" ", 1)[0], 8))


def join_changes(session: Session, tree: Path, before: BaseLayer, now: Entries, *, time: int) -> tuple[Piece, ...]:
    """Pack the changed files of a tree, and join them with the squashfs of the base's layer.

    Returns
    -------
    The pieces of the new squashfs, in order; empty if packing the whole tree is better.

    Raises
    ------
    ToolMissing, ToolFailed, CheckFailed
        If mksquashfs is missing or fails, or the disk is full.
    """
    changes = plan_changes(before.entries, now)
    if not _is_worth_it(before, changes, tree, now):
        return ()
    part = tree.with_name("changes")
    packed = part.with_suffix(".sqfs")
    _copy_entries(tree, changes.new, part)
    run_pack(session, part, packed, time=time, like=read_superblock(before.packed.path, before.packed.offset))
    return join_squashfs(before.packed, (whole_of(packed),), time=time, without=changes.gone)


def _is_worth_it(before: BaseLayer, changes: Changes, tree: Path, now: Entries) -> bool:
    block = read_superblock(before.packed.path, before.packed.offset)
    if not can_join(block):
        return False
    sizes = {name: os.lstat(tree / name).st_size for name in now}
    changed = sum(sizes.get(name, 0) for name in changes.new)
    joined_before = block.inodes > len(before.entries)
    return changed <= MOST_CHANGED * sum(sizes.values()) and not (
        joined_before and unused_share(before.packed, base=before.base_bytes) > MOST_DEAD
    )


def _copy_entries(tree: Path, names: tuple[str, ...], target: Path) -> None:
    """Copy some entries of a tree with their parent folders into a new tree, with hard links if possible."""
    made = {"."}
    target.mkdir()
    shutil.copymode(tree, target)
    for name in names:
        folder = stat.S_ISDIR(os.lstat(tree / name).st_mode)
        above = name if folder else name.rpartition("/")[0]
        _copy_folders(tree, above, target, made)
        if not folder:
            link_or_copy(tree / name, target / name)


def _copy_folders(tree: Path, name: str, target: Path, made: set[str]) -> None:
    parts = Path(name).parts
    for count in range(1, len(parts) + 1):
        folder = "/".join(parts[:count])
        if folder not in made:
            made.add(folder)
            (target / folder).mkdir()
            shutil.copymode(tree / folder, target / folder)


class InstalledLayer(msgspec.Struct, frozen=True):
    """A layer after installation.

    Attributes
    ----------
    tree
        The layer's folder: ``opt/argosy``, and two scripts in system folders.
    system
        Whether steps changed other system folders.
    project
        The project whose steps ran, or None.
    before
        The base's layer that this one continues, or None.
    altered
        Whether the user's steps or scripts may have changed files of packages.
    wheels
        The packages that are packed one by one; None if all files are packed together.
    together
        Why all files are packed together; empty if they are not.
    partitions
        The form of a SIF image.
    """

    tree: Path
    build_container: BuildContainer
    python: BasePython | None
    packages: tuple[LockedPackage, ...]
    activation: Activation
    notes: tuple[str, ...]
    settings: UvSettings
    system: bool = False
    prefix_layout: PrefixLayout = NO_PREFIX_LAYOUT
    project: Project | None = None
    staged: StageResults = msgspec.field(default_factory=StageResults)
    before: BaseLayer | None = None
    altered: bool = False
    wheels: Wheels | None = None
    together: str = ""
    partitions: Partitions = FLAT


class FinishedLayer(msgspec.Struct, frozen=True):
    """The lock of a layer, and the entries that its content digest covers.

    Attributes
    ----------
    wheels
        The packed wheels, which are joined with the layer's tree.
    """

    lock: Lock
    entries: Entries
    wheels: tuple[PackedWheel, ...] = ()


def finish_layer(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session) -> FinishedLayer:
    """Write Argosy's files into the layer, compute its content digest, and write its lock."""
    wheels = layer.wheels.packed if layer.wheels else ()
    _write_own_files(layer)
    normalise_tree(layer.tree, system=layer.system)
    entries = merge_entries((describe_with_notes(layer.tree), *(wheel.entries for wheel in wheels)))
    for note in _altered_packages(base, layer, entries, wheels):
        session.reporter.note(note)
    lock = _lock(recipe, base, layer, session, digest_entries(entries))
    write_in_root(layer.tree, LOCK, render_lock(lock))
    return FinishedLayer(lock, entries, wheels)


def _write_own_files(layer: InstalledLayer) -> None:
    files = [
        (ENTER, render_enter(), 0o755),
        (ENV_SCRIPT, render_env_script(layer.activation), 0o644),
        (APPTAINER_ENV, render_source_line(), 0o755),
        (PROFILE, render_source_line(), 0o644),
    ]
    if not layer.build_container.ask("/bin/sh", "-c", f"[ ! -e {APPTAINER_BASE} ] || echo yes").stdout:
        files.append((APPTAINER_BASE, render_apptainer_base(), 0o755))
    for path, text, mode in files:
        write_in_root(layer.tree, path, text, mode=mode)
    locate_in_root(layer.tree, LOCK).unlink(missing_ok=True)


def _altered_packages(
    base: Base, layer: InstalledLayer, entries: Entries, wheels: tuple[PackedWheel, ...]
) -> Iterator[str]:
    """Describe the new packages whose files differ from their own list."""
    if layer.altered:
        return
    held = base.lock.packages if base.lock else ()
    new = {p.name for p in layer.packages if p.kind is PackageKind.PYPI and p not in held}
    yield from find_altered_packages(layer.tree, entries, new - {wheel.record.name for wheel in wheels})
    yield from (wheel.record.altered for wheel in wheels if wheel.record.altered)


def variables_over(recipe: Recipe, base: Base) -> tuple[tuple[str, str], ...]:
    """Return the variables that the image sets: those of an Argosy base, overridden by the recipe's."""
    return tuple({**dict(base.lock.variables if base.lock else ()), **dict(recipe.variables)}.items())


def _lock(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session, content: str) -> Lock:
    return Lock(
        base=LockedBase(base.reference, base.digest, base.source.length, base.image.arch),
        python=layer.python.version if layer.python else (base.lock.python if base.lock else ""),
        packages=layer.packages,
        variables=variables_over(recipe, base),
        sources=source_records(recipe),
        tools=_tools(layer, session),
        time=base.time,
        content=content,
        name=recipe.name,
        requested=_requested(recipe, layer) or (base.lock.requested if base.lock else ()),
        indexes=_indexes(recipe, layer.settings),
        system=layer.system,
        known_as=layer.prefix_layout.prefix,
        labels=layer.prefix_layout.labels,
        unisolated=recipe.unisolated,
        steps=record_steps(layer.project),
        stages=record_stages(layer.project, layer.staged.bases),
    )


def _requested(recipe: Recipe, layer: InstalledLayer) -> tuple[str, ...]:
    """Return the requested conda specs, with Python if conda installed it."""
    conda = any(package.kind is PackageKind.CONDA for package in layer.packages)
    return requested_specs(with_own_python(recipe) if conda else recipe)


def _indexes(recipe: Recipe, settings: UvSettings) -> tuple[str, ...]:
    torch = torch_index_of(settings)
    return (*locked_indexes(recipe), *((f"extra-index-url {torch}",) if torch else ()))


def _tools(layer: InstalledLayer, session: Session) -> Tools:
    """Record the versions of the tools: another packer may write other bytes for the same content."""
    conda = any(package.kind is PackageKind.CONDA for package in layer.packages)
    return Tools(
        VERSION,
        uv=layer.build_container.uv,
        mksquashfs=packer_version(session),
        rattler=version("py-rattler") if conda else "",
    )
