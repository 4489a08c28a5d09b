"""Plan a version of a prefix: its commands, and the folders that its containers show; pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import msgspec

from argosy.core.errors import CheckFailed, ImageError, UsageError
from argosy.core.layout import ENV_PREFIX, NOT_FROM_CALLER, ROOT
from argosy.core.model import Host
from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.runtimes.choose import load_command
from argosy.sites.profile import Site
from argosy.wrap.model import InContainer, Needs, PrefixRecipe, PrefixSourceKind, Settings, Wrapped

SYSTEM_FOLDERS = ("bin", "boot", "dev", "etc", "lib*", "opt", "proc", "run", "sbin", "sys", "tmp", "usr", "var")
"""Folders at the root that belong to the image: those of the host are not mounted, except /tmp and /var/tmp."""

USUALLY_EMPTY = frozenset({"home", "media", "mnt", "root", "srv", "lost+found", "afs", "selinux"})
"""Folders at the root that are empty in distributions, and contain data on hosts."""

ENVIRONMENT_PATHS = (f"{ENV_PREFIX}/bin",)

WRAPPING = ("apptainer", "singularity", "bwrap")
"""Runtimes that a wrapper can start: their command lines need no facts about the node but those that sh finds out."""

NOT_WRAPPED = frozenset({"activate", "activate.csh", "activate.fish", "deactivate", "conda-unpack"})
"""Files of an environment's ``bin`` that do not become commands: they are sourced, or were needed only once."""


class CommandsPlan(msgspec.Struct, frozen=True):
    """Commands of a prefix."""

    commands: tuple[Wrapped, ...]
    links: tuple[tuple[str, str], ...]
    """Further entries of DIR in the container: name and target."""
    hidden: tuple[tuple[str, str, str], ...] = ()
    """Commands that one of an earlier path hides: name, path of the chosen one, path of the hidden one."""


def plan_paths(settings: Settings, *, argosy: bool, image: str, at: str = "") -> tuple[str, ...]:
    """Return the paths in the container whose programs become commands.

    Parameters
    ----------
    at
        Path of an installation: the paths may be relative to it.
    """
    named = tuple(path if path.startswith("/") or not at else f"{at}/{path}" for path in settings.paths)
    if named:
        return tuple(dict.fromkeys(str(PurePosixPath(path)) for path in named))
    if at:
        return (f"{at}/bin",)
    if argosy:
        return ENVIRONMENT_PATHS
    raise UsageError(
        f"cannot choose the commands of {image}: Argosy did not build this image",
        evidence="it may contain thousands of programs",
        hint="pass folders or programs in the image: -w /opt/venv/bin,/usr/bin/git",
    )


def refuse_relative_paths(settings: Settings, recipe: PrefixRecipe) -> None:
    """Refuse a relative path before an image is built; those of an installation are relative to its folder."""
    for path in settings.paths if recipe.kind is not PrefixSourceKind.FOLDER else ():
        if not path.startswith("/") and ("/" in path or path in {".", "..", "bin"}):
            raise UsageError(
                f"invalid path {path!r}: it must be absolute",
                evidence=f"-w {path}",
                hint="use a path in the image, for example -w /opt/venv/bin, or the name of a program on its PATH",
            )


def plan_commands(inside: InContainer, paths: Iterable[str], *, image: str) -> CommandsPlan:
    """Choose the commands; of two with the same name, the first one is used, as on a PATH."""
    refuse_missing_paths(inside.missing, image, f"PATH of the image: {inside.path}")
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
            f"{image} has no programs in {', '.join(paths)}", hint="choose other folders or programs with -w"
        )
    links = tuple((PurePosixPath(path).name, path) for path in inside.neighbours if PurePosixPath(path).name != "bin")
    return CommandsPlan(tuple(Wrapped(name, chosen[name]) for name in sorted(chosen)), links, tuple(hidden))


def refuse_missing_paths(missing: Sequence[str], image: str, evidence: str = "") -> None:
    """Refuse paths that the image does not contain."""
    if missing:
        what = f"{image} has no programs at {', '.join(missing)}"
        raise ImageError(what, evidence=evidence, hint="check the path: argosy run IMAGE -- ls /opt")


def chosen_inside(found: InContainer, paths: Iterable[str], image: InContainer) -> InContainer:
    """Return the programs of an installation at the requested paths, with the facts about its image."""
    wanted = tuple(paths)
    programs = tuple(
        program for path in wanted for program in found.programs if program == path or _folder(program) == path
    )
    missing = tuple(path for path in wanted if not any(each == path or _folder(each) == path for each in programs))
    return replace(found, programs=programs, missing=missing, path=image.path, folders=image.folders, glibc=image.glibc)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def shadowed_folders(inside: InContainer) -> tuple[str, ...]:
    """Return the folders at the image's root that a mount of the host's folder would hide."""
    names = {PurePosixPath(path).name for path in inside.folders}
    system = (*SYSTEM_FOLDERS, *USUALLY_EMPTY, ".*")
    return tuple(sorted(name for name in names if not any(fnmatchcase(name, pattern) for pattern in system)))


