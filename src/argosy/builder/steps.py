"""Run the steps, stages and scripts of a recipe in the base, as root or simulated root.

The upper layer of an overlay collects changes outside ``/opt/argosy``, which become part of the image's layer.  A
removed file becomes a whiteout, which overlays understand.

Programs get the caller's proxies and certificates, so that they reach the network as the caller.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.builder.backends.container import OWN_FOLDER, BuildContainer, find_build_container
from argosy.builder.backends.writable_copy import (
    apply_changes,
    complete_changes,
    drop_mount_points,
    gather_changes,
    move_changes,
)
from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.downloads import fetch_file
from argosy.builder.inputs import refuse_other_stage
from argosy.builder.python.base_python import hold_line
from argosy.core.errors import ArgosyError, CheckFailed, UsageError
from argosy.core.layout import APT_AS_ROOT, DEFAULT_PATH, ENV_PREFIX, ENV_SCRIPT, ROOT
from argosy.core.model import Bind, Choice
from argosy.core.process import Command, Reply
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.core.store import remove_path
from argosy.core.tool_errors import LAST_LINES
from argosy.images.rootfs import find_link, locate_in_root
from argosy.recipes.lock import Lock
from argosy.recipes.pip_settings import CERTIFICATE_VARIABLES, PROXY_VARIABLES
from argosy.recipes.project_file import Project, StageTable, StepTable, words

PROXIES = tuple(name for low in PROXY_VARIABLES for name in (low, low.upper()))
CERTIFICATES = (*CERTIFICATE_VARIABLES, "SSL_CERT_DIR", "PIP_CERT", "GIT_SSL_CAINFO", "NODE_EXTRA_CA_CERTS")
"""Variables that name a file or folder of certificates: of OpenSSL, requests, curl, pip, git and Node.js."""

CERTIFICATES_INSIDE = f"{OWN_FOLDER}certificates/"

SCRIPTS = Path(__file__).with_name("scripts")

COPY_SOURCE = "/.argosy/copy"
"""Mount point of a file of the project while it is copied."""

RESULTS = "/.argosy/results"
STAGE_FOLDER = "/build"

COPY = (SCRIPTS / "copy.sh").read_text(encoding="utf-8")

APT_INSIDE = "/.argosy/apt.conf"
QUIET = (("DEBIAN_FRONTEND", "noninteractive"), ("APT_CONFIG", APT_INSIDE))
CHOWN_ALL = "find / -xdev ! -user 0 -exec chown -h 0 {} +"

NO_LISTS = "E: Unable to locate package"


def _with_network(build_container: BuildContainer) -> tuple[BuildContainer, dict[str, str]]:
    """Mount the caller's certificates; return the container and the variables of its proxies and certificates."""
    host = build_container.session.host
    given = {name: value for name in (*PROXIES, *CERTIFICATES) if (value := host.environment.get(name))}
    files = {name: str(Path(host.cwd, given[name])) for name in CERTIFICATES if name in given}
    there = [path for path in dict.fromkeys(files.values()) if Path(path).exists()]
    inside = {path: f"{CERTIFICATES_INSIDE}{number}/{Path(path).name}" for number, path in enumerate(there)}
    variables = {name: inside.get(files.get(name, ""), value) for name, value in given.items()}
    return build_container.with_mounts(*(Bind(path, inside[path], read_only=True) for path in there)), variables


class StageResult(msgspec.Struct, frozen=True):
    """A result of a stage: its file on this machine, and its path in the image."""

    file: Path
    target: str
    where: str


def has_steps(project: Project | None) -> bool:
    """Return whether a project has steps or stages."""
    return project is not None and bool(project.table.step or project.table.stage)


@contextmanager
def open_changes(build_container: BuildContainer, work: Path, tree: Path) -> Iterator[BuildContainer]:
    """Open the container so that changes are kept in ``work/changes``, with the layer mounted at its final path.

    At the end, all files belong to the user who builds.  In a namespace with several users, some files belong to
    subordinate users, and only these could remove them.

    Parameters
    ----------
    tree
        The layer so far; the layer of an Argosy base may contain system folders.
    """
    apt, own = work / "apt.conf", tree / ROOT.lstrip("/")
    apt.write_text(APT_AS_ROOT, encoding="utf-8")
    own.mkdir(parents=True, exist_ok=True)
    _seed_changes(work, tree)
    if build_container.copy:
        apply_changes(work / "changes/up", build_container.copy.tree)
    try:
        yield build_container.with_mounts(Bind(str(apt), APT_INSIDE, read_only=True), Bind(str(own), ROOT))
    finally:
        if build_container.copy:
            build_container.run("/bin/sh", "-c", CHOWN_ALL)


