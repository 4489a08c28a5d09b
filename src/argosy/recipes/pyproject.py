"""Parse what a Python project needs, from its pyproject.toml: its own tables, and those of uv that change them.

Sources: "pyproject.toml specification" and "Dependency Groups" of the Python packaging user guide; uv's reference of
``tool.uv``; "Dynamic metadata" of setuptools.  It opens no file: those that hold a project's dependencies are named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.recipes.recipe import Asked, Include, Note, Part, PipIndex, PipKind, PipLine, PipOption, Where, bad_line
from argosy.recipes.requirements import parse_package
from argosy.recipes.source_text import Finder, finder, load_toml
from argosy.recipes.tool_tables import Workspace, judge_other_tables, poetry_groups

NOT_INSTALLED = "the project itself is not installed, only what it needs: its code can change without a new image"
ON_LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


class _Project(msgspec.Struct, frozen=True):
    """The file at hand, the extras and groups that are asked for, and the workspace that it is of."""

    data: Mapping[str, Any]
    file: str
    where: Finder
    asked: tuple[str, ...]
    workspace: Workspace | None = None

    @property
    def uv(self) -> Mapping[str, Any]:
        """Give the settings of uv: a workspace has those of its root, and the indexes of both."""
        own = self.table("tool", "uv")
        if self.workspace is None:
            return own
        first = own.get("index")
        return {
            **self.workspace.uv,
            "index": [*(first if isinstance(first, list) else ()), *self.workspace.indexes],
        }

    @property
    def sources(self) -> dict[str, Any]:
        """Give where uv takes packages from: what a workspace's root says, and then the project itself."""
        shared = self.workspace.sources if self.workspace else {}
        return {**shared, **self.table("tool", "uv", "sources")}

    @property
    def name(self) -> str:
        """Give the normalised name of the project; empty where it has none."""
        return str(canonicalize_name(str(self.table("project").get("name", ""))))

    def table(self, *keys: str) -> dict[str, Any]:
        """Give a table of the file; an empty one where there is none."""
        found: Any = self.data
        for key in keys:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def texts(self, found: Any, key: str) -> list[str]:
        """Give a list of texts.

        Raises
        ------
        UsageError
            When it is something else.
        """
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise UsageError(f"{self.file}: '{key}' is no list of texts", evidence=str(self.where(key)))
        return found

    def of_uv(self, key: str) -> list[str]:
        """Give a list of texts of ``tool.uv``."""
        return self.texts(self.uv.get(key, []), key)


def parse_pyproject(text: str, file: str, *, extras: tuple[str, ...], workspace: Workspace | None) -> Part:
    """Parse what a project needs to run: its dependencies, those of `extras`, its Python, and where uv looks for them.

    Parameters
    ----------
    extras
        Names of extras or of dependency groups.
    workspace
        What the project is a member of: its settings hold here, and its projects may be meant.

    Raises
    ------
    UsageError
        For TOML that does not parse, a file without a project, dependencies that only its build knows.
    """
    data = load_toml(text, file)
    here = _Project(data, file, finder(text, file), tuple(str(canonicalize_name(name)) for name in extras), workspace)
    project = here.table("project")
    if not project and not here.table("dependency-groups"):
        raise UsageError(f"{file} has no [project]", evidence=_what_else(here), hint=_way_out(here))
    wanted, includes = _wanted(here)
    if not wanted and not includes and not here.asked:
        _refuse_groups_alone(here)
    uv = here.uv
    sources = {str(canonicalize_name(name)): _choose_source(source, here) for name, source in here.sources.items()}
    python = str(project.get("requires-python", "")).replace(" ", "")
    lines = _lines(wanted, here)
    overrides = _lines(here.of_uv("override-dependencies"), here)
    used = {name: str(source.get("index")) for name, source in sources.items()}
    # uv looks for what an override asks for in the common indexes.
    free = {used.get(line.name, "") for line in overrides}
    return Part(
        python=(Asked("python", python, here.where("requires-python")),) if python else (),
        pip=tuple(_sourced(line, sources.get(line.name, {}), here) for line in lines),
        constraints=tuple(_lines(here.of_uv("constraint-dependencies"), here)),
        overrides=tuple(overrides),
        unisolated=tuple(str(canonicalize_name(name)) for name in here.of_uv("no-build-isolation-package")),
        options=tuple(_options(uv, set(used.values()), free, here)),
        includes=includes,
        notes=(
            Note(NOT_INSTALLED, here.where("[project]")),
            *judge_other_tables(here.table("tool"), {line.name for line in lines}, here.name, file, here.where),
            *_of_builds(lines, here),
        ),
    )


