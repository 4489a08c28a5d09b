"""From a user's words to what is wrapped: files to build from, or an image; it reads what is needed to tell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from argosy.builder.resolve import named_project
from argosy.core.errors import UsageError
from argosy.core.os_errors import missing_file, translate_os_errors
from argosy.images.identify import Kind, identify_file
from argosy.images.prefix import current_version
from argosy.images.tar_headers import read_tar_names
from argosy.recipes.read import OF_ANY_NAME
from argosy.wrap.model import Recipe, SourceKind
from argosy.wrap.plan import parse_environ

FILES = frozenset({Kind.TEXT, Kind.EMPTY})

DEFAULT_BASE = "debian:bookworm"
"""Base of a wrapped environment if none is given."""


def plan_recipe(
    sources: tuple[str, ...], base: str, *, copy: bool, flatten: bool | None, at: str, asked_base: bool
) -> Recipe:
    """Tell what is to be wrapped: files to build from, an installation on disk, or an image.

    Raises
    ------
    UsageError
        When a file is missing, files and an image are mixed, an option does not belong to what is wrapped, or it is a
        project file.
    """
    paths = [Path(source).expanduser() for source in sources]
    if project := named_project(paths):
        raise UsageError(
            f"{project.shown} says how an image is made, and is built first",
            hint=f"argosy build {project.shown} -o IMAGE, then argosy wrap IMAGE --prefix DIR",
        )
    kinds = [identify_file(path).kind for path in paths]
    for source, kind in zip(sources, kinds, strict=True):
        is_file = asked_base or len(sources) > 1 or source.endswith(OF_ANY_NAME)
        if is_file and kind is Kind.MISSING:
            raise missing_file(source, Path.cwd())
    if FILES.issuperset(kinds):
        return Recipe(SourceKind.FILES, tuple(str(path.absolute()) for path in paths), base=base, flatten=flatten)
    if len(sources) > 1:
        raise UsageError(
            "one image can be wrapped, or environment files",
            evidence=", ".join(f"{each}: {identify_file(Path(each)).description}" for each in sources),
            hint="to add packages to an image: argosy wrap FILE --base IMAGE",
        )
    return _plan_single(sources[0], base, copy=copy, at=at, asked_base=asked_base)


def _plan_single(source: str, base: str, *, copy: bool, at: str, asked_base: bool) -> Recipe:
    """Tell a prefix, an installation and an image apart."""
    path = Path(source).expanduser()
    if current_version(path) is not None and not at and not asked_base:
        # Copied, since the other prefix may be pruned.
        return Recipe(SourceKind.IMAGE, (str(path.absolute()),), copy=True)
    kind = identify_file(path).kind
    if _is_installation(path) or (kind is Kind.TAR and (at or _named_like_environment(path))):
        return Recipe(SourceKind.FOLDER, (str(path.absolute()),), base=base, at=at)
    if at:
        raise UsageError(
            "--at belongs to an installation on disk", evidence=f"{path} is {identify_file(path).description}"
        )
    if asked_base:
        raise UsageError("--base belongs to environment files", hint=f"leave it away: {source} is wrapped as it is")
    return Recipe(SourceKind.IMAGE, (str(path.absolute()) if path.exists() else source,), copy=copy)


def refuse_unused(recipe: Recipe, options: Mapping[str, object]) -> None:
    """Refuse options of an installation of packages where none are installed.

    Parameters
    ----------
    options
        Name of an option -> what was given for it.

    Raises
    ------
    UsageError
        Naming the option.
    """
    given = next((name for name, value in options.items() if value), "")
    if given and recipe.kind is not SourceKind.FILES:
        raise UsageError(f"{given} belongs to environment files", hint=f"leave it out: {recipe} is wrapped as it is")


def _is_installation(folder: Path) -> bool:
    """Tell an installation, such as a venv, from a root file system, which has ``/usr`` and a shell."""
    if not folder.is_dir() or identify_file(folder).kind not in {Kind.DIRECTORY, Kind.ROOT_DIRECTORY}:
        return False
    marked = any((folder / mark).exists() for mark in ("conda-meta", "pyvenv.cfg"))
    return marked or not ((folder / "usr").exists() or os.path.lexists(folder / "bin/sh"))


def _named_like_environment(archive: Path) -> bool:
    """Tell whether a tar file holds an environment, as conda-pack makes them: ``bin`` and ``conda-meta`` at its top."""
    compression = identify_file(archive).compression
    root_entries = {name.removeprefix("./").partition("/")[0] for name in read_tar_names(archive, compression)}
    return "conda-meta" in root_entries or (
        "bin" in root_entries and "lib" in root_entries and not root_entries & {"etc", "usr"}
    )


def script_paths(scripts: tuple[Path, ...]) -> tuple[str, ...]:
    """Give scripts by their whole path, so that an update finds them.

    Raises
    ------
    UsageError
        When one is not there.
    """
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}", hint="check the path")
    return tuple(str(script.absolute()) for script in scripts)


def read_environ(path: Path) -> tuple[tuple[str, str], ...]:
    """Read a file of variables.

    Raises
    ------
    UsageError
        When there is none, or a line has no fixed value.
    """
    with translate_os_errors(path.parent):
        return parse_environ(path.read_text(encoding="utf-8"), str(path))
