"""Read the user's environment files and the files that they include."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from argosy.core.errors import UsageError
from argosy.core.os_errors import missing_file, refuse_special_file
from argosy.core.records import replace
from argosy.recipes.conda_locks import EXPLICIT, is_conda_lock, parse_conda_lock, parse_explicit, parse_pixi_lock
from argosy.recipes.environment_file import parse_environment
from argosy.recipes.lock import LockedSource
from argosy.recipes.merge import joined, merge_parts
from argosy.recipes.option_row import PROJECT_FILE
from argosy.recipes.pip_locks import parse_pipfile_lock, parse_poetry_lock, parse_pylock
from argosy.recipes.pyproject import parse_pyproject, without_needless_notes
from argosy.recipes.recipe import (
    Entry,
    Include,
    Note,
    Part,
    PipKind,
    PipLine,
    PipOption,
    Recipe,
    Where,
    bad_line,
)
from argosy.recipes.requirements import parse_requirements
from argosy.recipes.source_text import (
    LISTS,
    decode,
    is_utf8,
    recognising_content,
    suggest_by_content,
    suggest_for_path,
)
from argosy.recipes.tool_tables import Workspace, find_workspace, is_virtual
from argosy.recipes.uv_lock import hold_to_lock, parse_uv_lock

UNDERSTOOD = (
    "environment.yml (*.yml, *.yaml), requirements.txt (*.txt, *.in), pyproject.toml with its uv.lock, pylock.toml, "
    "poetry.lock, Pipfile.lock, pixi.lock, conda-lock.yml, lists of 'conda list --explicit', definition files "
    "(NAME.def) and Dockerfiles"
)

POETRY = "poetry.lock"

MAYBE_LOCKS = (".yml", ".yaml", ".txt", ".lock")
"""Suffixes of files that may contain a list of ``conda list --explicit`` or a lock of conda-lock."""

NOT_YET = {
    "pixi.toml": "pixi projects: pass the pixi.lock that 'pixi lock' writes",
    "Pipfile": "pipenv projects: pass the Pipfile.lock that 'pipenv lock' writes",
    "pdm.lock": "locks of PDM: pass the requirements.txt that 'pdm export -o requirements.txt' writes",
    "setup.py": "setup.py as a list of packages: write the folder, for example ./, into a requirements.txt",
    "setup.cfg": "setup.cfg as a list of packages: write the folder, for example ./, into a requirements.txt; it also "
    "needs a pyproject.toml or a setup.py",
}
"""Files of other tools that are not supported, each with a hint."""

MOST_BYTES = 16 << 20
"""Maximal size of an environment file; larger files are probably images passed by mistake."""


class _Reading(msgspec.Struct, frozen=True):
    """The state of reading: variables, current folder, and the chain of including files."""

    environment: Mapping[str, str]
    cwd: Path
    inside: tuple[Path, ...] = ()
    subdir: str = "linux-64"


def read_recipe(
    paths: Iterable[str],
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    subdir: str = "linux-64",
) -> Recipe:
    """Read environment files and merge them into one recipe.

    Parameters
    ----------
    paths
        Files as the user named them, relative to `cwd`, by default the current directory.
    environment
        Variables for ``${NAME}`` in pip lines.
    subdir
        conda's name of the platform; selects the packages of locks for several platforms.
    """
    reading = _Reading(environment or {}, cwd or Path.cwd(), subdir=subdir)
    parts = [_read_part(path, reading) for path in paths]
    if not parts:
        raise UsageError("no environment file was given", hint=f"supported: {UNDERSTOOD}")
    return without_needless_notes(merge_parts(parts), reading.cwd)


def find_environment_file(folder: Path) -> str:
    """Return the name of the first of `find_environment_files`; empty if there is none."""
    return next(iter(find_environment_files(folder)), "")


def find_environment_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the environment files and locks in a folder, the first to suggest first."""
    return tuple(name for name in _usual_names() if (folder / name).is_file())


