"""Parse the dependencies of a Python project in pyproject.toml: the standard tables and those of uv.

Files that contain dependencies are returned as includes, not opened.

Sources: "pyproject.toml specification" and "Dependency Groups" of the Python packaging user guide, uv's reference of
``tool.uv``, "Dynamic metadata" of setuptools.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.suggest import did_you_mean
from argosy.core.toml_lines import load_toml
from argosy.recipes.recipe import (
    Asked,
    Include,
    Note,
    Part,
    PipIndex,
    PipKind,
    PipLine,
    PipOption,
    Recipe,
    Where,
    bad_line,
)
from argosy.recipes.requirements import parse_package
from argosy.recipes.source_text import Finder, finder
from argosy.recipes.tool_tables import Workspace, note_other_tables, poetry_groups, table_at

NOT_INSTALLED = (
    "only the project's dependencies are installed from it, so its code can change without a new image; to install "
    "the code, too: add a requirements.txt with the line '.'"
)
ON_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


class _Project(msgspec.Struct, frozen=True):
    """The file that is being parsed, the requested extras and groups, and its workspace."""

    data: Mapping[str, Any]
    file: str
    where: Finder
    asked: tuple[str, ...]
    workspace: Workspace | None = None

    @property
    def uv(self) -> Mapping[str, Any]:
        """Return the settings of uv: a member of a workspace has those of the root, and the indexes of both."""
        own = self.table("tool", "uv")
        if self.workspace is None:
            return own
        first = own.get("index")
        return {**self.workspace.uv, "index": [*(first if isinstance(first, list) else ()), *self.workspace.indexes]}

    @property
    def sources(self) -> dict[str, Any]:
        """Return the package sources of uv; the project's own replace those of the workspace's root."""
        shared = self.workspace.sources if self.workspace else {}
        return {**shared, **self.table("tool", "uv", "sources")}

    @property
    def name(self) -> str:
        """Return the normalised name of the project; may be empty."""
        return canonicalize_name(str(self.table("project").get("name", "")))

    @property
    def groups(self) -> dict[str, Any]:
        """Return the dependency groups by name; ``dev-dependencies`` of uv belong to the group dev."""
        groups, older = self.table("dependency-groups"), self.table("tool", "uv").get("dev-dependencies")
        if not older:
            return groups
        name = next((name for name in groups if canonicalize_name(name) == "dev"), "dev")
        rows = [row for each in (groups.get(name, []), older) for row in (each if isinstance(each, list) else [each])]
        return {**groups, name: rows}

    def table(self, *keys: str) -> dict[str, Any]:
        """Return a table of the file; empty if it does not exist."""
        return table_at(self.data, *keys)

    def texts(self, found: Any, key: str) -> list[str]:
        """Return a list of strings."""
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise UsageError(
                f"{self.file}: '{key}' must be a list of strings",
                evidence=str(self.where(key)),
                hint=f'write {key} = ["…", "…"]',
            )
        return found

    def uv_texts(self, key: str) -> list[str]:
        """Return a list of strings of ``tool.uv``."""
        return self.texts(self.uv.get(key, []), key)


def parse_pyproject(text: str, file: str, *, extras: tuple[str, ...], workspace: Workspace | None) -> Part:
    """Parse the dependencies of a project and of `extras`, the required Python, and uv's indexes and sources.

    Parameters
    ----------
    extras
        Names of extras or dependency groups.
    workspace
        The workspace of the project, whose settings apply and whose members may be dependencies.
    """
    data = load_toml(text, file)
    here = _Project(data, file, finder(text, file), tuple(canonicalize_name(name) for name in extras), workspace)
    project = here.table("project")
    if not project and not here.table("dependency-groups"):
        evidence = f"{here.where('[tool.poetry')}: a Poetry project" if here.table("tool", "poetry") else ""
        raise UsageError(f"{file} has no [project]", evidence=evidence, hint=_hint_for_tool(here))
    wanted, includes = _wanted(here)
    if not wanted and not includes and not here.asked:
        _refuse_groups_alone(here)
    uv = here.uv
    sources: dict[str, Mapping[str, Any]] = {
        canonicalize_name(name): _choose_source(source, here) for name, source in here.sources.items()
    }
    python = str(project.get("requires-python", "")).replace(" ", "")
    lines = _lines(wanted, here)
    overrides = _lines(here.uv_texts("override-dependencies"), here)
    used = {name: str(source.get("index")) for name, source in sources.items()}
    # uv searches the common indexes for packages of overrides.
    free = {used.get(line.name, "") for line in overrides}
    return Part(
        python=(Asked("python", python, here.where("requires-python")),) if python else (),
        pip=tuple(_sourced(line, sources.get(line.name, {}), here) for line in lines),
        constraints=tuple(_lines(here.uv_texts("constraint-dependencies"), here)),
        overrides=tuple(overrides),
        unisolated=tuple(canonicalize_name(name) for name in here.uv_texts("no-build-isolation-package")),
        options=tuple(_options(uv, set(used.values()), free, here)),
        includes=includes,
        notes=(
            Note(NOT_INSTALLED, here.where("[project]")),
            *note_other_tables(here.table("tool"), {line.name for line in lines}, here.name, file, here.where),
            *_note_groups(here),
            *_note_builds(lines, here),
        ),
    )


def without_needless_notes(recipe: Recipe, cwd: Path) -> Recipe:
    """Leave out the note `NOT_INSTALLED` for a project that a line of another file installs."""
    installed = {line.path for line in recipe.pip if line.kind is PipKind.LOCAL}
    kept = (
        note
        for note in recipe.notes
        if note.text != NOT_INSTALLED
        or note.where is None
        or str((cwd / note.where.file).parent.resolve()) not in installed
    )
    return replace(recipe, notes=tuple(kept))


def _note_groups(here: _Project) -> Iterator[Note]:
    """Yield a note for groups that ``uv sync`` would install, because the project names them as default groups."""
    default = here.table("tool", "uv").get("default-groups")
    names = default if isinstance(default, list) else here.groups if default == "all" else ()
    wanted = {canonicalize_name(str(name)) for name in names} - {*here.asked}
    lost = sorted((name for name in here.groups if canonicalize_name(name) in wanted), key=str.casefold)
    if lost:
        fix = f"to install them, pass {here.file}[{','.join((*here.asked, *lost))}]"
        yield Note(f"default groups of uv are not installed: {', '.join(lost)}; {fix}", here.where("default-groups"))


def _note_builds(lines: list[PipLine], here: _Project) -> Iterator[Note]:
    """Yield a note for packages whose extra build requirements (mostly torch) are ignored."""
    more = {canonicalize_name(name): name for name in here.uv.get("extra-build-dependencies") or ()}
    for name in sorted(more.keys() & {line.name for line in lines}):
        text = f"the extra-build-dependencies of {name} are ignored; --no-build-isolation {name} builds it against "
        yield Note(f"{text}the installed packages", here.where(more[name]))


def _refuse_groups_alone(here: _Project) -> None:
    """Raise `UsageError` if all packages are in groups and no group was requested."""
    own = () if here.table("project") else tuple(here.table("dependency-groups"))
    groups = own or poetry_groups(here.table("tool"))
    if groups:
        file = here.file if own else "the lock that 'poetry lock' writes: poetry.lock"
        raise UsageError(
            f"{here.file} has packages only in groups, and no group was requested",
            evidence=f"{here.where('[dependency-groups' if own else '[tool.poetry')}: groups {', '.join(groups)}",
            hint=f"pass {file}[{groups[0]}]",
        )


def _hint_for_tool(here: _Project) -> str:
    if here.table("tool", "pixi"):
        return "pass the pixi.lock that 'pixi lock' writes"
    if here.table("tool", "poetry"):
        return "pass the poetry.lock that 'poetry lock' writes"
    return (
        "list the packages in a requirements.txt; if the folder has a setup.py or a setup.cfg, the line ./ in a "
        "requirements.txt adds its project"
    )


def _lines(texts: Iterable[str], here: _Project) -> list[PipLine]:
    return [parse_package(text, here.where(text), text) for text in texts]


def _wanted(here: _Project) -> tuple[list[str], tuple[Include, ...]]:
    """Return the requirements, and the files with requirements that the project's build would read."""
    project = here.table("project")
    wanted = [*here.texts(project.get("dependencies", []), "dependencies")]
    files = _dynamic_files(here, "dependencies") if "dependencies" in _dynamic(here) else ()
    if "dependencies" in _dynamic(here) and not files:
        hint = "pass the file that contains them, for example requirements.txt"
        hint = _hint_for_tool(here) if here.table("tool", "poetry") else hint
        raise UsageError(f"cannot read the dependencies in {here.file}: its build computes them (dynamic)", hint=hint)
    seen: set[str] = set()
    for name in here.asked:
        more, of_extra = _extra_requirements(name, here, seen)
        wanted += more
        files += of_extra
    return _without_self(wanted, here, seen), tuple(Include(path, constraint=False, where=at) for path, at in files)


