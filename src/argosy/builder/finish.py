"""Give a layer that was installed its own files, its digest and its lock."""

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
from argosy.builder.build_plan import source_records, with_own_python
from argosy.builder.output.layer_update import Before
from argosy.builder.python.torch_index import aimed_index
from argosy.builder.steps.locks import record_stages, record_steps
from argosy.builder.steps.run import Staged
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
MOST_NAMED = 3


def judge_records(tree: Path, entries: Entries, packages: Collection[str]) -> Iterator[str]:
    """Name the packages whose files differ from their ``RECORD``, with some of these files."""
    for path in entries:
        if path.endswith(RECORD):
            name = str(canonicalize_name(posixpath.basename(path.removesuffix(RECORD)).rpartition("-")[0]))
            if name in packages and (others := list(_others(tree, path, entries))):
                more = f" and {len(others) - MOST_NAMED} more" if len(others) > MOST_NAMED else ""
                yield (
                    f"{name} has files that are not those of its own list: {', '.join(others[:MOST_NAMED])}{more}; "
                    "either it was published so, or the cache is damaged: argosy cache gc --older-than 0h empties it"
                )


def _others(tree: Path, record: str, entries: Entries) -> Iterator[str]:
    """Name the files of a ``RECORD`` that exist with another digest."""
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


class Made(msgspec.Struct, frozen=True):
    """A layer's tree after installation.

    Attributes
    ----------
    tree
        The tree: ``opt/argosy`` and the two scripts in other people's folders.
    system
        Whether steps changed more than that.
    project
        The project whose steps were carried out.
    before
        The layer that this one was made from.
    altered
        Whether steps or scripts of the user's may have changed files of packages.
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
    staged: Staged = msgspec.field(default_factory=Staged)
    before: Before | None = None
    altered: bool = False


class Finished(msgspec.Struct, frozen=True):
    """The lock of a layer, and what the layer holds beside it."""

    lock: Lock
    entries: Entries


def finish_layer(recipe: Recipe, base: Base, made: Made, session: Session) -> Finished:
    """Write the layer's own files, give it its digest, and leave the lock in it."""
    files = [
        (ENTER, render_enter(), 0o755),
        (ENV_SCRIPT, render_env_script(made.activation), 0o644),
        (APPTAINER_ENV, render_source_line(), 0o755),
        (PROFILE, render_source_line(), 0o644),
    ]
    if made.build_container.run("test", "-e", APPTAINER_BASE).code != 0:
        files.append((APPTAINER_BASE, render_apptainer_base(), 0o755))
    for place, text, mode in files:
        file = made.tree / place.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)
    (made.tree / LOCK.lstrip("/")).unlink(missing_ok=True)
    normalise_tree(made.tree, system=made.system)
    entries = describe_noted(made.tree)
    if not made.altered:
        held = base.lock.packages if base.lock else ()
        new = {p.name for p in made.packages if p.kind is PackageKind.PYPI and p not in held}
        for note in judge_records(made.tree, entries, new):
            session.reporter.note(note)
    lock = _lock(recipe, base, made, session, digest_entries(entries))
    (made.tree / LOCK.lstrip("/")).write_text(render_lock(lock), encoding="utf-8")
    (made.tree / LOCK.lstrip("/")).chmod(0o644)
    return Finished(lock, entries)


def variables_over(recipe: Recipe, base: Base) -> tuple[tuple[str, str], ...]:
    """Give the variables that the image sets: those of a base of ours, overridden by those asked for now."""
    return tuple({**dict(base.lock.variables if base.lock else ()), **dict(recipe.variables)}.items())


def _lock(recipe: Recipe, base: Base, made: Made, session: Session, content: str) -> Lock:
    return Lock(
        base=LockedBase(base.reference, base.digest, base.image.base_size, base.image.arch),
        python=made.python.version if made.python else (base.lock.python if base.lock else ""),
        packages=made.packages,
        variables=variables_over(recipe, base),
        sources=source_records(recipe),
        tools=_tools(made, session),
        time=base.time,
        content=content,
        name=recipe.name,
        requested=_requested(recipe, made) or (base.lock.requested if base.lock else ()),
        indexes=_indexes(recipe, made.settings),
        system=made.system,
        known_as=made.prefix_layout.prefix,
        labels=made.prefix_layout.labels,
        unisolated=recipe.unisolated,
        steps=record_steps(made.project),
        stages=record_stages(made.project, made.staged.bases),
    )


def _requested(recipe: Recipe, made: Made) -> tuple[str, ...]:
    """Give what was asked of conda by name; with Python, where conda had to bring it."""
    conda = any(package.kind is PackageKind.CONDA for package in made.packages)
    return requested_specs(with_own_python(recipe) if conda else recipe)


def _indexes(recipe: Recipe, settings: UvSettings) -> tuple[str, ...]:
    torch = aimed_index(settings)
    return (*locked_indexes(recipe), *((f"extra-index-url {torch}",) if torch else ()))


def _tools(made: Made, session: Session) -> Tools:
    """Record the versions of what makes bytes: another packer may give other bytes of the same content."""
    uv = made.build_container.run(UV_INSIDE, "--version").stdout.split()
    conda = any(package.kind is PackageKind.CONDA for package in made.packages)
    return Tools(
        VERSION,
        uv=uv[1] if len(uv) > 1 else "",
        mksquashfs=packer_version(session),
        rattler=version("py-rattler") if conda else "",
    )