def run_steps(build_container: BuildContainer, project: Project, session: Session, step: Step, *, before: bool) -> None:
    """Run the steps that come before or after the packages, in order."""
    for number, each in enumerate(project.table.step):
        if (each.before == "packages") is not before:
            continue
        step.say(f"step {number + 1}: {_describe_step(each)}")
        if each.fetch:
            file = fetch_file(each.fetch.url, each.fetch.sha256, session, project.where("step", number, "fetch"))
            name = each.to if not each.to.endswith("/") else f"{each.to}{each.fetch.url.rstrip('/').rpartition('/')[2]}"
            _copy_in(build_container, file, name, project.where("step", number, "fetch"), step)
        for word in words(each.copy):
            source = project.file_of(word, "step", number)
            _copy_in(build_container, source, each.to, project.where("step", number, "copy"), step)
        for line in words(each.run):
            _run_line(build_container, line, project.where("step", number, "run"), step)


def _describe_step(step: StepTable) -> str:
    return step.fetch.url if step.fetch else (words(step.run) or words(step.copy))[0]


def _copy_in(build_container: BuildContainer, source: Path, target: str, where: str, step: Step) -> None:
    """Copy a file or folder of this machine into the container."""
    inside = f"{COPY_SOURCE}/{source.name}"
    reply = build_container.with_mounts(Bind(str(source), inside, read_only=True)).run(
        *("/bin/sh", "-c", COPY, "sh", inside, target), on_line=step.say
    )
    if reply.code != 0:
        raise _failed(build_container, reply, f"cp {source.name} {target}", where)


def _run_line(build_container: BuildContainer, line: str, where: str, step: Step, *, folder: str = "/") -> None:
    """Run a line with the container's shell, in the environment of the image so far."""
    # One stream for both outputs keeps the messages of a failing program in order.
    activate = f"[ ! -r {ENV_SCRIPT} ] || . {ENV_SCRIPT}"
    script = f"exec 1>&2\numask 022\ncd {folder}\n{activate}\n{hold_line(build_container)}\n{line}\n"
    container, network = _with_network(build_container)
    reply = container.run("/bin/sh", "-euc", script, variables=(*network.items(), *QUIET), on_line=step.say)
    if reply.code != 0:
        raise _failed(build_container, reply, line, where)


def _failed(build_container: BuildContainer, reply: Reply, line: str, where: str) -> ArgosyError:
    """Return the error of a failed step: its place in the file, and its last output."""
    error = build_container.failure(("sh", "-c", line), reply, doing=f"the step in {where}")
    said = reply.stderr.strip().splitlines()[-LAST_LINES:]
    error.evidence = "\n".join((f"{where}: {line}", *said, f"(exit code {reply.code})"))
    if not isinstance(error, CheckFailed):
        more = build_container.where_all_is(reply)
        error.hint = f"run the line in 'argosy shell --contain BASE' to test it; {more}"
    if NO_LISTS in reply.stderr and "apt-get update" not in line:
        error.hint = "the base has no Debian package lists; start the line with: apt-get update &&"
    return error


class StageResults(msgspec.Struct, frozen=True):
    """The results of all stages, and the base of each stage by its name."""

    results: tuple[StageResult, ...] = ()
    bases: Mapping[str, Base] = msgspec.field(default_factory=dict)


class StageContext(msgspec.Struct, frozen=True):
    """The stages of a project, and what they run with."""

    project: Project
    lock: Lock | None
    """The lock that names their bases; None if the build chooses them."""
    session: Session
    work: Path
    step: Step
    uv: Path
    """The static uv, which tests whether a build backend works."""
    backends: tuple[Choice, ...]
    """The build backends to try, best first."""
    bases: Path | None = None
    """Folder of a bundle with the stages' bases by digest, or None."""


def run_stages(context: StageContext) -> StageResults:
    """Run each stage in its own base; with a lock, in the base that was locked."""
    results: list[StageResult] = []
    bases: dict[str, Base] = {}
    for number, stage in enumerate(context.project.table.stage):
        folder = context.work / f"stage-{number}"
        folder.mkdir()
        bases[stage.name] = base = _open_stage(context, stage, folder)
        results += _run_stage(context, number, stage, base, folder)
    return StageResults(tuple(results), bases)


