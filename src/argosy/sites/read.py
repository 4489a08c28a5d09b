"""Read profiles: find them on the search path, join their fragments, and explain what is wrong with file and line.

Nothing in a profile is ever carried out here: no templates, no command substitution, no includes from elsewhere.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from argosy.core.errors import SiteError
from argosy.core.suggest import suggest_word
from argosy.sites.profile import Site

DATA = Path(__file__).parent / "data"
FRAGMENT = "_"
"""Files whose names begin so are fragments: parts that profiles take in by ``use``, never sites by themselves."""

EVIDENCE = frozenset({"why", "source", "checked", "proof", "sources", "proofs"})
"""Keys of a part that are about its values."""

Table = dict[str, Any]


def search_path(environment: Mapping[str, str], project: Path) -> tuple[Path, ...]:
    """Give the folders of profiles, the first one wins: project, user, system, shipped."""
    user = user_profiles(environment)
    return (
        project / "argosy-sites",
        *((user,) if user else ()),
        Path("/etc/argosy/sites"),
        DATA,
    )


def user_profiles(environment: Mapping[str, str]) -> Path | None:
    """Give the folder of the user's own profiles; None for a user without a home."""
    home = environment.get("HOME", "")
    user = environment.get("XDG_CONFIG_HOME") or (f"{home}/.config" if home else "")
    return Path(user) / "argosy/sites" if user else None


def site_names(folders: Sequence[Path] = (DATA,)) -> tuple[str, ...]:
    """Give the names of all profiles in some folders."""
    names = {path.stem for folder in folders for path in folder.glob("*.toml")}
    return tuple(sorted(name for name in names if not name.startswith(FRAGMENT)))


def find_profile(name: str, folders: Sequence[Path]) -> Path:
    """Give the file of a profile: a path that ends in ``.toml``, else the first of that name on the search path.

    Raises
    ------
    SiteError
        When there is none; the nearest is named.
    """
    paths = [Path(name)] if name.endswith(".toml") else [folder / f"{name}.toml" for folder in folders]
    found = next((path for path in paths if path.is_file()), None)
    if found is None or found.name.startswith(FRAGMENT):
        known = site_names(folders)
        files = [str(path) for path in Path(name).parent.glob("*.toml") if path.name != "argosy.toml"]
        near = suggest_word(name, [*known, *files])
        is_path = name.endswith(".toml")
        raise SiteError(
            f"there is no site profile {name}" if is_path else f"there is no site {name!r}",
            evidence="" if is_path else f"known: {', '.join(known)}; or the path of a profile, ending in .toml",
            hint=f"did you mean {near}?" if near else "see 'argosy sites ls'",
        )
    return found


def describe_source(name: str, folders: Sequence[Path]) -> tuple[Path, str]:
    """Give the file of a profile and, where it is not the shipped one, what it is."""
    path = find_profile(name, folders)
    if name.endswith(".toml") or path.parent == DATA:
        return path, ""
    whose = "this folder's own" if path.parent == folders[0] else "not a shipped one"
    instead = f"; it takes the place of the shipped profile {name}" if (DATA / path.name).is_file() else ""
    return path, whose + instead


def read_site(name: str, folders: Sequence[Path] = (DATA,)) -> Site:
    """Read the profile of a site, its fragments joined: by its name, or by its path (``./my-site.toml``).

    Raises
    ------
    SiteError
        When there is none of that name (the nearest is named), or it is not valid: file, line and key.
    """
    path = find_profile(name, folders)
    table = read_table(path)
    merged: Table = {}
    for fragment in _fragments(table, path, folders):
        merged = _join_tables(merged, read_table(fragment))
    site = msgspec.convert(_join_tables(merged, table), Site)
    for key in ("name", "title"):
        if not getattr(site, key):
            raise SiteError(f"the profile {path.name} has no {key}", evidence=str(path), hint=f'add {key} = "…"')
    return site