def _dynamic(here: _Project) -> list[str]:
    return here.texts(here.table("project").get("dynamic", []), "dynamic")


def _dynamic_files(here: _Project, *keys: str) -> tuple[tuple[str, Where], ...]:
    """Return the files from which setuptools or hatch-requirements-txt reads dependencies."""
    table = here.table("tool", "setuptools", "dynamic", *keys)
    hook = here.table("tool", "hatch", "metadata", "hooks", "requirements_txt")
    of_hatch = hook.get("files") if keys == ("dependencies",) else here.table(*_HATCH, *keys[:1]).get(keys[-1])
    found = table.get("file", of_hatch or [])
    names = here.texts([found] if isinstance(found, str) else found, "file")
    return tuple((name, here.where(name)) for name in names)


_HATCH = ("tool", "hatch", "metadata", "hooks", "requirements_txt")


def _extra_requirements(name: str, here: _Project, seen: set[str]) -> tuple[list[str], tuple[tuple[str, Where], ...]]:
    """Return the requirements of an extra or a dependency group, and files that contain them."""
    if name in seen:
        return [], ()
    seen.add(name)
    extras: dict[str, str] = {canonicalize_name(key): key for key in here.table("project", "optional-dependencies")}
    groups: dict[str, str] = {canonicalize_name(key): key for key in here.groups}
    late: dict[str, str] = {
        canonicalize_name(key): key
        for table in (("tool", "setuptools", "dynamic", "optional-dependencies"), (*_HATCH, "optional-dependencies"))
        for key in here.table(*table)
    }
    if key := extras.get(name):
        return here.texts(here.table("project", "optional-dependencies")[key], key), ()
    if key := late.get(name):
        return [], _dynamic_files(here, "optional-dependencies", key)
    if key := groups.get(name):
        return _group_requirements(here.groups[key], key, here, seen), ()
    known = ", ".join((*extras, *late)) or "none"
    otherwise = f"choose one of them, or write {here.file} without brackets"
    raise UsageError(
        f"{here.file} has no extra '{name}'" + (" and no group of that name" if groups else ""),
        evidence=f"it has {known}" + (f"; groups: {', '.join(groups)}" if groups else ""),
        hint=did_you_mean(name, (*extras, *late, *groups), otherwise, form=f"{here.file}[{{}}]"),
    )


