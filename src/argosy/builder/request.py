"""Settle what is to be built: a definition among the sources is the base, a project file says what the words do not."""

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
from argosy.recipes.project_file import PROJECT_FILE, find_project, read_project
from argosy.recipes.project_tables import Project, words
from argosy.recipes.read import split_extras

NO_PATH = Path()
"""The output that nobody named."""


def split_sources(given: Sequence[str], base: str = "") -> tuple[tuple[Path, ...], str]:
    """Tell the files among the words of a command line from the base, which may be among them: ``docker://NAME``.

    Raises
    ------
    UsageError
        When there are several bases.
    """
    images = [word for word in given if word.startswith(STORE) or is_reference(word)]
    bases = [*images, *filter(None, (base,))]
    if len(bases) > 1:
        raise UsageError("an image has one base, and several are named", evidence=" and ".join(bases))
    return tuple(Path(word) for word in given if word not in images), "".join(bases)


def complete_request(request: BuildRequest, host: Host) -> BuildRequest:
    """Let the definition file or Dockerfile among the sources be the base.

    Raises
    ------
    UsageError
        When a source is not there, two of them describe a base, or one besides that named, or no base or output is
        named.
    """
    _refuse_missing(request.sources, Path(host.cwd), f"named in {request.project.shown}" if request.project else "")
    described = [source for source in request.sources if definition_format(source, request.engine.dockerfile)]
    if len(described) > 1:
        raise UsageError(
            "an image has one base, and two files describe one",
            evidence=", ".join(map(str, described)),
            hint="build one of them first, and begin the other one with its image",
        )
    if described and request.base:
        raise UsageError(
            f"{described[0]} describes the base, and --base names another one",
            evidence=f"--base {request.base}",
            hint="leave one of them out",
        )
    base = request.base or (str(described[0]) if described else "")
    if not base and not request.locked:
        raise explain_no_base(request.site, host)
    if request.output == NO_PATH:
        raise UsageError("no output was named", hint="add -o NAME.sif")
    sources = tuple(source for source in request.sources if source not in described)
    return replace(request, sources=sources, base=base)


def _refuse_missing(sources: Sequence[Path], cwd: Path, because: str) -> None:
    """Refuse sources that do not exist, before anything is said about the base."""
    for source in sources:
        if str(source).startswith("debian:"):
            raise UsageError(f"{source} is a base, and not what is installed over one", hint=f"write --base {source}")
        file, _ = split_extras(str(source))
        if not (cwd / file).exists():
            missing = missing_file(file, cwd, because)
            if missing.hint == CHECK and re.fullmatch(r"[\w-]+([=<>~!].*)?", file):
                missing.hint = f"name a file; packages stand in one: echo {quote(file)} > requirements.txt"
            raise missing


def apply_project_file(request: BuildRequest, host: Host) -> BuildRequest:
    """Take what is not said from a project file: the one named as the source, else, for want of sources, this folder's.

    Raises
    ------
    UsageError
        When a project file is named beside other sources, or nothing is named and there is none here.
    """
    if named := named_project(request.sources, request.engine.dockerfile):
        return request_of_project(named, replace(request, sources=()))
    return request if request.sources or request.locked else _request_here(request, host)


def named_project(sources: Sequence[Path], dockerfile: str = "") -> Project | None:
    """Read the project file that is the only source, or lies in the folder that is; None where no source is one.

    Raises
    ------
    UsageError
        When it is not valid, or other sources are named beside it.
    """
    files = [file for source in sources if (file := _project_file(source, dockerfile))]
    if files and len(sources) > 1:
        raise UsageError(
            f"{files[0]} says all that is built, and other sources are named beside it",
            evidence=", ".join(map(str, sources)),
            hint="name them in its [image], or leave them out",
        )
    return read_project(files[0], str(files[0])) if files else None


def _project_file(source: Path, dockerfile: str) -> Path | None:
    """Give the project file that a source is or holds; a folder with a Dockerfile is that file's context."""
    if source.name == PROJECT_FILE and not source.is_dir():
        return source  # also where it is not there: reading it says so
    inside = source / PROJECT_FILE
    return inside if inside.is_file() and not definition_format(source, dockerfile) else None


def _request_here(request: BuildRequest, host: Host) -> BuildRequest:
    """Take what is not said from the project file of the current folder.

    Raises
    ------
    UsageError
        When there is none, and no base was named either.
    """
    project = find_project(Path(host.cwd))
    if project is None and request.base:
        return request
    if project is None:
        raise UsageError(
            "nothing to build was named",
            evidence=f"no SOURCE, and no {PROJECT_FILE} in {host.cwd}",
            hint="argosy build environment.yml --base debian:bookworm -o my.sif",
        )
    return request_of_project(project, request)


def request_of_project(project: Project, request: BuildRequest) -> BuildRequest:
    """Complete a request by a project file, whose paths are relative to the project's folder."""
    image = project.table.image
    sources = tuple(_near(project, file) for file in image.files)
    described = any(definition_format(source, request.engine.dockerfile) for source in sources)
    base = request.base or (str(_near(project, image.base)) if _is_file(project, image.base) else image.base)
    if not base and not described:
        raise project.fault("the project names no base", "image", hint='add base = "debian:bookworm" to [image]')
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
    """Give a file of the project as the user would call it from here, where that is possible."""
    path = project.folder / word
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
