"""Build definition files with apptainer or singularity, and Dockerfiles with buildah, podman or docker.

The result is used as a base.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import msgspec

from argosy.builder.bases.definitions import (
    Format,
    base_images,
    definition_format,
    dockerfile_in,
    first_heredoc,
    refuse_invalid_definition,
    stage_names,
)
from argosy.core.errors import ArgosyError, ToolFailed, ToolMissing, UsageError
from argosy.core.model import APPTAINERS
from argosy.core.process import Argv, Command
from argosy.core.session import Session, Step
from argosy.core.tool_errors import run_checked
from argosy.host.architectures import go_arch
from argosy.images.registry.fetch import daemon_hint
from argosy.images.registry.references import parse_reference
from argosy.images.registry.skopeo import explain_pull, is_insecure, parse_insecure

BUILDERS = ("buildah", "podman", "docker")
STORE = "containers-storage:"
"""The store that buildah and podman share, as they and skopeo write it."""

NO_OWNERS = re.compile(r"failed to change uid and gids|created \d+ sockets[^$]*: exit status 2")
"""Output of unsquashfs, called by Apptainer, in a user namespace that maps one user: it cannot create files of other
users or device nodes."""

NEEDS_SUB_USERS = (
    "without root, a base with device nodes or files of several users needs newuidmap and your entries in /etc/subuid "
    "and /etc/subgid: ask your administrator for them, or build on another machine"
)

FROM_AN_IMAGE = "write 'Bootstrap: docker' and an image of a registry, for example 'From: debian:12'"
BOOTSTRAPS = (
    (r"no library client", f"apptainer knows no library by default: {FROM_AN_IMAGE}; or 'apptainer remote add' one"),
    (
        r"(?i)conveyor failed to get: [^\n]* in path",
        f"install the program that the bootstrap needs, or {FROM_AN_IMAGE}",
    ),
)
"""Messages of Apptainer about the first line of a definition file, with a hint for each."""

HEREDOCS = {"buildah": (1, 33), "podman": (4, 8)}
"""The first versions that read here-documents; docker hands this to BuildKit."""
HEREDOC_HINT = "here-documents (RUN <<EOF) need buildah 1.33 or podman 4.8: join the lines with && after one RUN"
"""github.com/containers/buildah, release notes of 1.33, read 2026-11."""

SHORT_NAME = re.compile(r'short-name (?:"(?P<name>[^"]+)" did not resolve|resolution enforced but cannot prompt)')
"""Messages of buildah and podman about an image without a registry; for docker, such an image is of docker.io."""

UNUSED_ARGUMENTS = re.compile(r"(?i)one or more build.args(?: \[([^\]]+)\])? were not consumed(?:: \[([^\]]+)\])?")
"""Warning of buildah, podman and docker about misspelt build arguments."""

KEEPS_CACHE = re.compile(r"--mount=\S*type=cache")
"""Steps with a cache, which buildah keeps in its temporary folder from build to build."""

NOT_TRUSTED = re.compile(r"CERTIFICATE_VERIFY_FAILED")
PIP_CERTIFICATE = (
    "steps of a Dockerfile do not get the certificates of this machine; Argosy's own installation does: remove the "
    "step, and list the packages in a file: argosy build {} requirements.txt"
)

NO_BUILDX = "the buildx component is missing"
BUILDX_HINT = "install docker-buildx, or unset DOCKER_BUILDKIT: docker then uses its older builder"

COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""Apptainer's helper colours its messages also in a pipe."""

ARCHIVE = "image.tar"
"""The archive that an engine builds, and the name that hints suggest for one."""


class EngineOptions(msgspec.Struct, frozen=True):
    """Options for an engine."""

    arguments: tuple[str, ...] = ()
    """Build arguments, ``NAME=VALUE``, or ``NAME`` for the value in the environment."""
    dockerfile: str = ""
    """The Dockerfile of a context, if it has another name."""
    no_cache: bool = False
    """Whether to ignore the engine's cache."""

    def __post_init__(self) -> None:
        """Refuse an argument without a name."""
        for argument in self.arguments:
            if not argument or argument.startswith("="):
                raise UsageError(f"invalid build argument {argument!r}", hint="use --build-arg NAME=VALUE")


