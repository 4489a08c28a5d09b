"""Find profiles on the search path, read them and merge their fragments; errors give file, line and key.

Nothing in a profile is executed: there are no templates, no command substitution and no includes by URL.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import Host
from argosy.core.render import count
from argosy.core.session import config_folder
from argosy.core.shell import quote
from argosy.core.suggest import did_you_mean, suggest_word
from argosy.core.toml_lines import TomlFault, describe_ignored, find_fault, find_line, load_toml
from argosy.recipes.trust import foreign_owner, how_to_trust
from argosy.sites.profile import Site
from argosy.sites.profile_parts import Evident

DATA = Path(__file__).parent / "data"
FRAGMENT = "_"
"""Prefix of the file names of fragments: parts that profiles include by ``use``, but that are not sites."""

NAMES = frozenset({"sources", "modes"})
"""Tables whose keys are chosen by the author of the profile: a key ``source`` there is no evidence of a part."""

Table = dict[str, Any]

PROJECT_FOLDER = "argosy-sites"
"""Folder of the profiles of a project; those of another user are not used."""

SYSTEM = Path("/etc/argosy/sites")
"""Profiles of the administrators of this machine."""

NOT_SHIPPED = "not shipped with Argosy"
"""Source of a profile of the user or the administrators, whose name no shipped profile has."""


def search_path(environment: Mapping[str, str], project: Path) -> tuple[Path, ...]:
    """Return the folders of profiles by precedence: project, user, system, shipped."""
    user = user_profiles(environment)
    return (project / PROJECT_FOLDER, *((user,) if user else ()), SYSTEM, DATA)


def profile_folders(host: Host) -> tuple[Path, ...]:
    """Return the folders of profiles for this user and the current directory."""
    return search_path(host.environment, Path(host.cwd))


def user_profiles(environment: Mapping[str, str]) -> Path | None:
    """Return the folder of the user's own profiles; None for a user without a home folder."""
    folder = config_folder(environment)
    return folder / "sites" if folder else None


def site_names(folders: Sequence[Path] = (DATA,)) -> tuple[str, ...]:
    """Return the names of all profiles in these folders; see `_unused_folders` for those that cannot be read."""
    names = {path.stem for path in list_profiles(folders)}
    return tuple(sorted(name for name in names if not name.startswith(FRAGMENT)))


def list_profiles(folders: Sequence[Path]) -> list[Path]:
    """Return the files of all profiles and fragments in these folders."""
    return [path for folder in _used(folders) for path in sorted(folder.glob("*.toml"))]


def _used(folders: Sequence[Path]) -> list[Path]:
    """Return these folders without a project's that another user owns, or in which another user owns a file."""
    return [folder for folder in folders if not foreign_profiles(folder)]


def foreign_profiles(folder: Path) -> str:
    """Return whose profiles of a project are not used, and how to use them; empty for any other folder."""
    owner = foreign_owner(folder, *folder.glob("*.toml")) if folder.name == PROJECT_FOLDER else ""
    return f"{folder} is not used, because it belongs to {owner}; {how_to_trust(folder.parent)}" if owner else ""


def _unused_folders(folders: Sequence[Path]) -> list[SiteError]:
    """Return why folders that exist are not used: `Path.glob` passes over those that cannot be listed."""
    out: list[SiteError] = []
    for folder in folders:
        try:
            os.listdir(folder)  # noqa: PTH208 - only to see the error
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            place = f"{folder}: {error.strerror}"
            out.append(SiteError("cannot read a folder of profiles", evidence=place, hint="ask its owner for mode 755"))
        else:
            what, _, hint = foreign_profiles(folder).partition("; ")
            out += [SiteError(what, hint=hint)] if what else []
    return out


