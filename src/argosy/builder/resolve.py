"""Collect everything that a build depends on: options, the user's files, the site's profile, this machine's settings.

A definition file among the sources is the base.  A project file fills in missing values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from argosy.builder.bases.choose import find_needs, refuse_base_around
from argosy.builder.bases.definitions import definition_format
from argosy.builder.bases.engines import STORE, EngineOptions
from argosy.builder.inputs import BuildInputs, read_inputs, read_lock
from argosy.builder.python.sources import GitAccess, find_git_access
from argosy.builder.records import BuildRequest
from argosy.core.errors import CheckFailed, UsageError
from argosy.core.model import Host
from argosy.core.os_errors import CHECK, missing_file
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import quote
from argosy.host.emulation import MACHINES, emulating, machine_named
from argosy.images.catalog import IMAGE_SUFFIXES
from argosy.images.formats import SUFFIXES, OutputFormat
from argosy.images.identify import Kind, identify_file
from argosy.images.registry.references import is_reference
from argosy.recipes.build_options import BUILD_ROWS, DEFAULT_BASE, FLATTENED, BuildOptions
from argosy.recipes.lock import Lock
from argosy.recipes.option_row import PROJECT_FILE, plain_values
from argosy.recipes.pip_settings import PipConfig, read_pip_config
from argosy.recipes.project_file import ImageTable, Project, find_project, read_project, words
from argosy.recipes.read import find_environment_file, split_extras
from argosy.recipes.user_config import fill_options
from argosy.sites.bases import render_bases
from argosy.sites.load import load_site
from argosy.sites.profile import Site


class BuildContext(msgspec.Struct, frozen=True):
    """The facts that a build is planned from."""

    request: BuildRequest
    """The request, completed by the definition file among the sources."""
    session: Session
    """The session for the machines that the image is for; their programs may run under an emulator here."""
    inputs: BuildInputs
    """The packages and steps in the user's files or the lock."""
    needs: tuple[str, ...]
    """Debian packages that the recipe needs in its base."""
    site: Site | None
    """The site that the image is for, or None."""
    pip: PipConfig
    """The settings of pip's configuration files and variables."""
    git: GitAccess
    """The user's ssh agent, ssh configuration and known hosts."""


def resolve_build(request: BuildRequest, session: Session) -> BuildContext:
    """Read the user's files and ask this machine for everything that a build is planned from.

    Raises
    ------
    ArgosyError
        If a file is missing or invalid, or if the site or its architecture is not available here.
    """
    request = complete_request(request, session.host)
    site = load_site(request.site, session.host) if request.site else None
    lock = read_lock(request.locked, session) if request.locked else None
    session = resolve_target_session(request, session, site, lock)
    inputs = read_inputs(request, session, lock)
    _suggest_site_bases(request, site, session)
    refuse_base_around(inputs.base, request.output, session, request.engine)
    for stage in inputs.project.table.stage if inputs.project else ():
        refuse_base_around(stage.base, request.output, session)
    return BuildContext(
        request=request,
        session=session,
        inputs=inputs,
        needs=find_needs(inputs.recipe),
        site=site,
        pip=read_pip_config(session.host.environment, Path(session.host.person.home)),
        git=find_git_access(session.host),
    )


NO_PATH = Path()
"""Placeholder for a missing output."""


IMAGES = frozenset({Kind.SIF, Kind.SQUASHFS, Kind.TAR, Kind.DOCKER_ARCHIVE, Kind.OCI_ARCHIVE})
"""Images that users of other tools pass as the source of a build."""


def split_sources(given: Sequence[str], base: str = "") -> tuple[tuple[Path, ...], str]:
    """Split the arguments of a command line into files and the base, for example ``docker://NAME``.

    Raises
    ------
    UsageError
        If there are several bases, or an argument is an address of the web.
    """
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


def complete_request(request: BuildRequest, host: Host) -> BuildRequest:
    """Use the definition file or Dockerfile among the sources as the base, or without any base the default one.

    Raises
    ------
    UsageError
        If a source is missing, or there are several bases.
    """
    _refuse_sources(request.sources, Path(host.cwd), f"listed in {request.project.shown}" if request.project else "")
    described = [source for source in request.sources if definition_format(source, request.engine.dockerfile)]
    if len(described) > 1:
        raise UsageError(
            "two files describe a base, but an image has one",
            evidence=", ".join(map(str, described)),
            hint="build one of them first, and use its image as the base of the other",
        )
    if described and request.base:
        raise UsageError(
            f"{described[0]} describes the base, but --base names another one",
            evidence=f"--base {request.base}",
            hint="remove one of them",
        )
    base = request.base or (str(described[0]) if described else "")
    sources = tuple(source for source in request.sources if source not in described)
    is_described = bool(base) and definition_format(Path(host.cwd, base), request.engine.dockerfile) is not None
    if request.engine.arguments and not (is_described or request.locked):
        raise UsageError(
            "--build-arg needs a definition file or a Dockerfile",
            evidence=f"--build-arg {request.engine.arguments[0]}",
            hint="remove it, or give the file among the sources",
        )
    if base or request.locked:  # the lock names the base
        return replace(request, sources=sources, base=base)
    return replace(request, sources=sources, base=DEFAULT_BASE, default_base=True)