class EngineOutput(msgspec.Struct, frozen=True):
    """The result of an engine."""

    file: Path
    how: str
    """The engine, and why it was chosen."""


def run_definition(
    path: Path, options: EngineOptions, session: Session, work: Path, step: Step | None = None
) -> EngineOutput:
    """Build a definition file and return the SIF file."""
    engine = _engine_of(path, Format.DEFINITION, session)
    out = work / "defined.sif"
    # Apptainer uses --fakeroot by itself; SingularityCE needs the option.
    fake = ("--fakeroot",) if engine == "singularity" and session.host.person.uid != 0 else ()
    arguments = (*_without_tls(path, "--no-https", session), *_arguments(options, "--arch", session))
    command = Command(
        (engine, "build", "--disable-cache", *fake, *arguments, str(out), str(path.absolute())),
        cwd=session.host.cwd,
        env=_outside(session) | {f"{name.upper()}_TMPDIR": str(work) for name in APPTAINERS},
        joined=True,
    )
    hint = "the last lines show the section that failed"
    try:
        _run(command, session, step, f"building {path.name} with {engine}", hint)
    except ToolFailed as error:
        if NO_OWNERS.search(error.evidence) and session.host.person.uid != 0:
            error.hint = NEEDS_SUB_USERS
        bootstrap = next((hint for pattern, hint in BOOTSTRAPS if re.search(pattern, error.evidence)), "")
        error.hint = bootstrap or explain_pull(error.evidence) or error.hint
        raise
    return EngineOutput(out, _why(engine, APPTAINERS, session))


def run_dockerfile(
    path: Path, options: EngineOptions, session: Session, work: Path, step: Step | None = None
) -> EngineOutput:
    """Build a Dockerfile, or that of a context, and return the image as an archive."""
    context, file = _context(path, options, session)
    engine = _engine_of(file, Format.DOCKERFILE, session)
    id_file = work / "image-id"
    arguments = _arguments(options, "--platform", session)
    own = () if engine == "docker" else (*_choices(session), *_without_tls(file, "--tls-verify=false", session))
    # Only buildah needs an option to cache layers.
    cache = ("--no-cache",) if options.no_cache else (("--layers",) if engine == "buildah" else ())
    # By default, buildah and docker keep the container of a failed instruction.
    argv = (engine, "build", "--force-rm", *own, *cache, *arguments, "--iidfile", str(id_file))
    argv = (*argv, "-f", str(file), str(context))
    keeps = KEEPS_CACHE.search(file.read_text(encoding="utf-8", errors="replace"))
    temporary = {} if keeps else _temporary(engine, work, session)
    command = Command(argv, cwd=session.host.cwd, env=_outside(session) | temporary, joined=True)
    try:
        output = _run(
            command,
            session,
            step,
            f"building {file.name} with {engine}",
            "the last lines show the instruction that failed",
        )
    except ToolFailed as error:
        if NO_BUILDX in error.evidence:
            error.hint = BUILDX_HINT
        certificate = PIP_CERTIFICATE.format(file.name) if NOT_TRUSTED.search(error.evidence) else ""
        pulled = explain_pull(error.evidence, use="FROM oci-archive:PATH/base.tar")
        hints = (daemon_hint(error.evidence), _hint_for_short_name(error.evidence, file), certificate, pulled)
        error.hint = next(filter(None, hints), error.hint)
        raise
    if unused := UNUSED_ARGUMENTS.search(output):
        session.reporter.note(f"{file.name} does not use the build argument {unused[1] or unused[2]}")
    image = id_file.read_text(encoding="utf-8").strip().removeprefix("sha256:")
    return EngineOutput(_save(engine, image, session, work), _why(engine, BUILDERS, session))


def _hint_for_short_name(evidence: str, file: Path) -> str:
    """Return the hint for an image whose registry buildah and podman do not know; empty for other failures."""
    found = SHORT_NAME.search(evidence)
    if found is None:
        return ""
    name = found["name"] or ""
    if stage := next((each for each in stage_names(file) if each.lower() == name.lower()), ""):
        return f"buildah and podman distinguish upper and lower case in names of stages: write 'FROM {stage}'"
    whole = f"docker.io/{name if '/' in name else f'library/{name}'}" if name else "docker.io/NAME"
    return (
        f"only docker takes an image without a registry from docker.io: write '{whole}' in {file.name}, or the line "
        'unqualified-search-registries = ["docker.io"] into ~/.config/containers/registries.conf'
    )