def find_profile(name: str, folders: Sequence[Path]) -> Path:
    """Find the file of a profile: a path that ends in ``.toml``, else the first one of that name on the search path.

    Raises
    ------
    SiteError
        When there is none; the hint suggests the most similar name.
    """
    paths = [Path(name)] if name.endswith(".toml") else [each / f"{name}.toml" for each in _used(folders)]
    found = next((path for path in paths if os.path.isfile(path)), None)  # noqa: PTH113 - Path's raises for long names
    if found is None or found.name.startswith(FRAGMENT):
        known = site_names(folders)
        files = [
            str(each) for each in Path(name).parent.glob("*.toml") if each.name != "argosy.toml" and each.is_file()
        ]
        own = f"{name}.toml"
        near = own if own in files else " or ".join(_sites_like(name, folders)) or suggest_word(name, [*known, *files])
        is_path = name.endswith(".toml")
        unused = (": ".join(filter(None, (each.what, each.evidence))) for each in _unused_folders(folders))
        raise SiteError(
            f"cannot find the site profile {name}" if is_path else f"unknown site {name!r}",
            evidence="it is a folder" * os.path.isdir(name)  # noqa: PTH112 - Path's raises for long names
            if is_path
            else "\n".join(
                [
                    f"known: {', '.join(known)}; or give the path of a profile, which ends in .toml",
                    *unused,
                ]
            ),
            hint=f"did you mean {near}?" if near else "see 'argosy sites ls'",
        )
    return found


def _sites_like(name: str, folders: Sequence[Path]) -> list[str]:
    """Return the sites whose name or title begins with a name, ignoring case, blanks and hyphens."""
    wanted = _letters(name)
    titles = {each: _title(each, folders) for each in site_names(folders)} if wanted else {}
    return [each for each, title in titles.items() if any(_letters(text).startswith(wanted) for text in (each, title))]


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.casefold())


def _title(name: str, folders: Sequence[Path]) -> str:
    try:
        text = find_profile(name, folders).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    match = re.search(r'^title = "(.*)"$', text, re.MULTILINE)
    return match[1] if match else ""


def describe_source(name: str, folders: Sequence[Path]) -> tuple[Path, str]:
    """Return the file of a profile and, unless it is a shipped one or given by its path, where it comes from."""
    path = find_profile(name, folders)
    if name.endswith(".toml") or path.parent == DATA:
        return path, ""
    source = "from this folder" if path.parent == folders[0] else NOT_SHIPPED
    what = _replaced(path, folders)
    return path, f"{source}; it replaces {what}" if what else source


def _replaced(path: Path, folders: Sequence[Path]) -> str:
    """Return which profile of a later folder a profile on the search path replaces; empty if it replaces none."""
    later = [folder / path.name for folder in folders[folders.index(path.parent) + 1 :]]
    hidden = next((file for file in (*later, DATA / path.name) if os.path.isfile(file)), None)  # noqa: PTH113 - closed
    if hidden is None or path.parent == DATA:
        return ""
    return f"the shipped profile {path.stem}" if hidden.parent == DATA else str(hidden)


def replaced_profiles(folders: Sequence[Path]) -> Iterator[str]:
    """Yield a line about each profile of the project or the user that replaces one of the administrators."""
    for name in site_names([SYSTEM]):
        path = find_profile(name, folders)
        if path.parent != SYSTEM:
            yield f"{path} replaces {SYSTEM / path.name}"


def read_site(name: str, folders: Sequence[Path] = (DATA,)) -> Site:
    """Read the profile of a site with its fragments, by its name or by its path (``./my-site.toml``).

    Raises
    ------
    SiteError
        When there is no such profile, or it is invalid; the evidence gives file, line and key.
    """
    path = find_profile(name, folders)
    table = read_table(path)
    merged: Table = {}
    for fragment in _fragments(table, path, folders):
        merged = _merge_tables(merged, read_table(fragment))
    site = msgspec.convert(_merge_tables(merged, table), Site)
    for key in ("name", "title"):
        if not getattr(site, key):
            raise SiteError(
                f"invalid profile {path.name}: it has no {key}", evidence=str(path), hint=f'add {key} = "…"'
            )
    return site


def read_sites(folders: Sequence[Path], skipped: Callable[[SiteError], None] | None = None) -> Iterator[Site]:
    """Yield the sites whose profiles can be read, and are in the file of their name.

    Parameters
    ----------
    skipped
        Called with the error of each other profile, and of each folder that cannot be read.
    """
    report = skipped or (lambda _: None)
    for unused in _unused_folders(folders):
        report(unused)
    for name in site_names(folders):
        try:
            site = read_site(name, folders)
            _refuse_other_name(site, find_profile(name, folders))
        except SiteError as error:
            report(with_replaced(error, name, folders))
            continue
        yield site


