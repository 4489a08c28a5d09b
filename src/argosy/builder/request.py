"""Make the request of a build from its options and from a project file, which fills in missing values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from argosy.builder.bases.definitions import definition_format
from argosy.builder.bases.engines import STORE, EngineOptions
from argosy.builder.records import BuildRequest
from argosy.core.errors import UsageError
from argosy.core.model import Host
from argosy.core.records import replace
from argosy.core.shell import quote
from argosy.images.formats import SUFFIXES, OutputFormat
from argosy.images.registry.references import is_reference
from argosy.recipes.build_options import BUILD_ROWS, FLATTENED, BuildOptions
from argosy.recipes.option_row import PROJECT_FILE, plain_values
from argosy.recipes.project_file import ImageTable, Project, find_project, read_project, words
from argosy.recipes.read import find_environment_file
from argosy.recipes.user_config import fill_options

NO_PATH = Path()
"""Placeholder for a missing output."""


def resolve_build_request(
    sources: Sequence[str], output: Path | None, given: Mapping[str, Any], host: Host
) -> BuildRequest:
    """Return the request of these options, completed by the project file that they name or that is in this folder."""
    asked = make_build_request(sources, output, given, host.environment)
    bundle = given.get("bundle")
    request = asked
    if asked.sources or not (sources or bundle):  # an image or a bundle alone needs no project file
        request = apply_project_file(asked, host)
    return replace(request, base=asked.base, bundle=Path(bundle)) if bundle else request


def make_build_request(
    sources: Sequence[str], output: Path | None, given: Mapping[str, Any], environment: Mapping[str, str]
) -> BuildRequest:
    """Return the request of these options and of the configured site.

    Parameters
    ----------
    sources
        Environment files, definition files and references, as the command line takes them.
    output
        The image file; None: the project file names it.
    given
        Options by name (see `BuildOptions`); other keys are ignored.
    """
    complete = fill_options(given, BUILD_ROWS, environment)
    options = plain_values({name: value for name, value in complete.items() if value}, BuildOptions)
    files, base = split_sources(sources, options.pop("base", ""))
    form = options.pop("format", "")
    records: dict[str, dict[str, Any]] = {"request": _form_fields(form) if form else {}, "engine": {}}
    for name, row in BUILD_ROWS.items():
        if name in options and row.record in records:
            records[row.record][row.field or name] = options[name]
    path = output.absolute() if output else NO_PATH
    if _is_squashfs_name(path):
        records["request"].setdefault("form", OutputFormat.SQSH)
    return BuildRequest(files, base, path, engine=EngineOptions(**records["engine"]), **records["request"])


def split_sources(given: Sequence[str], base: str = "") -> tuple[tuple[Path, ...], str]:
    """Split the arguments of a command line into files and the base, for example ``docker://NAME``."""
    if address := next((word for word in given if word.startswith(("http://", "https://"))), ""):
        hint = f"download it first: curl -LO {quote(address)}; an image of a registry is docker://NAME"
        raise UsageError(f"{address} is an address, and argosy build reads files", hint=hint)
    images = [word for word in given if word.startswith(STORE) or is_reference(word)]
    bases = [*images, *filter(None, (base,))]
    if len(bases) > 1:
        raise UsageError(
            "several bases are given, but an image has one", evidence=" and ".join(bases), hint="remove one of them"
        )
    return tuple(Path(word) for word in given if word not in images), "".join(bases)


def apply_project_file(request: BuildRequest, host: Host, example: str = "argosy build {} -o my.sif") -> BuildRequest:
    """Fill in missing values from a project file: the one among the sources, or without sources that of this folder.

    For a lock without sources, the project file of this folder only names the output.

    Parameters
    ----------
    example
        The command with a file for ``{}``, for the hint if there is nothing to build.
    """
    file, folders = request.engine.dockerfile, [Path(host.cwd, source) for source in request.sources]
    if file and not any(folder.is_dir() for folder in folders):
        raise UsageError(
            "-f names the Dockerfile of a folder, and no source is a folder",
            evidence=f"-f {file}",
            hint=f"write: argosy build . -f {quote(file)}",
        )
    if named := named_project(request.sources, request.engine.dockerfile):
        return request_of_project(named, replace(request, sources=()))
    if request.locked and request.output == NO_PATH and not request.sources:
        return _with_output_of(find_project(Path(host.cwd)), request)
    return request if request.sources or request.locked else _request_here(request, host, example)