def _refuse_heredocs(file: Path, engine: str, session: Session) -> None:
    """Refuse a Dockerfile with here-documents if the engine is too old for them.

    The engine would fail only when it arrives there, with messages that differ with the lines of the here-document.
    """
    row = first_heredoc(file) if engine in HEREDOCS else None
    if row is None:
        return
    version = re.search(r"\bversion (\d+)\.(\d+)", session.runner.run(Command((engine, "--version"))).stdout)
    if version is not None and (int(version[1]), int(version[2])) < HEREDOCS[engine]:
        raise ToolMissing(
            f"{engine} {version[1]}.{version[2]} is too old for {file.name}",
            evidence=f"{file}:{row.number}: {row.line}",
            hint=HEREDOC_HINT,
        )


def describe_expected_engine(reference: str, options: EngineOptions, session: Session, *, here: bool) -> str:
    """Describe which engine would provide a base; the engines of another machine are unknown."""
    path = Path(reference)
    if reference.startswith(STORE):
        return "exported from podman's store first"
    kind = definition_format(path, options.dockerfile) or Format.DOCKERFILE
    file = path if kind is Format.DEFINITION else _context(path, options, session)[1]
    if not here:
        refuse_invalid_definition(file, kind)
        return "built first, with the engine of that machine"
    return f"built first, with {_engine_of(file, kind, session)}"


def _engine_of(file: Path, kind: Format, session: Session) -> str:
    """Check a definition file or Dockerfile, and choose the engine that builds it."""
    refuse_invalid_definition(file, kind)
    engines, made = (APPTAINERS, "base.sif") if kind is Format.DEFINITION else (BUILDERS, ARCHIVE)
    engine = _find(engines, f"the {kind} {file.name}", made, file, session)
    if kind is Format.DOCKERFILE:
        _refuse_heredocs(file, engine, session)
    return engine


def _arguments(options: EngineOptions, architecture: str, session: Session) -> Iterator[str]:
    """Return the build arguments, and the option for another architecture."""
    name = go_arch(session.host.emulated)
    if name:
        yield from (architecture, f"linux/{name}" if architecture == "--platform" else name)
    for argument in options.arguments:
        name, given, _ = argument.partition("=")
        # Apptainer needs a value. Without one in the environment, docker uses the default of the file.
        if given or name in session.host.environment:
            yield from ("--build-arg", argument if given else f"{name}={session.host.environment[name]}")


def _without_tls(file: Path, option: str, session: Session) -> Argv:
    """Return the engine's option to use registries without TLS, if the user allows it for the registry of each base."""
    insecure = parse_insecure(session.host.environment)
    images = base_images(file) if insecure else ()
    with suppress(UsageError):  # a name with a variable, or a file
        references = [parse_reference(f"docker://{image}") for image in images]
        if references and all(is_insecure(each, insecure) for each in references):
            return (option,)
    return ()


def _context(path: Path, options: EngineOptions, session: Session) -> tuple[Path, Path]:
    if path.is_dir():
        file = Path(session.host.cwd, options.dockerfile) if options.dockerfile else dockerfile_in(path)
        if file is None or not file.is_file():
            check = "check the path after -f; it is relative to the current folder"
            hint = check if options.dockerfile else "pass the Dockerfile with -f"
            raise UsageError(f"{file or path / 'Dockerfile'} does not exist", hint=hint)
        return path.absolute(), file.absolute()
    if not path.is_file():
        raise UsageError(f"{path} does not exist", hint="check the path")
    return path.absolute().parent, path.absolute()


def _why(engine: str, engines: Argv, session: Session) -> str:
    """Describe which engine built, as which user, and which preferred engines are missing."""
    missing = [f"no {name}" for name in engines[: engines.index(engine)]]
    person = "as root" if session.host.person.uid == 0 else "without root"
    why = f" ({', '.join(missing)})" if missing else ""
    return f"built with {engine} {person}{why}"


