"""Read the user's environment files and all that they include; it writes nothing and asks no network."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from argosy.errors import UsageError
from argosy.recipe.environment import parse_environment
from argosy.recipe.lines import decode
from argosy.recipe.locks_conda import EXPLICIT, parse_conda_lock, parse_explicit, parse_pixi_lock
from argosy.recipe.merge import merge_parts
from argosy.recipe.projects import hold_to_lock, parse_pylock, parse_uv_lock
from argosy.recipe.pyproject import parse_pyproject
from argosy.recipe.records import (
    Entry,
    Include,
    Note,
    Part,
    PipKind,
    PipLine,
    PipOption,
    Recipe,
    Source,
    Where,
    bad_line,
)
from argosy.recipe.requirements import parse_requirements
from argosy.records import replace
from argosy.refusals import missing_file

UNDERSTOOD = (
    "environment.yml (*.yml, *.yaml), requirements.txt (*.txt, *.in), pyproject.toml with its uv.lock, pylock.toml, "
    "pixi.lock, conda-lock.yml, and lists of 'conda list --explicit'"
)

IN_A_FOLDER = (
    *("argosy.toml", "environment.yml", "environment.yaml", "requirements.txt", "pyproject.toml"),
    *("pylock.toml", "pixi.lock", "conda-lock.yml"),
)
"""What is looked for where a folder is named."""

NOT_YET = {
    "pixi.toml": "a pixi project",
    "poetry.lock": "a Poetry lock file",
    "Pipfile": "a pipenv project",
    "Pipfile.lock": "a pipenv lock file",
}

MOST_BYTES = 16 << 20
"""No environment file is this long; an image given by mistake is."""


class _Reading(msgspec.Struct, frozen=True):
    """How far we are: the variables, the folder that paths are relative to, the files that we are in."""

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
        Files, as the user named them; relative ones from `cwd`, which is the current directory if None.
    environment
        The variables that ``${NAME}`` in a pip line may name.
    subdir
        conda's word for the platform, of which a lock file may have several.

    Raises
    ------
    UsageError
        For a file that is not there or not understood, a line that cannot be meant, files that contradict each other.
    """
    reading = _Reading(environment or {}, cwd or Path.cwd(), subdir=subdir)
    parts = [_read_part(path, reading) for path in paths]
    if not parts:
        raise UsageError("no environment file was given", hint=f"understood: {UNDERSTOOD}")
    return merge_parts(parts)


def _read_part(path: str, reading: _Reading) -> Part:
    bare, extras = split_extras(path)
    name = Path(bare).name
    for read in (_read_lock, _read_project):
        if part := read(bare, extras, reading):
            return part
    if name in NOT_YET:
        kind = NOT_YET.get(name, "this kind of file")
        raise UsageError(f"{path}: {kind} is not understood yet", hint=f"understood: {UNDERSTOOD}")
    if name.endswith((".yml", ".yaml")):
        return _read_environment(path, reading)
    if name.endswith((".txt", ".in")):
        return _read_requirements(path, reading)
    there = [name for name in IN_A_FOLDER if (reading.cwd / path / name).is_file()]
    if there:
        hint = "name the file that is meant: " + ", ".join(str(Path(path) / name) for name in there)
        raise UsageError(f"{path} is a folder", hint=hint)
    raise UsageError(f"{path} is no environment file by its name", hint=f"understood: {UNDERSTOOD}")


def split_extras(path: str) -> tuple[str, tuple[str, ...]]:
    """Split ``pyproject.toml[gpu,test]``, as pip writes extras, into the file and its extras."""
    head, bracket, rest = path.partition("[")
    if not bracket or not rest.endswith("]") or Path(head).suffix != ".toml":
        return path, ()
    return head, tuple(word.strip() for word in rest[:-1].split(",") if word.strip())


def _read_lock(path: str, extras: tuple[str, ...], reading: _Reading) -> Part | None:
    """Read what another tool locked; None for any other file."""
    name = Path(path).name
    if name == "pixi.lock" or name.endswith("conda-lock.yml"):
        text, source = _read_text(path, reading)
        parse = parse_pixi_lock if name == "pixi.lock" else parse_conda_lock
        return _placed(parse(text, path, subdir=reading.subdir), source, path, reading)
    if re.fullmatch(r"pylock(\.[^.]+)?\.toml", name):
        text, source = _read_text(path, reading)
        return _placed(parse_pylock(text, path, extras=extras), source, path, reading)
    if name.endswith(".txt") and (reading.cwd / path).is_file():
        text, source = _read_text(path, reading)
        if EXPLICIT in text.split():
            return _placed(parse_explicit(text, path), source, path, reading)
    return None


def _read_project(path: str, extras: tuple[str, ...], reading: _Reading) -> Part | None:
    """Read a Python project, with the lock that uv keeps beside it; None for any other file."""
    name = Path(path).name
    if name not in ("pyproject.toml", "uv.lock"):
        return None
    project, lock = str(Path(path).with_name("pyproject.toml")), str(Path(path).with_name("uv.lock"))
    text, source = _read_text(project, reading)
    part = _placed(parse_pyproject(text, project, extras=extras), source, project, reading)
    if name == "uv.lock" or (reading.cwd / lock).is_file():
        locked, of_lock = _read_text(lock, reading)
        part = hold_to_lock(part, replace(parse_uv_lock(locked, lock), sources=(of_lock,)))
    return part


