"""Plan a version of a prefix: which commands there are, what is seen of them inside; it touches no machine."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec

from argosy.core.errors import CheckFailed, ImageError, UsageError
from argosy.core.layout import ENV_PREFIX, NOT_FROM_CALLER, ROOT
from argosy.core.process import Command, tool_error
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.core.shell import NAME, literal_argv
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.open_container import outer_environment
from argosy.wrap.elf import Needs
from argosy.wrap.model import InContainer, Recipe, Settings, SourceKind, Wrapped
from argosy.wrap.templates import read_template

SYSTEM_FOLDERS = ("bin", "boot", "dev", "etc", "lib*", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
"""Folders at the root that are the image's own; of the host nothing of that name is shown, but /tmp and /var/tmp."""

USUALLY_EMPTY = frozenset({"home", "media", "mnt", "root", "srv", "lost+found", "afs", "selinux"})
"""Folders at the root that a distribution brings, and a host fills."""

ENVIRONMENT_PATHS = (f"{ENV_PREFIX}/bin",)

WRAPPING = ("apptainer", "singularity", "bwrap")
"""Runtimes that a line of sh starts without asking anything first."""

NOT_WRAPPED = frozenset({"activate", "activate.csh", "activate.fish", "deactivate", "conda-unpack"})
"""Files of an environment's ``bin`` that become no commands: they are sourced, or were needed once."""


class CommandsPlan(msgspec.Struct, frozen=True):
    """What a prefix offers.

    Attributes
    ----------
    links
        What DIR shows inside beside its commands: name and target.
    hidden
        Commands of a later path that one of an earlier path hides: name, the one taken, the one hidden.
    """

    commands: tuple[Wrapped, ...]
    links: tuple[tuple[str, str], ...]
    hidden: tuple[tuple[str, str, str], ...] = ()


def plan_paths(settings: Settings, *, argosy: bool, image: str, at: str = "") -> tuple[str, ...]:
    """Give the paths inside whose programs become commands.

    Parameters
    ----------
    at
        Where an installation was put: paths may be relative to it.

    Raises
    ------
    UsageError
        When an image of others is wrapped and no path is named, or one is not absolute.
    """
    named = tuple(path if path.startswith("/") or not at else f"{at}/{path}" for path in settings.paths)
    for path in named:
        if not path.startswith("/"):
            raise UsageError(
                f"{path!r} is no path inside the image",
                evidence=f"-w {path}",
                hint="begin it with /, as in -w /opt/venv/bin",
            )
    if named:
        return tuple(dict.fromkeys(str(PurePosixPath(path)) for path in named))
    if at:
        return (f"{at}/bin",)
    if argosy:
        return ENVIRONMENT_PATHS
    raise UsageError(
        f"which commands of {image} shall be wrapped?",
        evidence="it is an image that Argosy did not build, so it may hold thousands",
        hint="name folders or programs inside it: -w /opt/venv/bin,/usr/bin/git",
    )


def plan_commands(inside: InContainer, paths: Iterable[str], *, image: str) -> CommandsPlan:
    """Choose the commands: of two with one name the first counts, as on a PATH.

    Raises
    ------
    ImageError
        When a path is not in the image, or holds no program: nothing is installed empty.
    """
    if inside.missing:
        raise ImageError(
            f"{image} has no programs at {', '.join(inside.missing)}",
            evidence=f"its own PATH is {inside.path}",
            hint="check the path: argosy run IMAGE -- ls /opt",
        )
    chosen: dict[str, str] = {}
    hidden: list[tuple[str, str, str]] = []
    for target in inside.programs:
        name = PurePosixPath(target).name
        if name in NOT_WRAPPED:
            continue
        if chosen.setdefault(name, target) != target:
            hidden.append((name, chosen[name], target))
    if not chosen:
        raise ImageError(
            f"{image} has nothing to wrap in {', '.join(paths)}", hint="name other folders or programs with -w"
        )
    links = tuple((PurePosixPath(path).name, path) for path in inside.beside if PurePosixPath(path).name != "bin")
    return CommandsPlan(tuple(Wrapped(name, chosen[name]) for name in sorted(chosen)), links, tuple(hidden))


def chosen_inside(found: InContainer, paths: Iterable[str], image: InContainer) -> InContainer:
    """Give what an installation holds at the paths asked for, and what its image is like."""
    wanted = tuple(paths)
    programs = tuple(
        program for path in wanted for program in found.programs if program == path or _folder(program) == path
    )
    missing = tuple(path for path in wanted if not any(each == path or _folder(each) == path for each in programs))
    return replace(found, programs=programs, missing=missing, path=image.path, folders=image.folders, glibc=image.glibc)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def shadowed_folders(inside: InContainer) -> tuple[str, ...]:
    """Name folders at the image's root that hold something of its own, so that the host's would hide it."""
    ours = {PurePosixPath(path).name for path in inside.folders}
    system = (*SYSTEM_FOLDERS, *USUALLY_EMPTY, ".*")
    return tuple(sorted(name for name in ours if not any(fnmatchcase(name, pattern) for pattern in system)))