def _read_part(path: str, reading: _Reading) -> Part:
    bare, extras = split_extras(path)
    name = Path(bare).name
    for read in (_read_lock, _read_project):
        if part := read(bare, extras, reading):
            return part
    if name in NOT_YET:
        kind, _, hint = NOT_YET[name].partition(": ")
        raise UsageError(f"cannot read {path}: Argosy does not support {kind}", hint=hint)
    if name.endswith((".yml", ".yaml")):
        return _read_environment(path, reading)
    if name.endswith(LISTS):
        return _read_requirements(path, reading)
    there = [name for name in (PROJECT_FILE, *_usual_names()) if (reading.cwd / path / name).is_file()]
    if there:
        hint = "pass one of its files: " + ", ".join(str(Path(path) / name) for name in there)
        raise UsageError(f"cannot read {path}: it is a folder", hint=hint)
    if (reading.cwd / path).is_dir():
        what = f"cannot build {path}: it is a folder without a Dockerfile, a project file or an environment file"
        hint = "write one into it, or pass the file itself; to pack a root file system: --base FOLDER"
        if (reading.cwd / path / "setup.py").is_file():
            hint = "write the line ./ into a requirements.txt in it, and pass that file, to install its setup.py"
        raise UsageError(what, hint=hint)
    raise UsageError(
        f"cannot recognise {path} as an environment file by its name",
        hint=suggest_by_content(_read_bytes(path, reading).decode(errors="replace"), path)
        or f"supported: {UNDERSTOOD}; definition files: NAME.def, Singularity.NAME, Dockerfile.NAME; "
        "an image archive: argosy images pull FILE -o NAME.sif",
    )


def split_extras(path: str) -> tuple[str, tuple[str, ...]]:
    """Split ``pyproject.toml[gpu,test]``, as pip writes extras, into the file and the names in brackets.

    In a lock, the names select some of its environments.
    """
    head, bracket, rest = path.partition("[")
    if not bracket or not rest.endswith("]") or not (Path(head).suffix == ".toml" or lock_kind(Path(head).name)):
        return path, ()
    return head, tuple(word.strip() for word in rest[:-1].split(",") if word.strip())


def _read_lock(path: str, extras: tuple[str, ...], reading: _Reading) -> Part | None:
    """Read a lock of another tool; return None for any other file."""
    name = Path(path).name
    kind = lock_kind(name)
    if kind is None and (not name.endswith(MAYBE_LOCKS) or name == "uv.lock" or not (reading.cwd / path).is_file()):
        return None
    text, source = _read_text(path, reading)
    if EXPLICIT in text.split():
        return _resolve_paths(parse_explicit(text, path, subdir=reading.subdir), source, path, reading)
    parse = kind.parse if kind else _parse_conda_lock if is_conda_lock(text) else None
    return _resolve_paths(parse(text, path, extras, reading), source, path, reading) if parse else None


def _parse_conda_lock(text: str, path: str, asked: tuple[str, ...], reading: _Reading) -> Part:
    return parse_conda_lock(text, path, subdir=reading.subdir, asked=asked)


class LockKind(msgspec.Struct, frozen=True):
    """A lock of another tool."""

    name: str
    """Its usual name."""
    parse: Callable[[str, str, tuple[str, ...], _Reading], Part]
    """Parses text, path, and the names in brackets."""
    pattern: str = ""
    """All of its names; empty if it has one."""


LOCKS = (
    LockKind(
        "pylock.toml", lambda text, path, asked, _: parse_pylock(text, path, extras=asked), r"pylock(\.[^.]+)?\.toml"
    ),
    LockKind(POETRY, lambda text, path, asked, _: parse_poetry_lock(text, path, asked=asked)),
    LockKind(
        "Pipfile.lock",
        lambda text, path, asked, here: parse_pipfile_lock(text, path, asked=asked, environment=here.environment),
    ),
    LockKind("pixi.lock", lambda text, path, asked, here: parse_pixi_lock(text, path, subdir=here.subdir, asked=asked)),
    LockKind("conda-lock.yml", _parse_conda_lock, r".*conda-lock\.ya?ml"),
)


def _usual_names() -> tuple[str, ...]:
    """Return the usual names of environment files and locks, the first to suggest first."""
    return ("environment.yml", "environment.yaml", "requirements.txt", "pyproject.toml", *(kind.name for kind in LOCKS))


def lock_kind(name: str) -> LockKind | None:
    """Return the kind of a lock of another tool by its name; None for other files, and for a ``uv.lock``."""
    return next((kind for kind in LOCKS if re.fullmatch(kind.pattern or re.escape(kind.name), name)), None)