def _of_builds(lines: list[PipLine], here: _Project) -> Iterator[Note]:
    """Note that extra build requirements (mostly torch) are not given to builds of packages."""
    more = {str(canonicalize_name(name)): name for name in here.uv.get("extra-build-dependencies") or ()}
    for name in sorted(more.keys() & {line.name for line in lines}):
        said = "is built without its extra-build-dependencies: --no-build-isolation builds it against what is there"
        yield Note(f"{name} {said}", here.where(more[name]))


def _refuse_groups_alone(here: _Project) -> None:
    """Refuse a file whose packages are all in groups, when none of these is asked for.

    Raises
    ------
    UsageError
        Naming the groups.
    """
    own = () if here.table("project") else tuple(here.table("dependency-groups"))
    groups = own or poetry_groups(here.table("tool"))
    if groups:
        file = here.file if own else "the poetry.lock that 'poetry lock' writes, as poetry.lock"
        raise UsageError(
            f"{here.file} has packages only in groups, and no group was requested",
            evidence=f"{here.where('[dependency-groups' if own else '[tool.poetry')}: groups {', '.join(groups)}",
            hint=f"name {file}[{groups[0]}]",
        )


def _what_else(here: _Project) -> str:
    return f"{here.where('[tool.poetry')}: a Poetry project" if here.table("tool", "poetry") else ""


def _way_out(here: _Project) -> str:
    if here.table("tool", "pixi"):
        return "name the pixi.lock that 'pixi lock' writes"
    if here.table("tool", "poetry"):
        return "name the poetry.lock that 'poetry lock' writes"
    return "list the packages in a requirements.txt"


def _lines(texts: Iterable[str], here: _Project) -> list[PipLine]:
    return [parse_package(text, here.where(text), text) for text in texts]


def _wanted(here: _Project) -> tuple[list[str], tuple[Include, ...]]:
    """Give the requirements asked for, and the files that hold those which the project's build would read."""
    project = here.table("project")
    wanted = [*here.texts(project.get("dependencies", []), "dependencies")]
    files = _dynamic_files(here, "dependencies") if "dependencies" in _dynamic(here) else ()
    if "dependencies" in _dynamic(here) and not files:
        hint = "name the file that they come from, as requirements.txt"
        hint = _way_out(here) if here.table("tool", "poetry") else hint
        raise UsageError(f"the dependencies in {here.file} are dynamic: only the project's build knows them", hint=hint)
    seen: set[str] = set()
    for name in here.asked:
        more, of_extra = _of_extra(name, here, seen)
        wanted += more
        files += of_extra
    return _without_self(wanted, here, seen), tuple(Include(path, constraint=False, where=at) for path, at in files)


def _dynamic(here: _Project) -> list[str]:
    return here.texts(here.table("project").get("dynamic", []), "dynamic")


def _dynamic_files(here: _Project, *keys: str) -> tuple[tuple[str, Where], ...]:
    """Give the files that setuptools, or hatch-requirements-txt, takes dependencies from."""
    table = here.table("tool", "setuptools", "dynamic", *keys)
    hook = here.table("tool", "hatch", "metadata", "hooks", "requirements_txt")
    of_hatch = hook.get("files") if keys == ("dependencies",) else here.table(*_HATCH, *keys[:1]).get(keys[-1])
    found = table.get("file", of_hatch or [])
    names = here.texts([found] if isinstance(found, str) else found, "file")
    return tuple((name, here.where(name)) for name in names)


_HATCH = ("tool", "hatch", "metadata", "hooks", "requirements_txt")


def _of_extra(name: str, here: _Project, seen: set[str]) -> tuple[list[str], tuple[tuple[str, Where], ...]]:
    """Give what an extra, or a dependency group, asks for."""
    if name in seen:
        return [], ()
    seen.add(name)
    extras = {str(canonicalize_name(key)): key for key in here.table("project", "optional-dependencies")}
    groups = {str(canonicalize_name(key)): key for key in here.table("dependency-groups")}
    late = {
        str(canonicalize_name(key)): key
        for table in (("tool", "setuptools", "dynamic", "optional-dependencies"), (*_HATCH, "optional-dependencies"))
        for key in here.table(*table)
    }
    if key := extras.get(name):
        return here.texts(here.table("project", "optional-dependencies")[key], key), ()
    if key := late.get(name):
        return [], _dynamic_files(here, "optional-dependencies", key)
    if key := groups.get(name):
        return _of_group(here.table("dependency-groups")[key], key, here, seen), ()
    known = ", ".join((*extras, *late)) or "none"
    raise UsageError(
        f"{here.file} has no extra '{name}'" + (" and no group of that name" if groups else ""),
        evidence=f"it has {known}" + (f"; groups: {', '.join(groups)}" if groups else ""),
    )