def with_replaced(error: SiteError, name: str, folders: Sequence[Path]) -> SiteError:
    """Return the error of an invalid profile, whose hint also names the profile that it replaces."""
    path = find_profile(name, folders)
    replaced = _replaced(path, folders) if path.parent in folders else ""
    if replaced:
        error.hint = f"{error.hint}; or remove the file, to use {replaced} again"
    return error


def _refuse_other_name(site: Site, path: Path) -> None:
    """Refuse a profile in a file of another name: its own name would be shown, and ``--site`` would not find it."""
    if site.name != path.stem:
        line = find_line(path.read_text(encoding="utf-8"), ("name",))
        raise SiteError(
            f"the profile {path.name} has the name of another file: {site.name}",
            evidence=f"{path}:{line}: name",
            hint=f'write name = "{path.stem}", or rename the file to {site.name}.toml; move copies elsewhere',
        )


def read_table(path: Path) -> Table:
    """Read one file and check its format.

    Raises
    ------
    SiteError
        When it is invalid; the evidence gives file, line and key, the hint the most similar known key.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        return parse_table(text, str(path))
    except msgspec.ValidationError as error:
        table = _known_part(path, text) if path.parent == SYSTEM else None
        if table is None:
            raise _explain_invalid(path, text, str(error)) from error
        return table
    except (OSError, UnicodeDecodeError) as error:
        hint = "check the path and its permissions; the file must be UTF-8"
        raise SiteError(f"cannot read the profile {path.name}", evidence=f"{path}: {error}", hint=hint) from error


def _known_part(path: Path, text: str) -> Table | None:
    """Return a profile without the keys that this version does not know; None if it has other faults."""
    table = load_toml(text, str(path), kind=SiteError)
    try:
        for fault in _unknown_keys(path):
            *above, last = fault.keys
            part: Any = table
            for each in above:
                part = part[int(each) if isinstance(part, list) else each]
            del part[last]
        msgspec.convert(table, Site)
    except msgspec.ValidationError:
        return None
    return table


def _unknown_keys(path: Path) -> list[TomlFault]:
    """Return the faults of a file that are unknown keys."""
    from argosy.sites.faults import read_faults  # noqa: PLC0415 - only for an invalid file

    return [fault for fault in read_faults(path) if fault.unknown]


def describe_unused(path: Path) -> str:
    """Return a note about the keys of a profile of the administrators that this version does not know; else empty."""
    if path.parent != SYSTEM:
        return ""
    try:
        parse_table(path.read_text(encoding="utf-8"), str(path))
    except msgspec.ValidationError:
        return describe_ignored(path, {fault.key: fault.line for fault in _unknown_keys(path)})
    except (OSError, UnicodeDecodeError, SiteError):
        pass  # whoever reads the profile gets this error
    return ""


@functools.lru_cache(maxsize=64)
def parse_table(text: str, file: str) -> Table:
    """Parse a profile and check its types. Results are cached, because many profiles share a fragment."""
    table = load_toml(text, file, kind=SiteError)
    msgspec.convert(table, Site)
    return table


def fragment_files(path: Path, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Return the files of the fragments and sites that a profile includes, in order.

    Raises
    ------
    SiteError
        When one of them does not exist; the hint suggests the most similar name.
    """
    return _fragments(read_table(path), path, folders)