def judge_host(settings: Settings, inside: InContainer) -> None:
    """Refuse ``--host`` for an environment that needs the image's own system folders.

    Raises
    ------
    UsageError
        When its Python is the base's.
    """
    if settings.host and inside.python and not inside.python.startswith(ROOT + "/"):
        raise UsageError(
            "with --host the base's system folders are hidden, and this environment needs them",
            evidence=f"its Python is {inside.python}",
            hint="take an environment with a Python of its own (conda packages), or leave --host away",
        )


def judge_runtime(name: str) -> None:
    """Refuse a runtime that wrappers cannot start.

    Raises
    ------
    UsageError
        Naming those that they can.
    """
    if name not in WRAPPING:
        raise UsageError(
            f"wrapped commands cannot be started by {name}",
            evidence=f"they are started by {', '.join(WRAPPING)}",
            hint=f"install {WRAPPING[0]}, or bubblewrap; argosy run has --runtime {name}",
        )


def judge_glibc(needs: Needs, inside: InContainer) -> None:
    """Refuse an installation that asks for a newer glibc than the base has.

    Raises
    ------
    CheckFailed
        With both versions.
    """
    have = tuple(int(part) for part in inside.glibc.split(".")[:2] if part.isdigit())
    if have and needs.glibc > have:
        asked = ".".join(map(str, needs.glibc))
        raise CheckFailed(
            f"the installation needs glibc {asked}, and the base has {inside.glibc}",
            evidence=f"{needs.by} asks for GLIBC_{asked}",
            hint="name a newer base: --base debian:trixie",
        )


def parse_environ(text: str, where: str) -> tuple[tuple[str, str], ...]:
    """Read a file of variables: lines ``NAME=VALUE`` or ``export NAME=VALUE``, quoted as in a shell.

    Raises
    ------
    UsageError
        When a line is something else, or its value would have to be computed: nothing is computed at a start.
    """
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
                f"this line of {where} is no variable with a fixed value",
                evidence=f"{where}:{number}: {line}",
                hint="write NAME=VALUE; a $ belongs between single quotes",
            )
        found[name] = values[0] if values else ""
    return tuple(found.items())


def merge_files(known: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """Give the environment files of an update: one of a known name replaces it, any other comes last."""
    files = {PurePosixPath(path).name: path for path in known}
    files |= {PurePosixPath(path).name: path for path in given}
    return tuple(files.values())


def dropped_variables(recipe: Recipe) -> tuple[str, ...]:
    """Name the caller's variables that must not reach the programs: they name software of the host."""
    kept = {"VIRTUAL_ENV"} if recipe.kind is SourceKind.FOLDER else set()
    return tuple(name for name in NOT_FROM_CALLER if name not in kept)


MARK = "argosy:"
"""Before each line, since an image's own scripts may print."""


def look_inside(plan: ContainerPlan, paths: Iterable[str], session: Session, *, image: str) -> InContainer:
    """Start a container once and list what is to be wrapped.

    Parameters
    ----------
    image
        What the user calls the image, for errors.

    Raises
    ------
    ImageError
        When the image has no shell, so that nothing can be listed.
    ToolFailed
        When the container does not start.
    """
    words = literal_argv(plan.argv(("/bin/sh", "-c", read_template("look.sh"), "sh", *paths)))
    command = Command(words, env=outer_environment(plan, session.host.environment))
    reply = session.runner.run(command)
    inside = parse_look(reply.stdout)
    if inside is not None:
        return inside
    if any(text in reply.stderr for text in ('"/bin/sh"', "/bin/sh: no such", "no /bin/sh", "execvp /bin/sh")):
        raise ImageError(
            f"{image} has no /bin/sh, so it cannot be asked for its programs",
            evidence=reply.stderr.strip(),
            hint="build over it with a base that has a shell; or start its program by argosy run IMAGE -- PROGRAM",
        )
    raise tool_error(command, reply, doing="looking for programs in the image")


def parse_look(text: str) -> InContainer | None:
    """Read what ``look.sh`` prints; None where it did not come to its end."""
    rows = [line.removeprefix(MARK).partition(":") for line in text.splitlines() if line.startswith(MARK)]
    found: dict[str, list[str]] = {}
    for key, _, value in rows:
        found.setdefault(key, []).append(value)
    if "end" not in found:
        return None
    return InContainer(
        programs=tuple(found.get("program", ())),
        missing=tuple(found.get("missing", ())),
        path=next(iter(found.get("path", ())), ""),
        beside=tuple(found.get("beside", ())),
        folders=tuple(found.get("folder", ())),
        python=next(iter(found.get("python", ())), ""),
        glibc=next(iter(found.get("glibc", ())), "").removeprefix("glibc "),
        venv=_settings(found.get("setting", ())),
    )


def _settings(lines: Iterable[str]) -> tuple[tuple[str, str], ...]:
    rows = (line.partition("=") for line in lines)
    return tuple((key.strip().lower(), value.strip()) for key, sign, value in rows if sign)
