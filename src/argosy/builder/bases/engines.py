"""Let the engine that owns a format build it; what it made becomes a base like any other.

apptainer or singularity build a definition file; buildah, podman or docker a Dockerfile.  No format is read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from argosy.builder.bases.definitions import HEREDOC, Format, definition_format, dockerfile_in, read_definition
from argosy.core.errors import ToolFailed, ToolMissing, UsageError
from argosy.core.process import Argv, Command, run_checked
from argosy.core.session import Session, Step
from argosy.images.open import GO_ARCH
from argosy.images.registry.docker_store import daemon_hint
from argosy.images.registry.skopeo import explain_pull

RUNTIMES = ("apptainer", "singularity")
BUILDERS = ("buildah", "podman", "docker")
STORE = "containers-storage:"
"""How the store that buildah and podman share is called, by them and by skopeo."""

NO_OWNERS = re.compile(r"failed to change uid and gids|created \d+ sockets[^$]*: exit status 2")
"""What unsquashfs says, below Apptainer, where a user namespace maps one user: it can make neither the files of others
nor device nodes."""

NEEDS_SUB_USERS = (
    "without root, a base with files of several owners or with device nodes needs newuidmap, and a range for you in "
    "/etc/subuid and /etc/subgid: ask for them, or build where you have them"
)

NO_HEREDOC = "Unknown instruction"
HEREDOC_HINT = (
    "here-documents (RUN <<EOF) came with buildah 1.33 and podman 4.8, and this one is older: "
    "write the lines with && after one RUN"
)
"""github.com/containers/buildah, release notes of 1.33, read 2026-11."""

ARCHIVE = "image.tar"


class EngineOptions(msgspec.Struct, frozen=True):
    """What an engine is told beside the file.

    Attributes
    ----------
    arguments
        Build arguments, ``NAME=VALUE``.
    dockerfile
        The Dockerfile of a context, where it has not the usual name.
    no_cache
        Whether every instruction is carried out anew.
    """

    arguments: tuple[str, ...] = ()
    dockerfile: str = ""
    no_cache: bool = False

    def __post_init__(self) -> None:
        """Refuse an argument without a name."""
        for argument in self.arguments:
            if argument.startswith("=") or "=" not in argument:
                raise UsageError(f"{argument!r} is no build argument", hint="write --build-arg NAME=VALUE")


class EngineOutput(msgspec.Struct, frozen=True):
    """What an engine made.

    Attributes
    ----------
    how
        The engine, and why that one.
    """

    file: Path
    how: str


def run_definition(
    path: Path, options: EngineOptions, session: Session, work: Path, step: Step | None = None
) -> EngineOutput:
    """Build a definition file and give the SIF file.

    Raises
    ------
    ToolMissing, ToolFailed, UsageError
        When no engine is here, it fails (its last lines are the evidence), or the file holds an unknown section.
    """
    engine = _engine_of(path, Format.DEFINITION, session)
    out = work / "defined.sif"
    # Apptainer takes the rootless way itself; SingularityCE has to be told.
    fake = ("--fakeroot",) if engine == "singularity" and session.host.person.uid != 0 else ()
    arguments = _arguments(options, "--arch", session)
    command = Command(
        (engine, "build", "--disable-cache", *fake, *arguments, str(out), str(path.absolute())),
        cwd=session.host.cwd,
        env=_outside(session) | {f"{name.upper()}_TMPDIR": str(work) for name in RUNTIMES},
        joined=True,
    )
    hint = "its last lines say which section failed"
    try:
        _run(command, session, step, f"building {path.name} by {engine}", hint)
    except ToolFailed as error:
        if NO_OWNERS.search(error.evidence):
            error.hint = NEEDS_SUB_USERS
        error.hint = explain_pull(error.evidence) or error.hint
        raise
    return EngineOutput(out, _why(engine, RUNTIMES, session))


def run_dockerfile(
    path: Path, options: EngineOptions, session: Session, work: Path, step: Step | None = None
) -> EngineOutput:
    """Build a Dockerfile, or the one of a context, and give the image as an archive.

    Raises
    ------
    ToolMissing, ToolFailed, UsageError
        As `run_definition`.
    """
    context, file = _context(path, options, session)
    engine = _engine_of(file, Format.DOCKERFILE, session)
    told = work / "image-id"
    arguments = _arguments(options, "--platform", session)
    # docker keeps the container of an instruction that fails unless it is told not to.
    own = ("--force-rm",) if engine == "docker" else _isolation(session)
    # buildah keeps no layers unless it is told to, the others do.
    cache = ("--no-cache",) if options.no_cache else (("--layers",) if engine == "buildah" else ())
    words = (engine, "build", *own, *cache, *arguments, "--iidfile", str(told), "-f", str(file), str(context))
    command = Command(words, cwd=session.host.cwd, env=_outside(session), joined=True)
    try:
        _run(command, session, step, f"building {file.name} by {engine}", "its last lines say which instruction failed")
    except ToolFailed as error:
        if NO_HEREDOC in error.evidence and HEREDOC.search(file.read_text(errors="replace", encoding="utf-8")):
            error.hint = HEREDOC_HINT
        error.hint = daemon_hint(error.evidence) or explain_pull(error.evidence) or error.hint
        raise
    image = told.read_text(encoding="utf-8").strip().removeprefix("sha256:")
    return EngineOutput(_save(engine, image, session, work), _why(engine, BUILDERS, session))


def describe_expected_engine(reference: str, options: EngineOptions, session: Session, *, here: bool) -> str:
    """Say by what a base would be made; which engines another machine has is not known.

    Raises
    ------
    ToolMissing, UsageError
        As the making does before it begins.
    """
    path = Path(reference)
    if reference.startswith(STORE):
        return "taken out of podman's store first"
    kind = definition_format(path, options.dockerfile) or Format.DOCKERFILE
    file = path if kind is Format.DEFINITION else _context(path, options, session)[1]
    if not here:
        read_definition(file, kind)
        return "built first, by the engine that is there"
    return f"built first, by {_engine_of(file, kind, session)}"


def _engine_of(file: Path, kind: Format, session: Session) -> str:
    """Look a description through, and choose who builds it."""
    read_definition(file, kind)
    engines, made = (RUNTIMES, "base.sif") if kind is Format.DEFINITION else (BUILDERS, "image.tar")
    return _find(engines, f"{file.name} is a {kind}", made, file, session)


def _arguments(options: EngineOptions, architecture: str, session: Session) -> Iterator[str]:
    """Give the build arguments, and for machines of another architecture the option that names it."""
    name = GO_ARCH.get(session.host.emulated, session.host.emulated)
    if name:
        yield from (architecture, f"linux/{name}" if architecture == "--platform" else name)
    for argument in options.arguments:
        yield from ("--build-arg", argument)


def _context(path: Path, options: EngineOptions, session: Session) -> tuple[Path, Path]:
    if path.is_dir():
        file = Path(session.host.cwd, options.dockerfile) if options.dockerfile else dockerfile_in(path)
        if file is None or not file.is_file():
            raise UsageError(f"there is no file {file or path / 'Dockerfile'}", hint="name the Dockerfile with -f")
        return path.absolute(), file.absolute()
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint="check the path")
    return path.absolute().parent, path.absolute()


def _why(engine: str, engines: Argv, session: Session) -> str:
    """Say which engine built, as whom, and which ones come before it and are not here."""
    missing = [f"no {name}" for name in engines[: engines.index(engine)]]
    person = "as root" if session.host.person.uid == 0 else "without root"
    return f"built by {engine} {person} ({', '.join(['it is here', *missing])})"


def run_export(name: str, session: Session, work: Path) -> EngineOutput:
    """Take an image out of the store of podman and buildah, and give the archive.

    Raises
    ------
    ToolMissing, ToolFailed
        When neither is here, or there is no such image.
    """
    engine = next((engine for engine in BUILDERS[:2] if engine in session.host.programs), None)
    if engine is None:
        raise ToolMissing(
            f"{STORE}{name} lies in podman's store, and neither podman nor buildah is here",
            hint="where podman is: podman save --format oci-archive -o image.tar NAME; then give the file",
        )
    return EngineOutput(_save(engine, name, session, work), f"taken out of the store by {engine}")


def _save(engine: str, image: str, session: Session, work: Path) -> Path:
    """Write an image of an engine's store into an archive."""
    out = work / ARCHIVE
    rows: dict[str, Argv] = {
        "buildah": ("buildah", "push", "--quiet", image, f"oci-archive:{out}"),
        "podman": ("podman", "save", "--quiet", "--format", "oci-archive", "-o", str(out), image),
        # The bare digits are no name where docker keeps its images in containerd's store.
        "docker": ("docker", "save", "-o", str(out), f"sha256:{image}"),
    }
    command = Command(rows[engine], env=_outside(session))
    run_checked(
        session.runner, command, doing=f"taking {image[:64]} out of {engine}'s store", hint=f"see '{engine} images'"
    )
    return out