def _fragments(table: Table, path: Path, folders: Sequence[Path], within: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Return the files that a profile includes, each after those that it includes itself."""
    out: list[Path] = []
    for name in table.get("use", ()):
        file = _find_fragment(name, path, folders, (*within, path))
        out += [*_fragments(read_table(file), file, folders, (*within, path)), file]
    return tuple(dict.fromkeys(out))


def _find_fragment(name: str, path: Path, folders: Sequence[Path], within: tuple[Path, ...]) -> Path:
    """Find a name of ``use``: a fragment, else a site, but no profile that includes this one."""
    paths = [path.parent, *_used(folders), DATA]
    files = [place / f"{kind}{name}.toml" for kind in (FRAGMENT, "") for place in paths]
    found = next((file for file in files if file.is_file() and file not in within), None)
    if found is not None:
        return found
    line = find_line(path.read_text(encoding="utf-8"), ("use",))
    includer = next((file for file in within if file in files), None)
    if includer:
        raise _cycle((*within[within.index(includer) :], includer), line)
    known = sorted({p.stem.removeprefix(FRAGMENT) for place in paths for p in place.glob("*.toml")} - {path.stem})
    raise SiteError(
        f"cannot find the fragment or site {name!r}",
        evidence=f"{path}:{line}: use; known: {', '.join(known)}",
        hint=did_you_mean(name, known, "choose one of them, or write the file next to the profile", form="'{}'"),
    )


def _cycle(files: tuple[Path, ...], line: int) -> SiteError:
    """Return the error for profiles that include each other: each of `files` is included by the one before.

    `line` is that of ``use`` in the last but one, which includes the first.
    """
    names = [file.stem.removeprefix(FRAGMENT) for file in files]
    first, last = names[0], names[-2]
    place = f"{files[-2]}:{line}: use"
    if len(set(names)) == 1:
        return SiteError(
            f"the profile includes itself, and there is no other profile of its name: {' -> '.join(names)}",
            evidence=place,
            hint=f"remove {first} from use; its own name means the next profile of that name on the search path",
        )
    shown = " -> ".join(names)
    hint = f"remove {first} from use of {last}, or move what both need to a fragment _NAME.toml"
    return SiteError(f"these profiles include each other: {shown}", evidence=place, hint=hint)


def _merge_tables(first: Table, second: Table) -> Table:
    """Merge two profiles: tables key by key, lists of parts appended, everything else from the second profile.

    A part of the second profile replaces all parts of the first one with the same name.
    """
    out = dict(first)
    for key, value in second.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = old | value if key in NAMES else _merge_part(old, value)
        elif isinstance(old, list) and isinstance(value, list) and key != "use":
            named = {part.get("name") for part in value if isinstance(part, dict)} - {None}
            kept = [part for part in old if not isinstance(part, dict) or part.get("name") not in named]
            out[key] = [*kept, *value]
        else:
            out[key] = value
    return out


def _merge_part(old: Table, new: Table) -> Table:
    """Merge two tables key by key: each value keeps its source, and a replaced value loses its proof."""
    joined = old | new
    if old.get("source", "") != new.get("source", ""):
        kept = dict.fromkeys((key for key in old if key not in new), old.get("source", ""))
        own = dict.fromkeys(new, new.get("source", ""))
        sources = kept | old.get("sources", {}) | own | new.get("sources", {})
        joined["sources"] = {key: text for key, text in sources.items() if key not in Evident.__struct_fields__}
    if "proofs" in old:
        joined["proofs"] = {key: text for key, text in old["proofs"].items() if key not in new} | new.get("proofs", {})
    return joined


def _explain_invalid(path: Path, text: str, message: str) -> SiteError:
    """Return the error for an invalid file: all of its faults with line and key, and how to correct the first.

    `message` is that of msgspec, which is about the first fault.
    """
    from argosy.sites.faults import read_faults  # noqa: PLC0415 - only for an error

    found = read_faults(path) or (find_fault(text, message, Site),)
    first, *others = found
    unknown = "unknown key" if others else ""
    rows = [(f"{path}:{fault.line}", fault.key, fault.what or unknown) for fault in found]
    places = [": ".join(filter(None, row)) for row in rows]
    whole = f"to see how to correct each: argosy sites lint {quote(str(path))}"
    if others:
        what, hint = f"invalid profile {path.name}: {count(len(found), 'fault')}", whole
    elif first.unknown:
        what, hint = f"unknown key {first.unknown!r} in the profile {path.name}", first.hint
    else:
        what, hint = f"invalid profile {path.name}", first.hint or "correct the value"
    return SiteError(what, evidence="\n".join(places), hint=hint)