def _open_stage(context: StageContext, stage: StageTable, folder: Path) -> Base:
    context.step.say(f"stage {stage.name}: {stage.base}")
    stages = context.lock.stages if context.lock else ()
    locked = next((each for each in stages if each.name == stage.name), None)
    path = context.project.folder / stage.base
    name = (locked.pinned if locked else "") or (str(path) if path.exists() else stage.base)
    if locked and context.bases:
        name = str(context.bases / name_of_digest(locked.digest))
    base = open_base(name, context.session, folder, options=EngineOptions(), step=context.step)
    refuse_other_stage(locked, base)
    return replace(base, reference=locked.pinned) if locked and locked.pinned else base


def name_of_digest(digest: str) -> str:
    """Return the file name of a stage's base in a bundle."""
    return digest.replace(":", "-")


def _run_stage(context: StageContext, number: int, stage: StageTable, base: Base, folder: Path) -> list[StageResult]:
    session = context.session
    build_container = find_build_container(session, base, context.uv, folder, context.backends, keep_changes=True)
    build, results = folder / "build", folder / "results"
    build.mkdir()
    results.mkdir()
    with open_changes(build_container, folder, folder / "layer") as changed:
        container = changed.with_mounts(Bind(str(build), STAGE_FOLDER), Bind(str(results), RESULTS))
        found = _work_in_stage(context, number, stage, container, results)
    session.reporter.note(
        f"stage {stage.name}: {_size(results) / 1e6:.1f} MB of results, "
        f"built in {stage.base} ({base.image.base_size / 1e6:.0f} MB)"
    )
    return found


def _work_in_stage(
    context: StageContext, number: int, stage: StageTable, container: BuildContainer, results: Path
) -> list[StageResult]:
    project, step = context.project, context.step
    for word in words(stage.copy):
        source = project.file_of(word, "stage", number)
        _copy_in(container, source, f"{STAGE_FOLDER}/", project.where("stage", number, "copy"), step)
    for line in words(stage.run):
        _run_line(container, line, project.where("stage", number, "run"), step, folder=STAGE_FOLDER)
    return [
        _copy_out(container, source, target, project.where("stage", number, "results"), results / str(index))
        for index, (source, target) in enumerate(stage.results.items())
    ]


def _size(folder: Path) -> int:
    """Return the bytes of a stage's results."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _copy_out(build_container: BuildContainer, source: str, target: str, where: str, out: Path) -> StageResult:
    """Copy a result of a stage to a new folder of this machine."""
    out.mkdir()
    inside = source if source.startswith("/") else f"{STAGE_FOLDER}/{source}"
    # -H copies the target of a link: mounting a link would mount a file of this machine.
    reply = build_container.run("cp", "-a", "-H", inside, f"{RESULTS}/{out.name}/")
    copied = "" if reply.code or out.is_symlink() else next(iter(os.listdir(out)), "")  # noqa: PTH208 - the name
    if not copied or (out / copied).is_symlink():
        raise CheckFailed(
            f"the stage did not create {source}",
            evidence=f"{where}: {reply.stderr.strip() or 'it is a symbolic link'}",
            hint=f"use an absolute path, or a path relative to {STAGE_FOLDER}, where the stage's lines run",
        )
    return StageResult(out / copied, target, where)


def copy_stage_results(build_container: BuildContainer, results: tuple[StageResult, ...], step: Step) -> None:
    """Copy the results of stages into the image."""
    for result in results:
        _copy_in(build_container, result.file, result.target, result.where, step)


def take_changes(build_container: BuildContainer, work: Path, tree: Path, base: Base, bound: Iterable[str]) -> bool:
    """Move changes outside the layer's own folder into the layer; return whether there were any.

    Raises
    ------
    UsageError
        If a step replaced a parent folder of the layer's own folder by a link, which would hide the environment.
    """
    upper = work / "changes/up"
    if build_container.copy:
        gather_changes(build_container.copy, upper, ignored=NO_CHANGES)
    for name in NO_CHANGES:
        path = locate_in_root(upper, name)
        if path.is_dir() and not path.is_symlink():
            remove_path(path)
    if link := find_link(upper, ROOT):
        raise UsageError(
            f"a step replaced /{link} by a symbolic link",
            evidence=f"/{link} -> {(upper / link).readlink()}",
            hint=f"keep /{link} a folder: the image's environment is in {ROOT}",
        )
    drop_mount_points(upper, bound)
    complete_changes(upper, lambda folder: _entries_of(folder, base, build_container.session))
    return move_changes(upper, tree)


def _entries_of(folder: str, base: Base, session: Session) -> tuple[str, ...]:
    """List a folder of the base's squashfs without mounting it."""
    options = ("-no-progress", "-l", "-o", str(base.image.base_offset), "-d", "")
    reply = session.runner.run(Command(("unsquashfs", *options, base.image.path, folder)))
    below = (line.removeprefix(f"/{folder}/") for line in reply.stdout.splitlines() if line.startswith(f"/{folder}/"))
    return tuple(name for name in below if "/" not in name)


