"""Finish an installed layer: write Argosy's own files, compute the content digest, and write the lock."""

from __future__ import annotations

import base64
import binascii
import csv
import posixpath
from collections.abc import Collection, Iterator
from importlib.metadata import version
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import UV_INSIDE, BuildContainer
from argosy.builder.bases.base import Base
from argosy.builder.bases.python import BasePython
from argosy.builder.inputs import source_records, with_own_python
from argosy.builder.output.layer_update import BaseLayer
from argosy.builder.python.torch_index import torch_index_of
from argosy.builder.steps.locks import record_stages, record_steps
from argosy.builder.steps.run import StageResults
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
from argosy.images.squashfs.pack import (
    Entries,
    describe_noted,
    digest_entries,
    digest_of_entry,
    normalise_tree,
    packer_version,
)
from argosy.recipes.conda_request import requested_specs
from argosy.recipes.lock import Lock, LockedBase, LockedPackage, PackageKind, Tools, render_lock
from argosy.recipes.project_tables import Project
from argosy.recipes.recipe import Recipe
from argosy.recipes.relock import locked_indexes
from argosy.recipes.uv_options import UvSettings
from argosy.version import VERSION

RECORD = ".dist-info/RECORD"
MAX_NAMED_FILES = 3


def find_altered_packages(tree: Path, entries: Entries, packages: Collection[str]) -> Iterator[str]:
    """Describe the packages whose files differ from their ``RECORD``, with some of these files."""
    for path in entries:
        if path.endswith(RECORD):
            name = str(canonicalize_name(posixpath.basename(path.removesuffix(RECORD)).rpartition("-")[0]))
            if name in packages and (others := list(_others(tree, path, entries))):
                more = f" and {len(others) - MAX_NAMED_FILES} more" if len(others) > MAX_NAMED_FILES else ""
                yield (
                    f"{name} has files that differ from its RECORD: {', '.join(others[:MAX_NAMED_FILES])}{more}; "
                    "it was published so, or the cache is damaged (to empty it: argosy cache gc --older-than 0h)"
                )


def _others(tree: Path, record: str, entries: Entries) -> Iterator[str]:
    """Return the files of a ``RECORD`` that exist with another digest."""
    folder = posixpath.dirname(posixpath.dirname(record))
    with (tree / record).open(encoding="utf-8", errors="surrogateescape", newline="") as lines:
        for row in csv.reader(lines):
            name, digest = (*row, "", "")[:2]
            found = digest_of_entry(entries.get(posixpath.normpath(posixpath.join(folder, name)), b""))
            if found and digest.startswith("sha256=") and found != _hexadecimal(digest.removeprefix("sha256=")):
                yield name


def _hexadecimal(digest: str) -> str:
    try:
        return base64.urlsafe_b64decode(digest + "=" * (-len(digest) % 4)).hex()
    except (binascii.Error, ValueError):
        return ""


class InstalledLayer(msgspec.Struct, frozen=True):
    """Describe a layer after installation.

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


class FinishedLayer(msgspec.Struct, frozen=True):
    """Hold the lock of a layer, and the entries that its content digest covers."""

    lock: Lock
    entries: Entries


def finish_layer(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session) -> FinishedLayer:
    """Write Argosy's files into the layer, compute its content digest, and write its lock."""
    files = [
        (ENTER, render_enter(), 0o755),
        (ENV_SCRIPT, render_env_script(layer.activation), 0o644),
        (APPTAINER_ENV, render_source_line(), 0o755),
        (PROFILE, render_source_line(), 0o644),
    ]
    if layer.build_container.run("test", "-e", APPTAINER_BASE).code != 0:
        files.append((APPTAINER_BASE, render_apptainer_base(), 0o755))
    for path, text, mode in files:
        file = layer.tree / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
    (layer.tree / LOCK.lstrip("/")).unlink(missing_ok=True)
    normalise_tree(layer.tree, system=layer.system)
    entries = describe_noted(layer.tree)
    if not layer.altered:
        held = base.lock.packages if base.lock else ()
        new = {p.name for p in layer.packages if p.kind is PackageKind.PYPI and p not in held}
        for note in find_altered_packages(layer.tree, entries, new):
            session.reporter.note(note)
    lock = _lock(recipe, base, layer, session, digest_entries(entries))
    (layer.tree / LOCK.lstrip("/")).write_text(render_lock(lock), encoding="utf-8")
    (layer.tree / LOCK.lstrip("/")).chmod(0o644)
    return FinishedLayer(lock, entries)


def variables_over(recipe: Recipe, base: Base) -> tuple[tuple[str, str], ...]:
    """Return the variables that the image sets: those of an Argosy base, overridden by the recipe's."""
    return tuple({**dict(base.lock.variables if base.lock else ()), **dict(recipe.variables)}.items())


def _lock(recipe: Recipe, base: Base, layer: InstalledLayer, session: Session, content: str) -> Lock:
    return Lock(
        base=LockedBase(base.reference, base.digest, base.image.base_size, base.image.arch),
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
    uv = layer.build_container.run(UV_INSIDE, "--version").stdout.split()
    conda = any(package.kind is PackageKind.CONDA for package in layer.packages)
    return Tools(
        VERSION,
        uv=uv[1] if len(uv) > 1 else "",
        mksquashfs=packer_version(session),
        rattler=version("py-rattler") if conda else "",
    )