def _find(engines: Argv, what: str, made: str, path: Path, session: Session) -> str:
    engine = next((name for name in engines if name in session.host.programs), None)
    if engine is not None:
        return engine
    elsewhere = (
        f"apptainer build {made} {path.name}" if engines is RUNTIMES else f"docker build + docker save -o {made}"
    )
    raise ToolMissing(
        f"{what}, and nothing here builds those",
        evidence="\n".join(f"{name}: not found" for name in engines),
        hint=f"install {engines[0]}; or build it where one of them is ({elsewhere}), and give --base {made}",
    )


def _isolation(session: Session) -> Argv:
    """Give the options by which an engine needs neither an OCI runtime nor cgroups: a login node has neither."""
    return () if session.host.environment.get("BUILDAH_ISOLATION") else ("--isolation", "chroot")


def _outside(session: Session) -> dict[str, str]:
    """Keep the settings of the engines' own, and take away what would reach into the build."""
    binds = ("APPTAINER_BIND", "SINGULARITY_BIND", "APPTAINERENV_", "SINGULARITYENV_", "LD_LIBRARY_PATH", "LD_PRELOAD")
    return {name: value for name, value in session.host.environment.items() if not name.startswith(binds)}


def _run(command: Command, session: Session, step: Step | None, doing: str, hint: str) -> None:
    run_checked(session.runner, command, doing=doing, hint=hint, on_line=step.say if step else None)