def _seed_changes(work: Path, tree: Path) -> None:
    """Move the system folders in the layer of an Argosy base to the changes, so that programs see them."""
    for entry in list(tree.iterdir()):
        if entry.name != "opt":
            entry.rename(work / "changes/up" / entry.name)
    below = [entry for entry in (tree / "opt").glob("*") if entry.name != "argosy"]
    for entry in below:
        (work / "changes/up/opt").mkdir(exist_ok=True)
        entry.rename(work / "changes/up/opt" / entry.name)


NO_CHANGES = (".argosy", "tmp", "dev", "proc", "sys", "run", "opt/argosy", "var/cache/apt", "var/lib/apt/lists")
"""Paths whose changes are discarded: Argosy's mount points, temporary folders, and apt's caches."""

FOLDER = "/.argosy/scripts"
CALLER_FOLDER = "/.argosy/here"
SETTINGS = ("PIP_", "UV_")
"""Begin of the names of the caller's variables that set where packages come from."""

TYKKY_VARIABLES = (("CW_INSTALLATION_PATH", ROOT), ("env_root", ENV_PREFIX))
"""Variables that scripts written for tykky use."""

RUN_SCRIPT = (SCRIPTS / "run-script.sh").read_text(encoding="utf-8")

ADVICE = (
    (re.compile(r"\b(?:conda|mamba): (?:command )?not found"),
     "images do not contain conda: list the packages in environment.yml, and build or update with it"),
    (re.compile(r"\bgit: (?:command )?not found"),
     "the base has no git: use one that has, for example --base debian:bookworm+git"),
)  # fmt: skip


def run_scripts(scripts: Iterable[Path], build_container: BuildContainer, layer: Path, step: Step) -> None:
    """Run scripts in order, with the environment's programs first on the PATH, in the caller's current folder."""
    for script in scripts:
        if not script.is_file():
            raise UsageError(f"there is no script {script}", hint="check the path")
        (layer / ROOT.lstrip("/")).mkdir(parents=True, exist_ok=True)
        inside = f"{FOLDER}/{script.name}"
        cwd = build_container.session.host.cwd
        here = (Bind(cwd, CALLER_FOLDER),) if Path(cwd).is_dir() else ()
        container, network = _with_network(build_container)
        container = container.with_mounts(
            Bind(str(layer / ROOT.lstrip("/")), ROOT), Bind(str(script.resolve()), inside, read_only=True), *here
        )
        step.say(f"running {script.name}")
        reply = container.run(
            *("/bin/sh", "-c", RUN_SCRIPT, "sh", CALLER_FOLDER if here else ROOT, inside, hold_line(build_container)),
            variables=_variables(build_container.session.host.environment, network),
            on_line=lambda line: step.say(line.strip()),
        )
        if reply.code != 0:
            hint = next((advice for pattern, advice in ADVICE if pattern.search(reply.stderr)), "")
            raise container.failure((script.name,), reply, doing=f"running {script}", hint=hint)


def _variables(environment: Mapping[str, str], network: dict[str, str]) -> tuple[tuple[str, str], ...]:
    settings = {name: value for name, value in environment.items() if name.startswith(SETTINGS)}
    own = (("PATH", f"{ENV_PREFIX}/bin:{DEFAULT_PATH}"), ("ARGOSY_PREFIX", ROOT), ("HOME", "/tmp"))  # noqa: S108 - inside
    return (*(settings | network).items(), *own, *TYKKY_VARIABLES)
