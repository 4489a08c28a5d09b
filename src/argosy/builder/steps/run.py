"""Carry out the steps and stages of a project file inside a base's root, as root or as what looks like it there.

What a step changes outside ``/opt/argosy`` is kept in a folder of its own (the upper layer of an overlay) and becomes
part of the image's layer; a file that it removes becomes a whiteout there, which overlays understand.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from argosy.builder.backends.container import BuildContainer, find_build_container
from argosy.builder.bases.base import Base, open_base
from argosy.builder.bases.engines import EngineOptions
from argosy.builder.bases.writable_base import apply_changes, gather_changes
from argosy.builder.downloads import fetch_file
from argosy.builder.python.protecting import hold_line
from argosy.builder.steps.changes import complete_changes, drop_mount_points, move_changes
from argosy.builder.steps.locks import refuse_other_stage
from argosy.core.errors import ArgosyError, CheckFailed
from argosy.core.layout import ENV_SCRIPT, ROOT
from argosy.core.model import Bind
from argosy.core.process import LAST_LINES, Command, Reply
from argosy.core.records import replace
from argosy.core.session import Session, Step
from argosy.recipes.lock import Lock, LockedStage
from argosy.recipes.project_tables import Project, StageTable, StepTable, words

BROUGHT = "/.argosy/brought"
"""Where a file of the project is seen inside while it is copied."""

TAKEN = "/.argosy/taken"
STAGE_FOLDER = "/build"

COPY = """\
set -eu
umask 022
case $2 in
*/) mkdir -p "$2" ;;
*) mkdir -p "$(dirname "$2")" ;;
esac
cp -a "$1" "$2"
"""

APT_INSIDE = "/.argosy/apt.conf"
QUIET = (("DEBIAN_FRONTEND", "noninteractive"), ("APT_CONFIG", APT_INSIDE))
"""apt gives up being root while it downloads, which only a machine with several users allows."""

GIVE_BACK = "find / -xdev ! -user 0 -exec chown -h 0 {} +"

NO_LISTS = "E: Unable to locate package"
APT = 'APT::Sandbox::User "root";\n'


class Result(msgspec.Struct, frozen=True):
    """What a stage made: where it lies now, and its path in the image."""

    file: Path
    target: str
    where: str


def has_steps(project: Project | None) -> bool:
    """Tell whether a project changes the image beside its packages."""
    return project is not None and bool(project.table.step or project.table.stage)


@contextmanager
def open_changes(build_container: BuildContainer, work: Path, tree: Path) -> Iterator[BuildContainer]:
    """Give a room that keeps changes in ``work/changes``, with the layer's own folder in its place.

    At the end all files belong to who builds: a namespace with more users than one gives some to others, who alone
    could remove them.

    Parameters
    ----------
    tree
        The layer as far as it is made: of an image of ours that serves as base it may hold a part of the system.
    """
    apt, own = work / "apt.conf", tree / ROOT.lstrip("/")
    apt.write_text(APT, encoding="utf-8")
    own.mkdir(parents=True, exist_ok=True)
    _seed_changes(work, tree)
    if build_container.copy:
        apply_changes(work / "changes/up", build_container.copy.tree)
    try:
        yield build_container.with_mounts(Bind(str(apt), APT_INSIDE, read_only=True), Bind(str(own), ROOT))
    finally:
        if build_container.copy:
            build_container.run("/bin/sh", "-c", GIVE_BACK)


def run_steps(build_container: BuildContainer, project: Project, session: Session, step: Step, *, before: bool) -> None:
    """Carry out the steps that come before or after the packages, in their order.

    Raises
    ------
    ToolFailed, UsageError, CheckFailed
        When a step fails (its last lines are the evidence), or names a file that is not there or not the right one.
    """
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
    """Say a step in a few words."""
    return step.fetch.url if step.fetch else (words(step.run) or words(step.copy))[0]


def _copy_in(build_container: BuildContainer, source: Path, target: str, where: str, step: Step) -> None:
    """Copy a file or folder of this machine into the room, by the room's own cp: it follows the base's links."""
    inside = f"{BROUGHT}/{source.name}"
    reply = build_container.with_mounts(Bind(str(source), inside, read_only=True)).run(
        *("/bin/sh", "-c", COPY, "sh", inside, target), on_line=step.say
    )
    if reply.code != 0:
        raise _failed(build_container, reply, f"cp {source.name} {target}", where)


def _run_line(build_container: BuildContainer, line: str, where: str, step: Step, *, folder: str = "/") -> None:
    """Run a line by the room's shell, in the environment of the image so far."""
    # Both streams in one: what a program says before it fails belongs together.
    activate = f"[ ! -r {ENV_SCRIPT} ] || . {ENV_SCRIPT}"
    script = f"exec 1>&2; umask 022; cd {folder}; {activate}\n{hold_line(build_container)}\n{line}\n"
    reply = build_container.run("/bin/sh", "-euc", script, variables=QUIET, on_line=step.say)
    if reply.code != 0:
        raise _failed(build_container, reply, line, where)


