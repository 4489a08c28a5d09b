"""Read the versions that uv chose, render the requirements that install exactly these, and check vendor builds.

The resolver cannot check requirements against the vendor builds of a base.  A vendor's torch 2.9.0a0+x is a build of
2.9.0, but PEP 440 orders it before 2.9.0.  The resolver therefore gets it as an override, which satisfies every
requirement.  This module checks each requirement against the build and against the release that it is built from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from argosy.core.errors import CheckFailed
from argosy.core.parse import parse_json
from argosy.core.process import Reply
from argosy.core.redact import STARS, redact
from argosy.images.part_digest import describe_part, part_digest
from argosy.recipes.lock import LockedPackage, SourceKind
from argosy.recipes.recipe import PipKind, PipLine, Recipe
from argosy.recipes.requirements import package_of

Row = Mapping[str, str]
"""The version of a chosen package, if it is known, and its address, if it has one."""

ADDRESS = re.compile(r"^ \+ (?P<name>[^\s=@]+)(?:==\S+)? (?:@ |\(from )(?P<url>\S+?)\)?$", re.MULTILINE)
"""uv's JSON has no addresses (uv 0.13), but its lines do: ``+ a @ URL``, or ``+ a==1 (from URL)`` after a build."""


class Pin(msgspec.Struct, frozen=True):
    """A locked package, and the requirement that installs it (``name==1.2``, ``name @ URL``)."""

    package: LockedPackage
    spec: str


def read_chosen(reply: Reply, asked: Mapping[str, str]) -> dict[str, Row]:
    """Read the output of ``uv pip install --dry-run``, by normalised name.

    Parameters
    ----------
    asked
        Addresses from the user's files, because uv hides logins.
    """
    shown = {canonicalize_name(found["name"]): found["url"] for found in ADDRESS.finditer(reply.stderr)}
    urls = {name: asked.get(name, url) if STARS in url else url for name, url in shown.items()}
    rows = [row for row in parse_json(reply.stdout).get("changes", []) if row["action"] == "installed"]
    names = [canonicalize_name(row["name"]) for row in rows]
    return {
        name: {key: value for key, value in (("url", urls.get(name)), ("version", row.get("version"))) if value}
        for name, row in zip(names, rows, strict=True)
    }


def render_pins(packages: Mapping[str, str]) -> str:
    """Render one line ``name==version`` for each package."""
    return "".join(f"{name}=={version}\n" for name, version in packages.items())


def pin_of(name: str, row: Row) -> str:
    """Return the requirement that installs a chosen package."""
    return f"{name} @ {row['url']}" if row.get("url") else f"{name}=={row['version']}"


def is_pin(line: str) -> bool:
    """Return whether a line is a requirement, not empty, a comment or an option."""
    return bool(line.strip()) and not line.lstrip().startswith(("#", "-"))


def parse_pin(line: str, versions: Mapping[str, str]) -> Pin:
    """Read one line of ``uv pip compile --generate-hashes``, its continuation lines joined.

    Parameters
    ----------
    versions
        Versions of packages that have only an address.
    """
    parts = line.split()
    hashes = tuple(sorted(w.removeprefix("--hash=sha256:") for w in parts if w.startswith("--hash=sha256:")))
    spec = " ".join(w for w in parts if not w.startswith("--hash="))
    name = canonicalize_name(re.split(r"[\s=@;\[]", spec, maxsplit=1)[0])
    match = re.search(r"==\s*([^\s;]+)", spec)
    source = SourceKind.INDEX
    if " @ " in spec:
        source = SourceKind.VCS if re.search(r"@ \w+\+", spec) else SourceKind.LOCAL
    version = match[1] if match and source is SourceKind.INDEX else versions.get(name, "")
    # The path of a local file is useless on other machines; the hash identifies the file.
    address = spec.partition(" @ ")[2].partition(" ;")[0].strip()
    url = "" if address.startswith("file:") else redact(address)
    return Pin(LockedPackage(name, version, hashes, source, url=url), spec)