def _of_group(rows: Any, key: str, here: _Project, seen: set[str]) -> list[str]:
    wanted: list[str] = []
    for row in rows if isinstance(rows, list) else [rows]:
        if isinstance(row, dict) and isinstance(row.get("include-group"), str):
            wanted += _of_extra(str(canonicalize_name(row["include-group"])), here, seen)[0]
        else:
            wanted += here.texts([row], key)
    return wanted


def _without_self(texts: list[str], here: _Project, seen: set[str]) -> list[str]:
    """Put what is meant in the place of the project's own name: ``all = ["mine[gpu,test]"]``."""
    left: list[str] = []
    for text in texts:
        named = _named(text)
        if named is None or str(canonicalize_name(named.name)) != here.name:
            left.append(text)
            continue
        for extra in sorted(named.extras):
            more, _ = _of_extra(str(canonicalize_name(extra)), here, seen)
            left += _without_self(more, here, seen)
    return left


def _named(text: str) -> Requirement | None:
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _choose_source(source: Any, here: _Project) -> dict[str, Any]:
    """Give the source that holds on Linux and for the extras asked for: uv has one, or several with markers."""
    for each in source if isinstance(source, list) else [source]:
        if isinstance(each, dict) and _holds(each, here):
            return each
    return {}


def _holds(source: Mapping[str, Any], here: _Project) -> bool:
    wished = [str(canonicalize_name(str(source[key]))) for key in ("extra", "group") if source.get(key)]
    if wished and not set(wished) & set(here.asked):
        return False
    marker = str(source.get("marker", ""))
    try:
        return not marker or Marker(marker).evaluate({**ON_LINUX, "extra": ""})
    except (InvalidMarker, UndefinedEnvironmentName) as error:
        raise bad_line("this is no environment marker", here.where(marker), marker) from error


def _sourced(line: PipLine, source: Mapping[str, Any], here: _Project) -> PipLine:
    """Follow ``tool.uv.sources``: a git address, an archive, a folder, an index."""
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
    """Give an index by its name."""
    found = {str(row.get("name")): row for row in _indexes(here.uv) if row.get("name")}
    if name not in found:
        what = f"no index is named {name}, which {line.name} is to come from"
        hint = f"add a [[tool.uv.index]] of that name; there is {', '.join(found) or 'none'}"
        raise bad_line(what, here.where(f'"{name}"'), name, hint=hint)
    return PipIndex(str(found[name].get("url", "")), found[name].get("format") == "flat")


def _indexes(uv: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = uv.get("index", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _of_workspace(line: PipLine, here: _Project) -> PipLine:
    folder = here.workspace.members.get(line.name) if here.workspace else None
    if folder is None:
        known = ", ".join(sorted(filter(None, here.workspace.members))) if here.workspace else "none"
        hint = f"projects of the workspace: {known}"
        raise bad_line("the workspace has no project of that name", line.where, line.text, hint=hint)
    return _in_folder(line, str(folder))


def _in_folder(line: PipLine, path: str) -> PipLine:
    asked = Requirement(line.spec)
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    return replace(line, kind=PipKind.LOCAL, spec="", path=path, extras=extras, marker=str(asked.marker or ""))


def at_address(line: PipLine, address: str) -> str:
    """Give the requirement of a line with an address in place of a version; extras and marker stay."""
    asked = Requirement(line.spec)
    extras = f"[{','.join(sorted(asked.extras))}]" if asked.extras else ""
    return f"{line.name}{extras} @ {address}" + (f" ; {asked.marker}" if asked.marker else "")


_OPTIONS = {
    "own": ("own-index", "own-links"),
    "default": ("index-url", "default-links"),
    "more": ("extra-index-url", "find-links"),
}
"""What an index is called, and what a flat one is, by whom it serves: one package, all in PyPI's place, all."""


def _options(uv: Mapping[str, Any], used: set[str], free: set[str], here: _Project) -> Iterator[PipOption]:
    """Give where uv looks for packages; an index that is for single packages only where one of them comes from it.

    Parameters
    ----------
    used, free
        Names of indexes that a package comes from, and of those that serve all the same.
    """
    for index in sorted(_indexes(uv), key=lambda row: not row.get("default")):  # what is to stand in PyPI's place first
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
        for value in here.of_uv(key):
            yield PipOption(name, normal(value), here.where(value))
    if uv.get("prerelease") == "allow":
        yield PipOption("pre", "", here.where("prerelease"))