def _group_requirements(rows: Any, key: str, here: _Project, seen: set[str]) -> list[str]:
    wanted: list[str] = []
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict) and isinstance(row.get("include-group"), str):
            wanted += _extra_requirements(canonicalize_name(row["include-group"]), here, seen)[0]
        else:
            wanted += here.texts([row], key)
    return wanted


def _without_self(texts: list[str], here: _Project, seen: set[str]) -> list[str]:
    """Replace the project's own name by the named extras, for example in ``all = ["mine[gpu,test]"]``."""
    left: list[str] = []
    for text in texts:
        named = _named(text)
        if named is None or canonicalize_name(named.name) != here.name:
            left.append(text)
            continue
        for extra in sorted(named.extras):
            more, _ = _extra_requirements(canonicalize_name(extra), here, seen)
            left += _without_self(more, here, seen)
    return left


def _named(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _choose_source(source: Any, here: _Project) -> dict[str, Any]:
    """Return the source for Linux and the requested extras; uv allows one, or several with markers."""
    for each in source if isinstance(source, list) else [source]:
        if isinstance(each, dict) and _holds(each, here):
            return each
    return {}


def _holds(source: Mapping[str, Any], here: _Project) -> bool:
    needed = [canonicalize_name(str(source[key])) for key in ("extra", "group") if source.get(key)]
    if needed and not set(needed) & set(here.asked):
        return False
    marker = str(source.get("marker", ""))
    try:
        return not marker or Marker(marker).evaluate({**ON_LINUX, "extra": ""})
    except (InvalidMarker, UndefinedEnvironmentName) as error:
        raise bad_line("invalid environment marker", here.where(marker), marker) from error


def _sourced(line: PipLine, source: Mapping[str, Any], here: _Project) -> PipLine:
    """Apply an entry of ``tool.uv.sources``: a git address, an archive, a folder, or an index."""
    if not source or line.kind is not PipKind.INDEX:
        return line
    if source.get("workspace"):
        return _of_workspace(line, here)
    part = f"#subdirectory={source['subdirectory']}" if source.get("subdirectory") else ""
    if git := source.get("git"):
        at = next((f"@{source[key]}" for key in ("rev", "tag", "branch") if source.get(key)), "")
        url = str(git) if str(git).startswith("git+") else f"git+{git}"
        return replace(line, kind=PipKind.VCS, spec=at_address(line, f"{url}{at}{part}"))
    if address := source.get("url"):
        return replace(line, kind=PipKind.URL, spec=at_address(line, f"{address}{part}"))
    if path := source.get("path"):
        return replace(_in_folder(line, str(path)), editable=bool(source.get("editable")))
    return replace(line, index=_index(str(source["index"]), line, here)) if source.get("index") else line


def _index(name: str, line: PipLine, here: _Project) -> PipIndex:
    found = {str(row.get("name")): row for row in _indexes(here.uv) if row.get("name")}
    if name not in found:
        what = f"unknown index {name} for the package {line.name}"
        hint = f"add a [[tool.uv.index]] of that name; known: {', '.join(found) or 'none'}"
        raise bad_line(what, here.where(f'"{name}"'), name, hint=hint)
    return PipIndex(str(found[name].get("url", "")), found[name].get("format") == "flat")


def _indexes(uv: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = uv.get("index", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _of_workspace(line: PipLine, here: _Project) -> PipLine:
    folder = here.workspace.members.get(line.name) if here.workspace else None
    if folder is None:
        known = ", ".join(sorted(filter(None, here.workspace.members))) if here.workspace else "none"
        raise bad_line("the workspace has no such project", line.where, line.text, hint=f"its projects: {known}")
    return _in_folder(line, str(folder))


def _in_folder(line: PipLine, path: str) -> PipLine:
    asked = Requirement(line.spec)
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    return replace(line, kind=PipKind.LOCAL, spec="", path=path, extras=extras, marker=str(asked.marker or ""))


def at_address(line: PipLine, address: str) -> str:
    """Return the requirement of a line with an address instead of a version; extras and marker are kept."""
    asked = Requirement(line.spec)
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    return f"{line.name}{extras} @ {address}" + (f" ; {asked.marker}" if asked.marker else "")


_OPTIONS = {
    "own": ("own-index", "own-links"),
    "default": ("index-url", "default-links"),
    "more": ("extra-index-url", "find-links"),
}
"""Option for an index and for a flat index, by scope: packages that name it, the default index, all packages."""


def _options(uv: Mapping[str, Any], used: set[str], free: set[str], here: _Project) -> Iterator[PipOption]:
    """Yield the options for uv's indexes; an explicit index is included only if a package names it.

    `used` has the indexes that packages name, and `free` those that serve all packages nevertheless.
    """
    for index in sorted(_indexes(uv), key=lambda row: not row.get("default")):  # the default index comes first
        url, name, explicit = str(index.get("url", "")), str(index.get("name")), bool(index.get("explicit"))
        kind = "own" if explicit and name not in free else "default" if index.get("default") else "more"
        if url and (name in used or not explicit):
            yield PipOption(_OPTIONS[kind][index.get("format") == "flat"], url, here.where(url))
    if first := uv.get("index-url"):
        yield PipOption("index-url", str(first), here.where(str(first)))
    lists: tuple[tuple[str, str, Callable[[str], str]], ...] = (
        ("extra-index-url", "extra-index-url", str),
        ("find-links", "find-links", str),
        ("no-binary-package", "no-binary", canonicalize_name),
        ("no-build-package", "only-binary", canonicalize_name),
    )
    for key, name, normal in lists:
        for value in here.uv_texts(key):
            yield PipOption(name, normal(value), here.where(value))
    if uv.get("prerelease") == "allow":
        yield PipOption("pre", "", here.where("prerelease"))