def render_pin(pin: Pin) -> str:
    """Render the line that installs exactly this package."""
    return " ".join((pin.spec, *(f"--hash=sha256:{digest}" for digest in pin.package.sha256)))


def asked_hashes(lines: Iterable[PipLine]) -> dict[str, tuple[str, ...]]:
    """Return the sha256 hashes in the user's files; they take precedence over those of an index."""
    asked: dict[str, set[str]] = {}
    for line in lines:
        found = (text.partition(":") for text in line.hashes)
        asked.setdefault(line.name, set()).update(digest for algorithm, _, digest in found if algorithm == "sha256")
    return {name: tuple(sorted(digests)) for name, digests in asked.items() if digests}


def refuse_unhashed(recipe: Recipe, chosen: Mapping[str, Row]) -> None:
    """Refuse packages without a hash if others have one, as pip does; the package pip needs no hash.

    Local folders and full commits need no hash: `uv export` writes them without.
    """
    asked = asked_hashes((*recipe.pip, *recipe.constraints))
    free = {name for name, row in chosen.items() if _is_folder(row) or _is_commit(row, recipe)}
    bare = [name for name in sorted(chosen) if name not in {*asked, *free, "pip"}]
    if bare:
        first = next((line for line in recipe.pip if line.hashes), None)
        raise CheckFailed(
            f"cannot install {', '.join(bare)} without a hash",
            evidence=f"{first.where}: {first.name} has a hash, so every package needs one"
            if first
            else "hashes are required",
            hint="create the file with all hashes: uv pip compile --generate-hashes, or argosy lock",
        )


def _is_folder(row: Row) -> bool:
    url = row.get("url", "")
    return url.startswith("file://") and Path(unquote(urlsplit(url).path)).is_dir()


def _is_commit(row: Row, recipe: Recipe) -> bool:
    commit = re.search(r"@([0-9a-f]{40})\b", row.get("url", ""))
    return commit is not None and any(commit[1] in line.spec for line in recipe.pip)


def found_hashes(packages: Iterable[LockedPackage], folders: Iterable[str], cache: Path) -> dict[str, tuple[str, ...]]:
    """Return the sha256 of each package's files in local folders of wheels, for which no index has hashes.

    The folder `cache` remembers the hashes of unchanged files.
    """
    wanted = {(p.name, p.version): p.name for p in packages if p.source is SourceKind.INDEX}
    there = (file for folder in folders if Path(folder).is_dir() for file in sorted(Path(folder).iterdir()))
    files = [(name, file) for file in there if (name := wanted.get(package_of(file.name)))]
    found: dict[str, set[str]] = {name: set() for name in wanted.values()}
    parts = [describe_part(file, 0, file.stat().st_size) for _, file in files]
    with ThreadPoolExecutor() as pool:
        for (name, _), digest in zip(files, pool.map(lambda part: part_digest(part, cache), parts), strict=True):
            found[name].add(digest.removeprefix("sha256:"))
    return {name: tuple(sorted(digests)) for name, digests in found.items()}


VENDORS = re.compile(r"\+|(a|b|rc|dev)\d")
"""Marks of a vendor's build: a local version, or a pre-release."""


PACKAGE = re.compile(r"([^\s:]+) (\d\S*)")
"""A package with its version, as `SourcedRequirement` has it."""


class CannotHave(CheckFailed):
    """Report a requirement that the base's own package does not satisfy.

    Parameters
    ----------
    wanted
        The requirement.
    by
        Its origin: ``file:line``, or a package with its version.
    """

    def __init__(self, wanted: Requirement, what: str, *, by: str = "", evidence: str = "", hint: str = "") -> None:
        super().__init__(what, evidence=evidence, hint=hint)
        self.wanted, self.by = wanted, by


class SourcedRequirement(msgspec.Struct, frozen=True):
    """A requirement and its origin: ``file:line``, or a package with its version."""

    by: str
    requirement: Requirement