def _failed(build_container: BuildContainer, reply: Reply, line: str, where: str) -> ArgosyError:
    """Make the error of a step: where it stands, what it said last."""
    error = build_container.failure(("sh", "-c", line), reply, doing=f"the step in {where}")
    said = reply.stderr.strip().splitlines()[-LAST_LINES:]
    error.evidence = "\n".join((f"{where}: {line}", *said, f"(exit code {reply.code})"))
    if not isinstance(error, CheckFailed):
        error.hint = "try the line by itself in 'argosy shell --contain BASE'; --verbose shows all that it says"
    if NO_LISTS in reply.stderr and "apt-get update" not in line:
        error.hint = "a base brings no lists of Debian's packages: begin the line with apt-get update &&"
    return error


class Staged(msgspec.Struct, frozen=True):
    """What stages made, and in which base each."""

    results: tuple[Result, ...] = ()
    bases: Mapping[str, Base] = msgspec.field(default_factory=dict)


class StepContext(msgspec.Struct, frozen=True):
    """What stages are carried out with.

    Attributes
    ----------
    uv
        Tries whether programs of this machine run in a base.
    carrier
        The one that was asked for; empty: the first that works.
    bases
        Folder with the stages' bases by their digests; None: they are where their names say.
    """

    uv: Path
    backend: str = ""
    bases: Path | None = None


def run_stages(
    project: Project, lock: Lock | None, session: Session, work: Path, step: Step, means: StepContext
) -> Staged:
    """Carry out each stage in its own base, the one that was locked where there is a lock.

    Raises
    ------
    ArgosyError
        As `run_steps`; CheckFailed for a result that the stage did not make, and for another base than the locked one.
    """
    results: list[Result] = []
    bases: dict[str, Base] = {}
    locked = {stage.name: stage for stage in lock.stages} if lock else {}
    for number, stage in enumerate(project.table.stage):
        place = work / f"stage-{number}"
        place.mkdir()
        bases[stage.name] = base = _open_stage(
            project, stage, locked.get(stage.name), session, place, step, means.bases
        )
        results += _run_stage(project, number, stage, base, session, place, step, means)
    return Staged(tuple(results), bases)


def _open_stage(
    project: Project,
    stage: StageTable,
    locked: LockedStage | None,
    session: Session,
    work: Path,
    step: Step,
    bases: Path | None,
) -> Base:
    step.say(f"stage {stage.name}: {stage.base}")
    there = project.folder / stage.base
    name = (locked.pinned if locked else "") or (str(there) if there.exists() else stage.base)
    if locked and bases:
        name = str(bases / name_of_digest(locked.digest))
    base = open_base(name, session, work, options=EngineOptions(), step=step)
    refuse_other_stage(locked, base)
    return replace(base, reference=locked.pinned) if locked and locked.pinned else base


def name_of_digest(digest: str) -> str:
    """Give the name under which a bundle has a stage's base."""
    return digest.replace(":", "-")