def _with_output_of(project: Project | None, request: BuildRequest) -> BuildRequest:
    """Fill in the output and its format from a project file: a lock has everything else of a build."""
    if project is None:
        return request
    form = _form_of_project(project.table.image.format, project.output, request)
    return replace(request, output=project.output, **form)


def named_project(sources: Sequence[Path], dockerfile: str = "") -> Project | None:
    """Read the project file that is the only source, or that the source folder contains; return None without one."""
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


def _request_here(request: BuildRequest, host: Host, example: str) -> BuildRequest:
    """Fill in missing values from the project file of the current folder."""
    project = find_project(Path(host.cwd))
    if project is None and request.base:
        return request
    if project is None:
        raise UsageError(
            "nothing to build",
            evidence=f"no SOURCE, and no {PROJECT_FILE} in {host.cwd}",
            hint=f"for example: {example.format(find_environment_file(Path(host.cwd)) or 'environment.yml')}",
        )
    return request_of_project(project, request)


def request_of_project(project: Project, request: BuildRequest) -> BuildRequest:
    """Complete a request with a project file, whose paths are relative to its folder."""
    image = project.table.image
    if (image, project.table.step) == (ImageTable(), ()) and not (request.base or request.locked):
        raise UsageError(
            f"{project.shown} does not say what to build",
            evidence="its table [image] is missing or empty",
            hint='add [image] with for example pip = "requirements.txt", or: argosy build requirements.txt -o my.sif',
        )
    sources = tuple(_near(project, file) for file in image.files)
    base = request.base or (str(_near(project, image.base)) if _is_file(project, image.base) else image.base)
    arguments = tuple(f"{name}={value}" for name, value in image.build_arg.items())
    output = project.output if request.output == NO_PATH else request.output
    return replace(
        request,
        sources=sources,
        base=base,
        output=output,
        **_form_of_project(image.format, output, request),
        backend=request.backend or image.build_backend,
        cuda=request.cuda or image.cuda,
        site=request.site or image.site,
        torch_backend=request.torch_backend or image.torch_backend,
        unisolated=(*words(image.no_build_isolation), *request.unisolated),
        replaceable=(*words(image.allow_replace), *request.replaceable),
        engine=replace(request.engine, arguments=(*arguments, *request.engine.arguments)),
        project=project,
    )


def _is_squashfs_name(output: Path) -> bool:
    """Return whether enroot and pyxis read an output of this name: without ``--format``, it is a squashfs file."""
    return output.suffix in SUFFIXES[OutputFormat.SQSH]


def _form_of_project(name: str, output: Path, request: BuildRequest) -> dict[str, Any]:
    """Return the fields for the format in a project file or of the output; a command-line option overrides them."""
    given = request.form is not OutputFormat.SIF or request.flatten is not None
    name = name or (OutputFormat.SQSH.value if _is_squashfs_name(output) else "")
    return {} if given or not name else _form_fields(name)


def _form_fields(name: str) -> dict[str, Any]:
    """Return the fields of a request for a value of ``--format``: ``flat`` and ``delta`` are SIF files."""
    flatten = FLATTENED.get(name)
    return {"form": OutputFormat(name)} if flatten is None else {"form": OutputFormat.SIF, "flatten": flatten}


def _is_file(project: Project, word: str) -> bool:
    return bool(word) and _near(project, word).exists()


def _near(project: Project, word: str) -> Path:
    """Return a file of the project relative to the current folder, if it is below it."""
    path = project.folder / word
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def refuse_no_output(request: BuildRequest) -> None:
    """Refuse a build without an output; a dry run needs none."""
    if request.output == NO_PATH:
        raise UsageError("no output is given", hint="add -o NAME.sif")