def _placed(part: Part, source: Source, path: str, reading: _Reading) -> Part:
    """Look the local packages of a parsed file up, and remember the file."""
    return _follow(replace(part, pip=(), includes=(), sources=(source,)), (*part.includes, *part.pip), path, reading)


def _read_text(path: str, reading: _Reading, named_by: Where | None = None) -> tuple[str, Source]:
    file = reading.cwd / path
    because = f"named in {named_by}" if named_by else ""
    try:
        if file.is_file() and file.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is too long for an environment file", evidence=because)
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise missing_file(path, reading.cwd, because) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{path} cannot be read", evidence=f"{because}\n{reason}".strip()) from error
    return decode(data, path), Source(path, hashlib.sha256(data).hexdigest())


def _read_environment(path: str, reading: _Reading) -> Part:
    text, source = _read_text(path, reading)
    found = parse_environment(text, path, environment=reading.environment)
    own = Part(
        name=found.name,
        python=found.python,
        conda=found.conda,
        interpreter=found.interpreter,
        channels=found.channels,
        variables=found.variables,
        sources=(source,),
        notes=found.notes,
    )
    return _follow(own, found.pip, path, replace(reading, inside=((reading.cwd / path).resolve(),)))


def _read_requirements(path: str, reading: _Reading, named_by: Where | None = None) -> Part:
    text, source = _read_text(path, reading, named_by)
    entries = parse_requirements(text, path, environment=reading.environment)
    inside = (*reading.inside, (reading.cwd / path).resolve())
    return _follow(Part(sources=(source,)), entries, path, replace(reading, inside=inside))


def _follow(part: Part, entries: Iterable[Entry], path: str, reading: _Reading) -> Part:
    """Add entries to a part: includes read, paths looked up, all else as it is."""
    for entry in entries:
        match entry:
            case Include():
                part = _add(part, _read_include(entry, path, reading))
            case PipLine():
                part = _add(part, _look_up_package(entry, path, reading))
            case PipOption():
                part = _add(part, _look_up_option(entry, path, reading))
    return part


def _add(one: Part, other: Part) -> Part:
    """Join what two lines of the same file ask for."""
    return replace(
        one,
        pip=one.pip + other.pip,
        constraints=one.constraints + other.constraints,
        options=one.options + other.options,
        sources=one.sources + tuple(source for source in other.sources if source not in one.sources),
        notes=one.notes + other.notes,
    )


def _read_include(include: Include, path: str, reading: _Reading) -> Part:
    """Read a file that ``-r`` or ``-c`` names, relative to the file that names it."""
    if "://" in include.path and not include.path.startswith("file://"):
        hint = "download it and name the file: what is read from a network cannot be built again"
        raise bad_line("a requirements file from the network is not followed", include.where, include.path, hint=hint)
    target = str(Path(path).parent / _local(include.path))
    if (reading.cwd / target).resolve() in reading.inside:
        raise bad_line("this file includes itself", include.where, include.path, hint="take one of the -r lines out")
    part = _read_requirements(target, reading, include.where)
    return replace(part, pip=(), constraints=part.constraints + part.pip) if include.constraint else part


def _local(address: str) -> str:
    return unquote(urlsplit(address).path) if address.startswith("file://") else address


def _look_up_package(package: PipLine, path: str, reading: _Reading) -> Part:
    """Find a local package beside the file that names it, else in the current directory, where pip looks."""
    if package.kind is not PipKind.LOCAL:
        return Part(pip=(package,))
    written = Path(package.path).expanduser() if package.path.startswith("~/") else Path(package.path)
    for folder in ((reading.cwd / path).parent, reading.cwd):
        if (folder / written).exists():
            _refuse_bare(folder / written, package)
            return _place(package, (folder / written).resolve())
    hint = f"pip install takes it from an index as {package.name}==VERSION" if package.name else ""
    if "/feedstock" in package.path or "/croot/" in package.path:
        hint = "this path is of the machine that made the conda package: 'pip list --format freeze' gives versions"
    if package.path.startswith(("'", '"')):
        hint = "take the quotes out: no shell reads this file"
    raise bad_line("there is no such local package", package.where, package.text, hint=hint)


def _refuse_bare(found: Path, package: PipLine) -> None:
    if found.is_dir() and not any((found / name).is_file() for name in ("pyproject.toml", "setup.py")):
        hint = "its package is in a folder that has one; a file of requirements is named by -r"
        raise bad_line("there is neither pyproject.toml nor setup.py in it", package.where, package.text, hint=hint)


def _place(package: PipLine, found: Path) -> Part:
    placed = replace(package, path=str(found), editable=False)
    said = "is installed as a copy, not editable: an image must not depend on a folder outside it"
    notes = (Note(f"{package.path} {said}", package.where),) if package.editable else ()
    return Part(pip=(placed,), notes=notes)


def _look_up_option(option: PipOption, path: str, reading: _Reading) -> Part:
    """Make the folder of ``--find-links`` absolute; one that is not there is left out and said, as pip does."""
    if option.name != "find-links" or ("://" in option.value and not option.value.startswith("file://")):
        return Part(options=(option,))
    written = Path(_local(option.value))
    for folder in ((reading.cwd / path).parent, reading.cwd):
        if (folder / written).is_dir():
            return Part(options=(replace(option, value=str((folder / written).resolve())),))
    return Part(notes=(Note(f"--find-links {option.value} is left out: there is no such folder", option.where),))