def _run_stage(
    project: Project,
    number: int,
    stage: StageTable,
    base: Base,
    session: Session,
    work: Path,
    step: Step,
    means: StepContext,
) -> list[Result]:
    build_container = find_build_container(session, base, means.uv, work, asked=means.backend, changing=True)
    build, taken = work / "build", work / "taken"
    for folder in (build, taken):
        folder.mkdir()
    with open_changes(build_container, work, work / "layer") as changed:
        inside = changed.with_mounts(Bind(str(build), STAGE_FOLDER), Bind(str(taken), TAKEN))
        results = _work_in_stage(project, number, stage, inside, taken, step)
    session.reporter.note(
        f"stage {stage.name}: {base.image.base_size / 1e6:.0f} MB in {stage.base}, "
        f"of which the image gets {_size(taken) / 1e6:.1f} MB"
    )
    return results


def _work_in_stage(
    project: Project, number: int, stage: StageTable, build_container: BuildContainer, taken: Path, step: Step
) -> list[Result]:
    for word in words(stage.copy):
        source = project.file_of(word, "stage", number)
        _copy_in(build_container, source, f"{STAGE_FOLDER}/", project.where("stage", number, "copy"), step)
    for line in words(stage.run):
        _run_line(build_container, line, project.where("stage", number, "run"), step, folder=STAGE_FOLDER)
    return [
        _take(build_container, project, number, source, target, taken / str(index))
        for index, (source, target) in enumerate(stage.results.items())
    ]


def _size(folder: Path) -> int:
    """Count the bytes of what a stage made."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _take(
    build_container: BuildContainer, project: Project, number: int, source: str, target: str, out: Path
) -> Result:
    where = project.where("stage", number, "results")
    out.mkdir()
    inside = source if source.startswith("/") else f"{STAGE_FOLDER}/{source}"
    reply = build_container.run("cp", "-a", inside, f"{TAKEN}/{out.name}/")
    if reply.code != 0:
        raise CheckFailed(
            f"the stage made no {source}",
            evidence=f"{where}: {reply.stderr.strip()}",
            hint=f"a path in results begins at {STAGE_FOLDER}, where the stage's lines run, or is absolute",
        )
    return Result(next(out.iterdir()), target, where)


def bring_results(build_container: BuildContainer, results: tuple[Result, ...], step: Step) -> None:
    """Copy what stages made into the image."""
    for result in results:
        _copy_in(build_container, result.file, result.target, result.where, step)


def take_changes(build_container: BuildContainer, work: Path, tree: Path, base: Base, bound: Iterable[str]) -> bool:
    """Make what was changed outside the layer's own folder a part of the layer; tell whether anything was."""
    upper = work / "changes/up"
    if build_container.copy:
        gather_changes(build_container.copy, upper, ignored=NO_CHANGES)
    for name in NO_CHANGES:
        path = upper / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
    drop_mount_points(upper, bound)
    complete_changes(upper, lambda folder: _entries_of(folder, base, build_container.session))
    return move_changes(upper, tree)


def _entries_of(folder: str, base: Base, session: Session) -> tuple[str, ...]:
    """List a folder of the base, whose squashfs is not mounted here."""
    options = ("-no-progress", "-l", "-o", str(base.image.base_offset), "-d", "")
    reply = session.runner.run(Command(("unsquashfs", *options, base.image.path, folder)))
    below = (line.removeprefix(f"/{folder}/") for line in reply.stdout.splitlines() if line.startswith(f"/{folder}/"))
    return tuple(name for name in below if "/" not in name)


def _seed_changes(work: Path, tree: Path) -> None:
    """Show the part of the system that the layer of a base of ours holds to the programs that change it."""
    for entry in list(tree.iterdir()):
        if entry.name != "opt":
            entry.rename(work / "changes/up" / entry.name)
    below = [entry for entry in (tree / "opt").glob("*") if entry.name != "argosy"]
    for entry in below:
        (work / "changes/up/opt").mkdir(exist_ok=True)
        entry.rename(work / "changes/up/opt" / entry.name)


NO_CHANGES = (".argosy", "tmp", "dev", "proc", "sys", "run", "opt/argosy", "var/cache/apt", "var/lib/apt/lists")
"""Paths whose changes are not the image's: mount points of ours, what ends with a container, caches of apt."""