def run_export(name: str, session: Session, work: Path) -> EngineOutput:
    """Export an image from the store of podman and buildah to an archive."""
    engine = next((engine for engine in BUILDERS[:2] if engine in session.host.programs), None)
    if engine is None:
        raise ToolMissing(
            f"cannot read {STORE}{name}: neither podman nor buildah is installed",
            hint="on a machine with podman: podman save --format oci-archive -o image.tar NAME; then use the file",
        )
    return EngineOutput(_save(engine, name, session, work), f"exported from the store with {engine}")


def _save(engine: str, image: str, session: Session, work: Path) -> Path:
    """Export an image from an engine's store to an archive."""
    out = work / ARCHIVE
    rows: dict[str, Argv] = {
        "buildah": ("buildah", "push", "--quiet", image, f"oci-archive:{out}"),
        "podman": ("podman", "save", "--quiet", "--format", "oci-archive", "-o", str(out), image),
        # With containerd's image store, docker does not accept the digits without sha256:.
        "docker": ("docker", "save", "-o", str(out), f"sha256:{image}"),
    }
    command = Command(rows[engine], env=_outside(session) | _temporary(engine, work, session))
    run_checked(
        session.runner, command, doing=f"exporting {image[:64]} from {engine}'s store", hint=f"see '{engine} images'"
    )
    return out


def _find(engines: Argv, what: str, made: str, path: Path, session: Session) -> str:
    engine = next((name for name in engines if name in session.host.programs), None)
    if engine is not None:
        return engine
    elsewhere = (
        f"apptainer build {made} {path.name}" if engines is APPTAINERS else f"docker build + docker save -o {made}"
    )
    raise ToolMissing(
        f"cannot build {what}: no engine is installed",
        evidence="\n".join(f"{name}: not found" for name in engines),
        hint=f"install {engines[0]}; or build it on another machine ({elsewhere}), and use --base {made}",
    )


def _choices(session: Session) -> Argv:
    """Return options of buildah and podman, without those that a variable of the user sets.

    ``chroot`` avoids an OCI runtime and cgroups, which login nodes often do not have. The format ``docker`` is needed
    for the instructions SHELL and ONBUILD: in their own format, OCI, both engines ignore these with a warning.
    """
    rows = (("BUILDAH_ISOLATION", "--isolation", "chroot"), ("BUILDAH_FORMAT", "--format", "docker"))
    return tuple(chain.from_iterable(row[1:] for row in rows if not session.host.environment.get(row[0])))


def _outside(session: Session) -> dict[str, str]:
    """Return the environment of the engine, without variables that affect the build."""
    binds = ("APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINERENV_", "SINGULARITYENV_", "LD_LIBRARY_PATH", "LD_PRELOAD")
    return {name: value for name, value in session.host.environment.items() if not name.startswith(binds)}


def _temporary(engine: str, work: Path, session: Session) -> dict[str, str]:
    """Return the variable for a temporary folder of buildah or podman, which leave copies of images when they end.

    Without root and without XDG_RUNTIME_DIR, they derive the folder of their store's state from the same variable.
    """
    if engine == "docker" or (session.host.person.uid != 0 and not session.host.environment.get("XDG_RUNTIME_DIR")):
        return {}
    folder = work / "engine"
    folder.mkdir(exist_ok=True)
    return {"TMPDIR": str(folder)}


def _run(command: Command, session: Session, step: Step | None, doing: str, hint: str) -> str:
    try:
        reply = run_checked(session.runner, command, doing=doing, hint=hint, on_line=step.say if step else None)
    except ArgosyError as error:
        error.evidence = COLOUR.sub("", error.evidence)
        raise
    finally:
        _remove_runtime_folders(session)
    return reply.stdout + reply.stderr


def _remove_runtime_folders(session: Session) -> None:
    """Remove the folders that buildah and podman leave for a user without XDG_RUNTIME_DIR, if they are empty."""
    parent = Path(session.host.environment.get("TMPDIR") or "/tmp")  # noqa: S108 - as github.com/containers/storage does
    folder = parent / f"containers-user-{session.host.person.uid}"
    for empty in (folder / "containers", folder):
        with suppress(OSError):
            empty.rmdir()
