"""Turn the arguments of `argosy wrap` into a recipe: files to build from, an installation, or an image."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from argosy.builder.bases.definitions import definition_format, dockerfile_in
from argosy.builder.request import named_project
from argosy.core.errors import UsageError
from argosy.core.os_errors import missing_file, translate_os_errors
from argosy.core.parse import parse_path
from argosy.core.records import replace
from argosy.core.shell import NAME, quote
from argosy.images.identify import Kind, identify_file, read_tar_names
from argosy.images.prefix import current_version
from argosy.recipes.build_options import DEFAULT_BASE, PACKAGE_ROWS
from argosy.recipes.option_row import option_name
from argosy.recipes.read import MAYBE_LOCKS
from argosy.recipes.user_config import fill_options
from argosy.wrap.model import PrefixRecipe, PrefixSourceKind

FILES = frozenset({Kind.TEXT, Kind.EMPTY})


def plan_recipe(
    sources: tuple[str, ...], base: str = "", *, copy: bool = False, flatten: bool | None = None, at: str = ""
) -> PrefixRecipe:
    """Return the recipe for sources: files to build from, an installation on disk, or an image.

    Raises
    ------
    UsageError
        If a file is missing, files and an image are mixed, an option does not fit the sources, or a source is a
        project file.
    """
    paths = [parse_path(source) for source in sources]
    if project := named_project(paths):
        raise UsageError(
            f"cannot wrap {project.shown}: it is a project file",
            hint=f"first build its image: argosy build {project.shown} -o IMAGE; then argosy wrap IMAGE --prefix DIR",
        )
    for path in paths:
        _refuse_definition(path)
    kinds = [identify_file(path).kind for path in paths]
    for source, kind in zip(sources, kinds, strict=True):
        is_file = base or len(sources) > 1 or source.endswith(MAYBE_LOCKS)
        if is_file and kind is Kind.MISSING:
            raise missing_file(source, Path.cwd())
    if FILES.issuperset(kinds):
        files = tuple(str(path.absolute()) for path in paths)
        return PrefixRecipe(PrefixSourceKind.FILES, files, base or DEFAULT_BASE, flatten=flatten, default_base=not base)
    if len(sources) > 1:
        raise UsageError(
            "cannot wrap several sources that are not all environment files",
            evidence=", ".join(f"{each}: {identify_file(Path(each)).description}" for each in sources),
            hint="to add packages to an image: argosy wrap FILE --base IMAGE",
        )
    return _plan_single(sources[0], base, copy=copy, at=at)


def _refuse_definition(path: Path) -> None:
    """Refuse a file, or a folder with a Dockerfile, that describes an image: it must be built first."""
    described = definition_format(path) and (path if path.is_file() else dockerfile_in(path))
    if described and current_version(path) is None:
        raise UsageError(
            f"cannot wrap {path}: {described.name} describes an image",
            hint=f"first build it: argosy build {quote(str(path))} -o IMAGE; then argosy wrap IMAGE --prefix DIR",
        )


def _plan_single(source: str, base: str, *, copy: bool, at: str) -> PrefixRecipe:
    """Return the recipe for a prefix, an installation or an image."""
    path = parse_path(source)
    if current_version(path) is not None and not at and not base:
        # Copy it: a prune of the other prefix may remove the file.
        return PrefixRecipe(PrefixSourceKind.IMAGE, (str(path.absolute()),), copy=True)
    kind = identify_file(path).kind
    if _is_installation(path) or (kind is Kind.TAR and (at or _named_like_environment(path))):
        folder = (str(path.absolute()),)
        return PrefixRecipe(PrefixSourceKind.FOLDER, folder, base or DEFAULT_BASE, at=at, default_base=not base)
    if at:
        raise UsageError(
            "--at needs an installation on disk",
            evidence=f"{path} is {identify_file(path).description}",
            hint="remove --at",
        )
    if base:
        raise UsageError("--base needs environment files", hint=f"omit --base: {source} is wrapped unchanged")
    return PrefixRecipe(PrefixSourceKind.IMAGE, (str(path.absolute()) if path.exists() else source,), copy=copy)


def with_package_options(
    recipe: PrefixRecipe, given: Mapping[str, Any], environment: Mapping[str, str]
) -> PrefixRecipe:
    """Return the recipe with the options that choose packages, completed by variables and configuration files.

    Parameters
    ----------
    given
        Values of `PackageOptions`; further keys are ignored.
    """
    unused = [name for name in PACKAGE_ROWS if given.get(name) and name != "site"]
    if unused and recipe.kind is not PrefixSourceKind.FILES:
        option = option_name(unused[0])
        raise UsageError(f"{option} needs environment files", hint=f"omit it: {recipe} is wrapped unchanged")
    values = fill_options(given, PACKAGE_ROWS, environment) if recipe.kind is PrefixSourceKind.FILES else given
    return replace(recipe, **{row.field or name: values[name] for name, row in PACKAGE_ROWS.items() if name in values})


def _is_installation(folder: Path) -> bool:
    """Return whether a folder is an installation such as a venv; a root file system has ``/usr`` or a shell."""
    if not folder.is_dir() or identify_file(folder).kind not in {Kind.DIRECTORY, Kind.ROOT_DIRECTORY}:
        return False
    marked = any((folder / mark).exists() for mark in ("conda-meta", "pyvenv.cfg"))
    return marked or not ((folder / "usr").exists() or os.path.lexists(folder / "bin/sh"))


def _named_like_environment(archive: Path) -> bool:
    """Return whether a tar file has the folders of an environment at its top, as archives of conda-pack do."""
    compression = identify_file(archive).compression
    tops = {name.removeprefix("./").partition("/")[0] for name in read_tar_names(archive, compression)}
    return "conda-meta" in tops or ("bin" in tops and "lib" in tops and not tops & {"etc", "usr"})


def script_paths(scripts: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the absolute paths of scripts, so that an update finds them."""
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}", hint="check the path")
    return tuple(str(script.absolute()) for script in scripts)


def read_environ(path: Path) -> tuple[tuple[str, str], ...]:
    """Read a file of variables."""
    with translate_os_errors(path.parent):
        return parse_environ(path.read_text(encoding="utf-8"), str(path))


def parse_environ(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """Parse a file of variables: lines ``NAME=VALUE`` or ``export NAME=VALUE``, quoted as in a shell."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        row = line.strip().removeprefix("export ").strip()
        if not row or row.startswith("#"):
            continue
        name, is_given, raw = row.partition("=")
        try:
            values = shlex.split(raw, comments=True)
        except ValueError:
            values = ["", ""]
        late = any(mark in raw for mark in "$`") and not raw.startswith("'")
        if not is_given or not NAME.match(name) or len(values) > 1 or late:
            raise UsageError(
                f"invalid line in {where}: not a variable with a fixed value",
                evidence=f"{where}:{number}: {line}",
                hint="write NAME=VALUE; put a value with $ between single quotes",
            )
        found[name] = values[0] if values else ""
    return tuple(found.items())