RECIPE_NAMES = ("Dockerfile", "Containerfile", "Singularity")
"""Beginnings of the names of files that a package cannot have."""


def _hint_for_missing(file: str) -> str:
    """Return the hint for a source that does not exist: it may be the image to build, or a package."""
    if file == "-":
        return "write it to a file: argosy build does not read its standard input"
    if file.endswith(IMAGE_SUFFIXES):
        return f"for the image to build, write -o {quote(file)}; for a base, check the path"
    is_package = not file.startswith(RECIPE_NAMES) and re.fullmatch(r"[\w-]+([=<>~!].*)?", file)
    return f"packages go into a file: echo {quote(file)} > requirements.txt" if is_package else CHECK


def refuse_no_output(request: BuildRequest) -> None:
    """Refuse a build without an output; a dry run needs none.

    Raises
    ------
    UsageError
        If neither an option nor a project file names the output.
    """
    if request.output == NO_PATH:
        raise UsageError("no output is given", hint="add -o NAME.sif")


def _refuse_sources(sources: Sequence[Path], cwd: Path, because: str) -> None:
    """Refuse sources that do not exist or are images; this error comes before errors about the base."""
    for source in sources:
        if str(source).startswith("debian:"):
            raise UsageError(f"{source} is a base, not a source", hint=f"use --base {source}")
        file, _ = split_extras(str(source))
        if not (cwd / file).exists():
            missing = missing_file(file, cwd, because)
            if missing.hint == CHECK:
                missing.hint = _hint_for_missing(file)
            raise missing
        found = identify_file(cwd / file)
        if found.kind in IMAGES:
            raise UsageError(
                f"{source} is an image, not a list of packages",
                evidence=f"it is {found.description}",
                hint=f"add --base {quote(file)}; to convert it alone: argosy images pull {quote(file)} -o IMAGE",
            )


def apply_project_file(request: BuildRequest, host: Host, example: str = "argosy build {} -o my.sif") -> BuildRequest:
    """Fill in missing values from a project file: the one among the sources, or without sources that of this folder.

    For a lock without sources, the project file of this folder only names the output.

    Parameters
    ----------
    example
        The command with a file for ``{}``, for the hint if there is nothing to build.

    Raises
    ------
    UsageError
        If a project file is given with other sources, nothing is given and this folder has no project file, or a
        Dockerfile is named without its folder.
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


def _request_here(request: BuildRequest, host: Host, example: str) -> BuildRequest:
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
            hint=f"for example: {example.format(find_environment_file(Path(host.cwd)) or 'environment.yml')}",
        )
    return request_of_project(project, request)


def request_of_project(project: Project, request: BuildRequest) -> BuildRequest:
    """Complete a request with a project file, whose paths are relative to its folder.

    Raises
    ------
    UsageError
        If neither the file nor the request contains anything to build.
    """
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

    Raises
    ------
    UsageError
        If several bases are given, or a configuration file is not valid.
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


def resolve_build_request(
    sources: Sequence[str], output: Path | None, given: Mapping[str, Any], host: Host
) -> BuildRequest:
    """Return the request of these options, completed by the project file that they name or that is in this folder.

    Raises
    ------
    UsageError
        If several bases are given, or nothing to build is given and there is no project file.
    """
    asked = make_build_request(sources, output, given, host.environment)
    bundle = given.get("bundle")
    request = asked
    if asked.sources or not (sources or bundle):  # an image or a bundle alone needs no project file
        request = apply_project_file(asked, host)
    return replace(request, base=asked.base, bundle=Path(bundle)) if bundle else request


def resolve_target_session(request: BuildRequest, session: Session, site: Site | None, lock: Lock | None) -> Session:
    """Return a session for the architecture that the image is for: the requested one, or that of the lock or the site.

    Raises
    ------
    UsageError
        If the architecture is unknown, or is not the site's.
    CheckFailed
        If this machine cannot run programs for it.
    """
    host = session.host
    locked = machine_named(lock.base.arch) if lock else ""
    asked, there = _architecture(request.arch) or locked, site.node.architecture if site else ""
    if site and asked and there and asked != there:
        raise UsageError(f"--arch is {asked}, but {site.name} is {there}", hint="remove --arch")
    wanted = asked or there or host.arch
    try:
        aimed_at = emulating(host, wanted)
    except CheckFailed as error:
        if site and not asked:
            error.what = f"{site.name} is {there}: {error.what}"
            error.hint += "; --on-node --dry-run shows the plan from here"
        raise
    if aimed_at.emulated:
        session.reporter.note(f"programs for {wanted} run in an emulator on this machine, which is slow")
    return replace(session, host=aimed_at)


def _architecture(word: str) -> str:
    machine = machine_named(word)
    if machine and machine not in MACHINES.values():
        raise UsageError(f"unknown architecture {word!r}", hint=f"use one of {', '.join(sorted(MACHINES.values()))}")
    return machine


def _suggest_site_bases(request: BuildRequest, site: Site | None, session: Session) -> None:
    """Report the bases in the site's profile if the request uses the default base."""
    if request.default_base and site and site.images.bases:
        lines = (f"bases of {site.name}, alternatives to {request.base}: --base NAME", *render_bases(site.images.bases))
        session.reporter.note("\n  ".join(lines))