def _read_project(path: str, extras: tuple[str, ...], reading: _Reading) -> Part | None:
    """Read a Python project with its uv.lock; return None for any other file."""
    name = Path(path).name
    if name not in ("pyproject.toml", "uv.lock"):
        return None
    folder = Path(path).parent
    if name == "uv.lock" and not (reading.cwd / folder / "pyproject.toml").is_file():
        raise UsageError(f"cannot read {path}: there is no pyproject.toml next to it", hint="copy both files")
    workspace = find_workspace(reading.cwd / folder)
    part = _read_member(str(folder / "pyproject.toml"), extras, workspace, reading)
    lock = str(folder / "uv.lock")
    if workspace and not (reading.cwd / lock).is_file():
        lock = _from_here(workspace.root / "uv.lock", reading)
    if name == "uv.lock" or (reading.cwd / lock).is_file():
        locked, of_lock = _read_text(lock, reading)
        own = os.path.relpath((reading.cwd / folder).resolve(), (reading.cwd / lock).resolve().parent)
        found = parse_uv_lock(locked, lock, project=own, asked=extras, needed=part)
        return hold_to_lock(part, replace(found, sources=(of_lock,)))
    other = folder / POETRY
    if (reading.cwd / other).is_file():
        note = Note(f"the versions of {other} are not used; pass that file to use them")
        part = replace(part, notes=(*part.notes, note))
    return part


def _read_member(
    file: str, extras: tuple[str, ...], workspace: Workspace | None, reading: _Reading, seen: tuple[str, ...] = ()
) -> Part:
    """Read a project and the projects of its workspace on which it depends."""
    text, source = _read_text(file, reading)
    part = _resolve_paths(parse_pyproject(text, file, extras=extras, workspace=workspace), source, file, reading)
    near = [line for line in part.pip if workspace and workspace.member_at(line.path)]
    part = replace(part, pip=tuple(line for line in part.pip if line not in near or not is_virtual(Path(line.path))))
    for line in near:
        if line.requirement not in seen:
            member = _from_here(Path(line.path, "pyproject.toml"), reading)
            wanted = tuple(filter(None, line.extras.strip("[]").split(",")))
            its = _read_member(member, wanted, workspace, reading, (*seen, line.requirement))
            part = _add(part, replace(its, notes=()))
    return part


def _from_here(path: Path, reading: _Reading) -> str:
    """Return a path relative to the current folder, or unchanged if it is outside."""
    here = reading.cwd.resolve()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _resolve_paths(part: Part, source: LockedSource, path: str, reading: _Reading) -> Part:
    """Resolve the local paths of a parsed file, and record the file as a source."""
    own = replace(part, pip=(), includes=(), options=(), sources=(source,))
    return _follow(own, (*part.includes, *part.options, *part.pip), path, reading)


def _read_text(path: str, reading: _Reading, named_by: Where | None = None) -> tuple[str, LockedSource]:
    data = _read_bytes(path, reading, named_by)
    return decode(data, path), LockedSource(path, hashlib.sha256(data).hexdigest())


def _read_bytes(path: str, reading: _Reading, named_by: Where | None = None) -> bytes:
    file = reading.cwd / path
    because = f"included by {named_by}" if named_by else ""
    try:
        refuse_special_file(file, path)
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            hint = "pass a requirements.txt, an environment.yml or a lock file"
            raise UsageError(f"{path} is too large for an environment file", evidence=because, hint=hint)
        return file.read_bytes()
    except FileNotFoundError as error:
        raise missing_file(path, reading.cwd, because) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        hint = "check the path, and that you may read the file"
        raise UsageError(f"cannot read {path}", evidence=f"{because}\n{reason}".strip(), hint=hint) from error


def _read_environment(path: str, reading: _Reading) -> Part:
    text, source = _read_text(path, reading)
    part, pip = parse_environment(text, path, environment=reading.environment)
    inside = replace(reading, inside=((reading.cwd / path).resolve(),))
    return _follow(replace(part, sources=(source,)), pip, path, inside)


def _read_requirements(path: str, reading: _Reading, named_by: Where | None = None) -> Part:
    text, source = _read_text(path, reading, named_by)
    with recognising_content(text, path):
        entries = parse_requirements(text, path, environment=reading.environment)
    inside = (*reading.inside, (reading.cwd / path).resolve())
    return _follow(Part(sources=(source,)), entries, path, replace(reading, inside=inside))


def _follow(part: Part, entries: Iterable[Entry], path: str, reading: _Reading) -> Part:
    """Add entries to a part: read included files and resolve local paths."""
    return _add(part, *(_follow_entry(entry, path, reading) for entry in entries))