def read_table(path: Path) -> Table:
    """Read one file and check it against the format.

    Raises
    ------
    SiteError
        When it is not valid: file, line and key, and the nearest known key.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        table = parse_table(text)
    except tomllib.TOMLDecodeError as error:
        from argosy.core.toml_lines import toml_line  # noqa: PLC0415 - a faulty profile only

        line = toml_line(str(error))
        place = f"{path}:{line}" if line else str(path)
        raise SiteError(f"{path.name} is not valid TOML", evidence=f"{place}: {error}") from error
    except msgspec.ValidationError as error:
        raise _explain_invalid(path, text, str(error)) from error
    except (OSError, UnicodeDecodeError) as error:
        raise SiteError(f"the profile {path.name} cannot be read", evidence=f"{path}: {error}") from error
    return table


@functools.lru_cache(maxsize=64)
def parse_table(text: str) -> Table:
    """Parse a profile and check its types; cached, since many profiles share a fragment."""
    table = tomllib.loads(text)
    msgspec.convert(table, Site)
    return table


def fragment_files(path: Path, folders: Sequence[Path]) -> tuple[Path, ...]:
    """Give the files of the fragments and sites that a profile builds on, in their order.

    Raises
    ------
    SiteError
        When there is none of that name; the nearest is named.
    """
    return _fragments(read_table(path), path, folders)


def _fragments(table: Table, path: Path, folders: Sequence[Path], within: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Give the files that a profile builds on, each behind those that it builds on itself."""
    out: list[Path] = []
    for name in table.get("use", ()):
        file = _find_fragment(name, path, folders, (*within, path))
        out += [*_fragments(read_table(file), file, folders, (*within, path)), file]
    return tuple(dict.fromkeys(out))


def _find_fragment(name: str, path: Path, folders: Sequence[Path], within: tuple[Path, ...]) -> Path:
    """Find what ``use`` names: a fragment, else a site; never a profile that is being read already."""
    paths = [path.parent, *folders, DATA]
    files = [place / f"{kind}{name}.toml" for kind in (FRAGMENT, "") for place in paths]
    found = next((file for file in files if file.is_file() and file not in within), None)
    if found is None:
        known = sorted({p.stem.removeprefix(FRAGMENT) for place in paths for p in place.glob("*.toml")} - {path.stem})
        from argosy.core.toml_lines import find_line  # noqa: PLC0415 - likewise

        line = find_line(path.read_text(encoding="utf-8"), ("use",))
        near = suggest_word(name, known)
        raise SiteError(
            f"there is no fragment or site {name!r} to build on",
            evidence=f"{path}:{line}: use; known: {', '.join(known)}",
            hint=f"did you mean {near!r}?" if near else "",
        )
    return found


def _join_tables(first: Table, second: Table) -> Table:
    """Join two profiles: tables key by key, lists of parts one after the other, anything else from the second.

    A setting of the second takes the place of every setting of that name in the first.
    """
    out = dict(first)
    for key, value in second.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            out[key] = _join_part(old, value)
        elif isinstance(old, list) and isinstance(value, list) and key != "use":
            named = {part.get("name") for part in value if isinstance(part, dict)} - {None}
            kept = [part for part in old if not isinstance(part, dict) or part.get("name") not in named]
            out[key] = [*kept, *value]
        else:
            out[key] = value
    return out


def _join_part(old: Table, new: Table) -> Table:
    """Join two tables key by key: each value keeps its own source, and a value that is replaced loses its proof."""
    joined = old | new
    if old.get("source", "") != new.get("source", ""):
        kept = dict.fromkeys((key for key in old if key not in new), old.get("source", ""))
        own = dict.fromkeys(new, new.get("source", ""))
        sources = kept | old.get("sources", {}) | own | new.get("sources", {})
        joined["sources"] = {key: text for key, text in sources.items() if key not in EVIDENCE}
    if "proofs" in old:
        joined["proofs"] = {key: text for key, text in old["proofs"].items() if key not in new} | new.get("proofs", {})
    return joined


def _explain_invalid(path: Path, text: str, message: str) -> SiteError:
    """Turn a validator's message into an error with file, line, key, and the nearest known key."""
    from argosy.core.toml_lines import find_fault  # noqa: PLC0415 - likewise

    fault = find_fault(text, message, Site)
    place = f"{path}:{fault.line}: {fault.key}"
    if not fault.unknown:
        return SiteError(f"the profile {path.name} is not valid", evidence=f"{place}: {fault.what}")
    return SiteError(f"the profile {path.name} has an unknown key {fault.unknown!r}", evidence=place, hint=fault.hint)
