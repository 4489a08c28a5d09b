"""Finish an installed layer: write Argosy's own files, compute the content digest, and write the lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer
from argosy.builder.base_layer import BaseLayer
from argosy.builder.bases.base import Base
from argosy.builder.inputs import record_stages, record_steps, source_records, with_own_python
from argosy.builder.output.assemble import FLAT, Partitions
from argosy.builder.packed.store import PackedPackage, PackedParts
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
    PROFILE_SCRIPT,
    Activation,
    PrefixLayout,
    render_apptainer_base,
    render_enter,
    render_env_script,
    render_source_line,
)
from argosy.core.session import Session
from argosy.images.libraries import ADD_LIBRARY, NO_LIBRARY, NONE, mpi_of_lock
from argosy.images.rootfs import locate_in_root, write_in_root
from argosy.images.squashfs.pack import normalise_tree, packer_version
from argosy.images.tree_digests import Entries, describe_remembering, digest_entries, merge_entries
from argosy.recipes.conda_request import requested_specs
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, Tools, lists_all_python, render_lock
from argosy.recipes.project_file import Project
from argosy.recipes.recipe import Recipe
from argosy.recipes.relock import locked_indexes
from argosy.recipes.uv_options import UvSettings
from argosy.version import VERSION


class InstalledLayer(msgspec.Struct, frozen=True):
    """A layer after installation."""

    tree: Path
    """The layer's folder: ``opt/argosy``, and two scripts in system folders."""
    build_container: BuildContainer
    python: BasePython | None
    packages: tuple[LockedPackage, ...]
    activation: Activation
    notes: tuple[str, ...]
    settings: UvSettings
    system: bool = False
    """Whether steps changed other system folders."""
    prefix_layout: PrefixLayout = NO_PREFIX_LAYOUT
    project: Project | None = None
    """The project whose steps ran, or None."""
    staged: StageResults = msgspec.field(default_factory=StageResults)
    continues: BaseLayer | None = None
    """The base's layer that this one continues, or None. With packed packages, the tree does not contain its files."""
    altered: bool = False
    """Whether the user's steps or scripts may have changed files of packages."""
    parts: PackedParts | None = None
    """The packages that are packed one by one; None if all files are packed together."""
    together: str = ""
    """Why all files are packed together; empty if they are not."""
    partitions: Partitions = FLAT
    """The form of a SIF image."""

    @property
    def packed(self) -> tuple[PackedPackage, ...]:
        """The packages that are packed one by one, sorted by name."""
        return self.parts.packed if self.parts else ()

    @property
    def found(self) -> tuple[PackedPackage, ...]:
        """Those of them that the cache had."""
        return self.parts.found if self.parts else ()

    @property
    def work_trees(self) -> tuple[Path, ...]:
        """Folders of this build that nothing needs any more."""
        return self.parts.trees if self.parts else ()


class FinishedLayer(msgspec.Struct, frozen=True):
    """The lock of a layer, and the entries that its content digest covers."""

    lock: Lock
    entries: Entries
    packed: tuple[PackedPackage, ...] = ()
    """The packages that are packed one by one, which are joined with the layer's tree."""


def finish_layer(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session) -> FinishedLayer:
    """Write Argosy's files into the layer, compute its content digest, and write its lock."""
    packed = layer.packed
    below = (layer.continues.entries,) if layer.parts and layer.continues else ()
    found = layer.build_container.ask("/bin/sh", "-c", f"[ ! -e {APPTAINER_BASE} ] || echo yes").stdout
    write_layer_files(layer.tree, layer.activation, has_apptainer_base=bool(found))
    locate_in_root(layer.tree, LOCK).unlink(missing_ok=True)
    normalise_tree(layer.tree, system=layer.system)
    entries = merge_entries((*below, describe_remembering(layer.tree), *(part.entries for part in packed)))
    for note in _altered_packages(base, layer, entries, packed):
        session.reporter.note(note)
    lock = _lock(recipe, base, layer, session, digest_entries(entries))
    if lacks_mpi(lock, lambda: layer.build_container.ask("/bin/sh", "-c", FIND_MPI).stdout):
        session.reporter.note(f"{NO_LIBRARY}; {ADD_LIBRARY}")
    write_in_root(layer.tree, LOCK, render_lock(lock))
    return FinishedLayer(lock, entries, packed)


FIND_MPI = (Path(__file__).with_name("scripts") / "find-mpi.sh").read_text(encoding="utf-8")


def lacks_mpi(lock: Lock, search: Callable[[], str]) -> bool:
    """Return whether pip installed an mpi4py, and neither the base nor a package has an MPI for it.

    Parameters
    ----------
    search
        Returns the output of `FIND_MPI`, which costs the start of a container.
    """
    has_wheel = any(package.name == "mpi4py" and package.kind is PackageKind.PYPI for package in lock.packages)
    if not has_wheel or lock.steps or lock.stages or lock.system:
        return False
    return mpi_of_lock(lock) in {"", NONE} and not search().strip()


def write_layer_files(tree: Path, activation: Activation, *, has_apptainer_base: bool) -> None:
    """Write the files with which each runtime gives programs the layer's environment.

    Parameters
    ----------
    has_apptainer_base
        Whether the base, or its layer if this one continues it, has the file after which Apptainer sets variables.
    """
    files = [
        (ENTER, render_enter(), 0o755),
        (ENV_SCRIPT, render_env_script(activation), 0o644),
        (APPTAINER_ENV, render_source_line(), 0o755),
        (PROFILE_SCRIPT, render_source_line(), 0o644),
    ]
    if not has_apptainer_base:
        files.append((APPTAINER_BASE, render_apptainer_base(), 0o755))
    for path, text, mode in files:
        write_in_root(tree, path, text, mode=mode)


def _altered_packages(
    base: Base, layer: InstalledLayer, entries: Entries, packed: tuple[PackedPackage, ...]
) -> Iterator[str]:
    """Describe the new packages whose files differ from their own list."""
    if layer.altered:
        return
    held = base.lock.packages if base.lock else ()
    new = {p.name for p in layer.packages if p.kind is PackageKind.PYPI and p not in held}
    yield from find_altered_packages(layer.tree, entries, new - {part.record.name for part in packed})
    yield from (part.record.altered for part in packed if part.record.altered)


def variables_over(recipe: Recipe, base: Base) -> tuple[tuple[str, str], ...]:
    """Return the variables that the image sets: those of an Argosy base, overridden by the recipe's."""
    return tuple({**dict(base.lock.variables if base.lock else ()), **dict(recipe.variables)}.items())


def _lock(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session, content: str) -> Lock:
    # Other tools may have added packages to a converted image, outside the environment.
    listed = bool(base.lock and not base.is_converted and lists_all_python(base.lock))
    return Lock(
        base=LockedBase(base.reference, base.digest, base.source.length, base.image.arch, listed=listed),
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