def _follow_entry(entry: Entry, path: str, reading: _Reading) -> Part:
    match entry:
        case Include():
            return _read_include(entry, path, reading)
        case PipLine():
            return _look_up_package(entry, path, reading)
        case PipOption():
            return _look_up_option(entry, path, reading)


def _add(first: Part, *others: Part) -> Part:
    """Join the requests of the lines of one file."""
    parts = (first, *others)
    return replace(
        first,
        pip=joined(part.pip for part in parts),
        constraints=joined(part.constraints for part in parts),
        options=joined(part.options for part in parts),
        sources=tuple(dict.fromkeys(joined(part.sources for part in parts))),
        notes=joined(part.notes for part in parts),
    )


def _read_include(include: Include, path: str, reading: _Reading) -> Part:
    """Read a file that ``-r`` or ``-c`` includes, relative to the including file."""
    if "://" in include.path and not include.path.startswith("file://"):
        hint = "download it and include the local file, so that the build can be repeated"
        raise bad_line("cannot include a requirements file from the network", include.where, include.path, hint=hint)
    target = str(Path(path).parent / _local(include.path))
    if (reading.cwd / target).resolve() in reading.inside:
        raise bad_line("the file includes itself", include.where, include.path, hint="remove one of the -r lines")
    part = _read_requirements(target, reading, include.where)
    return replace(part, pip=(), constraints=part.constraints + part.pip) if include.constraint else part


def _local(address: str) -> str:
    return unquote(urlsplit(address).path) if address.startswith("file://") else address


def _look_up_package(package: PipLine, path: str, reading: _Reading) -> Part:
    """Find a local package next to the file that names it, else in the current directory as pip does."""
    if package.kind is not PipKind.LOCAL:
        return Part(pip=(_place_index(package, path, reading),))
    written = Path(package.path).expanduser() if package.path.startswith("~/") else Path(package.path)
    candidates = [folder / written for folder in ((reading.cwd / path).parent, reading.cwd)]
    if found := [each for each in candidates if os.path.exists(each)]:  # noqa: PTH110 - Path's raises for long names
        # requirements.txt files in docs/ or requirements/ often name "." for the project in the current directory.
        chosen = next((candidate for candidate in found if _is_installable(candidate)), None)
        if chosen is None:
            hint = "name the folder that contains one; use -r to include a requirements file"
            raise bad_line("the folder has no pyproject.toml or setup.py", package.where, package.text, hint=hint)
        return _local_package(package, chosen.resolve())
    raise bad_line("local package not found", package.where, package.text, hint=suggest_for_path(package))


def _place_index(package: PipLine, path: str, reading: _Reading) -> PipLine:
    """Make the path of a package's index absolute; as in uv it is relative to the folder of the file."""
    index = package.index
    if index is None or "://" in index.address:
        return package
    return replace(package, index=replace(index, address=str((reading.cwd / path).parent / index.address)))


def _is_installable(path: Path) -> bool:
    return not path.is_dir() or any((path / name).is_file() for name in ("pyproject.toml", "setup.py"))


def _local_package(package: PipLine, found: Path) -> Part:
    if not is_utf8(str(found)):
        hint = "rename its folder; uv accepts only UTF-8"
        raise bad_line("the path of this package is not UTF-8", package.where, package.text, hint=hint)
    placed = replace(package, path=str(found), editable=False)
    text = f"{package.path} is copied into the image, not installed as editable"
    notes = (Note(text, package.where),) if package.editable else ()
    return Part(pip=(placed,), notes=notes)


def _look_up_option(option: PipOption, path: str, reading: _Reading) -> Part:
    """Make the folder of ``--find-links`` absolute; note and skip a missing folder, as pip does."""
    if "index" in option.name and Path(path).name == "pyproject.toml" and "://" not in option.value:
        return Part(options=(replace(option, value=str((reading.cwd / path).parent / option.value)),))
    if not option.name.endswith("-links") or ("://" in option.value and not option.value.startswith("file://")):
        return Part(options=(option,))
    written = Path(_local(option.value))
    for folder in ((reading.cwd / path).parent, reading.cwd):
        if (folder / written).is_dir():
            return Part(options=(replace(option, value=str((folder / written).resolve())),))
    if option.name != "find-links":
        raise bad_line("no such folder", option.where, option.value, hint="a flat index is a folder of wheels")
    return Part(notes=(Note(f"--find-links {option.value} is ignored: no such folder", option.where),))