def refuse_host_setting(settings: Settings, inside: InContainer) -> None:
    """Refuse ``--host`` for an environment that needs the image's own system folders."""
    if settings.host and inside.python and not inside.python.startswith(ROOT + "/"):
        raise UsageError(
            "--host hides the system folders of the base, which this environment needs",
            evidence=f"its Python is {inside.python}",
            hint="use an environment with its own Python (conda packages), or omit --host",
        )


def venv_interpreter(inside: InContainer) -> str:
    """Return the Python that a venv was created with, which it only links to; empty if it is not a venv."""
    settings = dict(inside.venv)
    version = ".".join(settings.get("version", settings.get("version_info", "3")).split(".")[:2])
    return f"{settings['home']}/python{version}" if settings.get("home") else ""


def refuse_unusable_interpreter(source: str, interpreter: str, image: InContainer, *, prefix: str = "") -> None:
    """Refuse a venv whose Python is missing in the container, or is a command of another prefix.

    Parameters
    ----------
    interpreter
        The Python of the venv; empty if it is not a venv.
    image
        The facts about the image; its missing paths contain the interpreter, if the image does not have it.
    prefix
        The prefix whose command the interpreter is; empty if it is another program.
    """
    pip = f"{source}/bin/pip freeze > requirements.txt; argosy wrap requirements.txt --prefix DIR"
    if prefix:
        raise UsageError(
            f"cannot wrap {source}: its Python is a wrapped command of {prefix}, which does not start in a container",
            evidence=f"home = {PurePosixPath(interpreter).parent}",
            hint=f"add its packages to that prefix: argosy wrap update {prefix} PACKAGE…",
        )
    if interpreter in image.missing and f"/{PurePosixPath(interpreter).parts[1]}" in image.folders:
        raise UsageError(
            f"cannot wrap {source}: the base does not have the Python of this venv",
            evidence=f"its programs are started by {interpreter}",
            hint=f"wrap its packages: {pip}; or pass a --base with that Python",
        )


def settings_at_site(settings: Settings, site: Site, host: Host) -> tuple[Settings, str]:
    """Complete the settings of a prefix by the runtime of a site.

    Returns
    -------
        The settings, and a note if this machine lacks the runtime of the site.
    """
    runtime = site.runtime
    if runtime.name not in WRAPPING or settings.runtime not in {"", runtime.name}:
        return settings, ""
    if runtime.name in host.programs:
        return replace(settings, runtime=runtime.name), ""
    module = load_command(site)
    load = f"run '{module}', or " if module else ""
    note = f"{runtime.name}, the runtime of {site.name}, is not installed here: {load}wrap on a node of it"
    return settings, "" if settings.runtime else note


def refuse_unsupported_runtime(name: str) -> None:
    """Refuse a runtime that wrappers cannot start."""
    if name not in WRAPPING:
        raise UsageError(
            f"{name} cannot start wrapped commands",
            evidence=f"these runtimes can: {', '.join(WRAPPING)}",
            hint=f"install {WRAPPING[0]} or bubblewrap; only argosy run accepts --runtime {name}",
        )


def refuse_newer_glibc(needs: Needs, inside: InContainer) -> None:
    """Refuse an installation that needs a newer glibc than the base has."""
    have = tuple(parse_int(part) for part in inside.glibc.split(".")[:2] if part.isdecimal())
    if have and needs.glibc > have:
        asked = ".".join(map(str, needs.glibc))
        raise CheckFailed(
            f"the installation needs glibc {asked}, but the base has {inside.glibc}",
            evidence=f"{needs.by} uses GLIBC_{asked}",
            hint="use a newer base: --base debian:trixie",
        )


def merge_files(known: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
    """Return the environment files of an update: a file replaces one of the same name; others are added at the end."""
    files = {PurePosixPath(path).name: path for path in known}
    files |= {PurePosixPath(path).name: path for path in given}
    return tuple(files.values())


def dropped_variables(recipe: PrefixRecipe) -> tuple[str, ...]:
    """Return the caller's variables to remove, because they refer to software of the host."""
    kept = {"VIRTUAL_ENV"} if recipe.kind is PrefixSourceKind.FOLDER else set()
    return tuple(name for name in NOT_FROM_CALLER if name not in kept)
