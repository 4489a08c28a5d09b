"""Complete a build request: a definition file among the sources is the base; a project file fills in the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from argosy.builder.bases.definitions import definition_format
from argosy.builder.bases.engines import STORE
from argosy.builder.bases.for_site import explain_no_base
from argosy.builder.report import BuildRequest
from argosy.core.errors import UsageError
from argosy.core.model import Host
from argosy.core.os_errors import CHECK, missing_file
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.images.registry.references import is_reference
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.project_file import find_project, read_project
from argosy.recipes.project_tables import Project, words
from argosy.recipes.read import split_extras

NO_PATH = Path()
"""Placeholder for a missing output."""


def split_sources(given: Sequence[str], base: str = "") -> tuple[tuple[Path, ...], str]:
    """Split the arguments of a command line into files and the base, for example ``docker://NAME``.

    Raises
    ------
    UsageError
        If there are several bases.
    """
    images = [word for word in given if word.startswith(STORE) or is_reference(word)]
    bases = [*images, *filter(None, (base,))]
    if len(bases) > 1:
        raise UsageError("several bases are given, but an image has one", evidence=" and ".join(bases))
    return tuple(Path(word) for word in given if word not in images), "".join(bases)


def complete_request(request: BuildRequest, host: Host) -> BuildRequest:
    """Use the definition file or Dockerfile among the sources as the base.

    Raises
    ------
    UsageError
        If a source is missing, there are several bases, or the base or the output is missing.
    """
    _refuse_missing(request.sources, Path(host.cwd), f"listed in {request.project.shown}" if request.project else "")
    described = [source for source in request.sources if definition_format(source, request.engine.dockerfile)]
    if len(described) > 1:
        raise UsageError(
            "two files describe a base, but an image has one",
            evidence=", ".join(map(str, described)),
            hint="build one of them first, and use its image as the base of the other",
        )
    if described and request.base:
        raise UsageError(
            f"{described[0]} describes the base, but --base is another one",
            evidence=f"--base {request.base}",
            hint="remove one of them",
        )
    base = request.base or (str(described[0]) if described else "")
    if not base and not request.locked:
        raise explain_no_base(request.site, host)
    if request.output == NO_PATH:
        raise UsageError("no output is given", hint="add -o NAME.sif")
    sources = tuple(source for source in request.sources if source not in described)
    return replace(request, sources=sources, base=base)


def _refuse_missing(sources: Sequence[Path], cwd: Path, because: str) -> None:
    """Refuse sources that do not exist; this error comes before errors about the base."""
    for source in sources:
        if str(source).startswith("debian:"):
            raise UsageError(f"{source} is a base, not a source", hint=f"use --base {source}")
        file, _ = split_extras(str(source))
        if not (cwd / file).exists():
            missing = missing_file(file, cwd, because)
            if missing.hint == CHECK and re.fullmatch(r"[\w-]+([=<>~!].*)?", file):
                missing.hint = f"packages go into a file: echo {quote(file)} > requirements.txt"
            raise missing


def apply_project_file(request: BuildRequest, host: Host) -> BuildRequest:
    """Fill in missing values from a project file: the one among the sources, or without sources that of this folder.

    Raises
    ------
    UsageError
        If a project file is given with other sources, or nothing is given and this folder has no project file.
    """
    if named := named_project(request.sources, request.engine.dockerfile):
        return request_of_project(named, replace(request, sources=()))
    return request if request.sources or request.locked else _request_here(request, host)


def named_project(sources: Sequence[Path], dockerfile: str = "") -> Project | None:
    """Read the project file that is the only source, or that the source folder contains; return None without one.

    Raises
    ------
    UsageError
        If it is invalid, or there are other sources.
    """
    files = [file for source in sources if (file := _project_file(source, dockerfile))]
    if files and len(sources) > 1:
        raise UsageError(
            f"{files[0]} lists all files of the build, so other sources cannot be added",
            evidence=", ".join(map(str, sources)),
            hint="list them in its [image] table, or remove them",
        )
    return read_project(files[0], str(files[0])) if files else None


def _project_file(source: Path, dockerfile: str) -> Path | None:
    """Return the project file that a source is or contains; a folder with a Dockerfile is a build context."""
    if source.name == PROJECT_FILE and not source.is_dir():
        return source  # if it is missing, reading it fails with a clear error
    inside = source / PROJECT_FILE
    return inside if inside.is_file() and not definition_format(source, dockerfile) else None


def _request_here(request: BuildRequest, host: Host) -> BuildRequest:
    """Fill in missing values from the project file of the current folder.

    Raises
    ------
    UsageError
        If there is none, and no base is given.
    """
    project = find_project(Path(host.cwd))
    if project is None and request.base:
        return request
    if project is None:
        raise UsageError(
            "nothing to build",
            evidence=f"no SOURCE, and no {PROJECT_FILE} in {host.cwd}",
            hint="for example: argosy build environment.yml --base debian:bookworm -o my.sif",
        )
    return request_of_project(project, request)


def request_of_project(project: Project, request: BuildRequest) -> BuildRequest:
    """Complete a request with a project file, whose paths are relative to its folder."""
    image = project.table.image
    sources = tuple(_near(project, file) for file in image.files)
    described = any(definition_format(source, request.engine.dockerfile) for source in sources)
    base = request.base or (str(_near(project, image.base)) if _is_file(project, image.base) else image.base)
    if not base and not described:
        raise project.fault("the project has no base", "image", hint='add base = "debian:bookworm" to [image]')
    arguments = tuple(f"{name}={value}" for name, value in image.build_arg.items())
    return replace(
        request,
        sources=sources,
        base=base,
        output=project.output if request.output == NO_PATH else request.output,
        flatten=request.flatten or image.flatten,
        backend=request.backend or image.build_backend,
        cuda=request.cuda or image.cuda,
        unisolated=(*words(image.no_build_isolation), *request.unisolated),
        replaceable=(*words(image.allow_replace), *request.replaceable),
        engine=replace(request.engine, arguments=(*arguments, *request.engine.arguments)),
        project=project,
    )


def _is_file(project: Project, word: str) -> bool:
    return bool(word) and _near(project, word).exists()


def _near(project: Project, word: str) -> Path:
    """Return a file of the project relative to the current folder, if it is below it."""
    path = project.folder / word
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