def vendor_builds(packages: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the packages of a base with a version that no index has."""
    return {name: version for name, version in packages if VENDORS.search(version)}


def can_compare(version: str) -> bool:
    """Return whether the resolver can check requirements against a build: it orders pre-releases before releases."""
    try:
        return not Version(version).is_prerelease
    except InvalidVersion:
        return False


def refuse_unmet_demands(demands: Iterable[SourcedRequirement], builds: Mapping[str, str], python: str) -> None:
    """Refuse the first requirement that a vendor's build does not satisfy."""
    if not builds:
        return
    inside = _marker_values(python)
    for demand in demands:
        wanted = demand.requirement
        name = canonicalize_name(wanted.name)
        if name not in builds or (wanted.marker and not wanted.marker.evaluate(inside)):
            continue
        if not meets(builds[name], wanted):
            package = PACKAGE.fullmatch(demand.by)
            older = f", for example '{package[1]}<{package[2]}'" if package else ""
            raise CannotHave(
                wanted,
                f"cannot install {wanted}: the base has its own {name}, which is not replaced",
                by=demand.by,
                evidence=f"{demand.by} requires {wanted}\nthe base has {name}=={builds[name]}",
                hint=f"change the version{older}, use a base with another {name}, or hide the base's: "
                f"--allow-replace {name}",
            )


def _marker_values(python: str) -> dict[str, str]:
    """Return the values of a marker's variables for a version of Python."""
    inside = {name: str(value) for name, value in default_environment().items()}
    return inside | {"python_full_version": python, "python_version": ".".join(python.split(".")[:2]), "extra": ""}


def meets(version: str, wanted: Requirement) -> bool:
    """Return whether a build, or the release that it is built from, satisfies a requirement."""
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return not wanted.specifier
    return not wanted.url and any(wanted.specifier.contains(v, prereleases=True) for v in (version, release))


def asked_demands(recipe: Recipe) -> Iterator[SourcedRequirement]:
    """Return the requirements of the user's own files."""
    for line in (*recipe.pip, *recipe.constraints):
        if line.kind is PipKind.INDEX or line.name:
            yield from read_demand(str(line.where), line.requirement)


def read_demands(site_packages: Path) -> Iterator[SourcedRequirement]:
    """Return the requirements of the packages in a folder."""
    for dist in distributions(path=[str(site_packages)]):
        facts = dist.metadata  # each access reads and parses the file again
        by = f"{facts['Name']} {facts['Version']}"
        for text in dist.requires or ():
            yield from read_demand(by, text)


def read_demand(by: str, text: str) -> Iterator[SourcedRequirement]:
    """Read a requirement; an invalid one is left out."""
    try:
        yield SourcedRequirement(by, Requirement(text))
    except InvalidRequirement:
        return  # the resolver reports it


def replaceable(recipe: Recipe) -> frozenset[str]:
    """Return the base's packages that may be hidden: those that the user allows, and those in a lock."""
    locked = (line.name for line in recipe.pip if recipe.exact)
    return frozenset((*recipe.replaceable, *locked))


def hidden_notes(base: Mapping[str, str], chosen: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Describe which packages of the base are hidden by another version; both arguments map names to versions."""
    return tuple(
        f"{name} {version} hides the base's {base[name]}; packages of the base that need their version may break"
        for name, version in chosen
        if base.get(name, version) != version
    )


def excluded_notes(recipe: Recipe, python: str, machine: str) -> tuple[str, ...]:
    """Describe which requested packages are not installed, because their markers exclude the image.

    Lines with a hash come from a lock, which is made for several machines, so they need no note.
    """
    inside = _marker_values(python) | {"platform_machine": machine}
    included, excluded = set[str](), dict[str, str]()
    for line in () if recipe.exact else recipe.pip:
        for demand in read_demand(str(line.where), line.requirement):
            if demand.requirement.marker is None or demand.requirement.marker.evaluate(inside):
                included.add(line.name)
            elif not line.hashes:
                excluded[line.name] = f"{demand.by}: {line.name}"
    lines = [shown for name, shown in excluded.items() if name not in included]
    return (f"ignored, because their markers do not match the image: {', '.join(lines)}",) if lines else ()
