"""Convert locks to recipes, and compare locks with recipes and with other locks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

import msgspec
from packaging.utils import canonicalize_name

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.records import replace
from argosy.core.redact import redact, without_login
from argosy.core.suggest import did_you_mean
from argosy.recipes.lock import Lock, LockedPackage, LockedSource, LockedStage, LockedStep, PackageKind, SourceKind
from argosy.recipes.recipe import CondaPin, CondaSpec, PipKind, PipLine, PipOption, Recipe, Where

INDEX_OPTIONS = ("index-url", "extra-index-url", "find-links")
"""pip options that name package sources; a lock omits those that name local folders."""


def locked_indexes(recipe: Recipe) -> tuple[str, ...]:
    """Return the package sources in a recipe's pip options, without credentials and local folders."""
    return tuple(
        f"{option.name} {redact(without_login(option.value))}".rstrip()
        for option in (option.for_all for option in recipe.options)
        if option.name in INDEX_OPTIONS and urlsplit(option.value).scheme in ("http", "https")
    )


def locked_recipe(lock: Lock, file: str, *, from_files: bool = False) -> Recipe:
    """Return the recipe that installs exactly the packages of a lock.

    Parameters
    ----------
    from_files
        Whether the files of pip packages are available locally, as in a bundle, so that addresses are not used.

    Raises
    ------
    CheckFailed
        If a package was installed from a folder, which exists only on the machine of the lock.
    """
    where = Where(file, 1)
    pip = [package for package in lock.packages if package.kind is PackageKind.PYPI]
    conda = [package for package in lock.packages if package.kind is PackageKind.CONDA]
    return Recipe(
        name=lock.name,
        python=f"=={lock.python}" if lock.python and not conda else "",
        python_where=where,
        pip=tuple(_pip_line(package, where, from_file=from_files) for package in pip),
        conda_pins=tuple(_conda_pin(package, where) for package in conda),
        options=tuple(PipOption(text.partition(" ")[0], text.partition(" ")[2], where) for text in lock.indexes),
        variables=lock.variables,
        sources=lock.sources,
        exact=True,
        requested=lock.requested,
        unisolated=lock.unisolated,
    )


def _pip_line(package: LockedPackage, where: Where, *, from_file: bool = False) -> PipLine:
    pinned = f"{package.name}=={package.version}"
    hashes = tuple(f"sha256:{digest}" for digest in package.sha256)
    if package.source is SourceKind.INDEX or (package.sha256 and (from_file or not package.url)):
        return PipLine(pinned, package.name, PipKind.INDEX, where, spec=pinned, hashes=hashes)
    if not package.url:
        raise CheckFailed(
            f"cannot install {pinned} from the lock: it was installed from a folder",
            evidence=f"{where.file}: {pinned} has neither an address nor a hash",
            hint="build a wheel (pip wheel), add the wheel to the requirements, and lock again",
        )
    spec = f"{package.name} @ {package.url}"
    if package.source is SourceKind.VCS:  # the hash is that of a wheel built from it, which is not available
        return PipLine(pinned, package.name, PipKind.VCS, where, spec=spec)
    return PipLine(pinned, package.name, PipKind.URL, where, spec=spec, hashes=hashes)


def _conda_pin(package: LockedPackage, where: Where) -> CondaPin:
    sha256 = package.sha256[0] if package.sha256 else ""
    return CondaPin(package.name, package.version, package.build, package.url, where, sha256, package.md5)


def as_locked(packages: Iterable[LockedPackage], locked: Iterable[LockedPackage]) -> tuple[LockedPackage, ...]:
    """Return the lock's records of packages, which contain the sources that a bundle does not know."""
    known = {(package.kind, package.name, package.version): package for package in locked}
    return tuple(known.get((package.kind, package.name, package.version), package) for package in packages)


def without_held(recipe: Recipe, held: Collection[LockedPackage]) -> Recipe:
    """Return an exact recipe without the packages that the base's own layer already contains."""
    there = {(package.kind, package.name, package.version) for package in held}
    return replace(
        recipe,
        pip=tuple(line for line in recipe.pip if (PackageKind.PYPI, *line.text.split("==", 1)) not in there),
        conda_pins=tuple(pin for pin in recipe.conda_pins if (PackageKind.CONDA, pin.name, pin.version) not in there),
    )


def held_recipe(recipe: Recipe, lock: Lock, upgrade: Iterable[str]) -> Recipe:
    """Return a recipe that keeps the locked version of every package except those in `upgrade`."""
    where = Where("the lock", 1)
    free = {canonicalize_name(name) for name in upgrade}
    names = {canonicalize_name(package.name) for package in lock.packages}
    for name in sorted(free - names):
        hint = did_you_mean(name, names, "the lock lists all packages by name")
        raise UsageError(f"the lock has no package {name}", hint=hint)
    kept = [package for package in lock.packages if canonicalize_name(package.name) not in free]
    pip = [package for package in kept if package.kind is PackageKind.PYPI and package.source is SourceKind.INDEX]
    conda = [package for package in kept if package.kind is PackageKind.CONDA]
    return replace(
        recipe,
        constraints=(*recipe.constraints, *(_pip_line(replace(package, sha256=()), where) for package in pip)),
        conda_limits=tuple(CondaSpec(p.name, f"=={p.version}", p.build, "", where) for p in conda),
    )


def changed_sources(lock: Lock, sources: Iterable[LockedSource]) -> tuple[str, ...]:
    """Return descriptions of the user's files that differ from the lock."""
    locked = {source.path: source.sha256 for source in lock.sources}
    now = {source.path: source.sha256 for source in sources}
    changed = [f"{name} has changed" for name in sorted(locked.keys() & now.keys()) if locked[name] != now[name]]
    new = [f"{name} is not in the lock" for name in sorted(now.keys() - locked.keys())]
    gone = [f"{name} is in the lock but was not passed" for name in sorted(locked.keys() - now.keys())]
    return (*changed, *new, *gone)


def changed_steps(lock: Lock, steps: tuple[LockedStep, ...], stages: tuple[LockedStage, ...]) -> tuple[str, ...]:
    """Return descriptions of the steps and stages that differ from the lock."""
    locked = {f"step {number}": step for number, step in enumerate(lock.steps, 1)}
    now = {f"step {number}": step for number, step in enumerate(steps, 1)}
    found = [
        _describe_step(name, locked.get(name), now.get(name))
        for name in dict.fromkeys((*locked, *now))
        if locked.get(name) != now.get(name)
    ]
    there, here = ({each.name: replace(each, digest="", pinned="") for each in made} for made in (lock.stages, stages))
    found += [f"stage {name} has changed" for name in sorted(there.keys() & here.keys()) if there[name] != here[name]]
    found += [f"stage {name} is not in the lock" for name in sorted(here.keys() - there.keys())]
    return (*found, *(f"stage {name} is only in the lock" for name in sorted(there.keys() - here.keys())))


def _describe_step(name: str, locked: LockedStep | None, now: LockedStep | None) -> str:
    if now is None:
        return f"{name} is only in the lock: {locked}"
    if locked is None:
        return f"{name} is not in the lock: {now}"
    was = {source.path: source.sha256 for source in locked.copy}
    files = [source.path for source in now.copy if was.get(source.path, source.sha256) != source.sha256]
    return f"{name} has changed: {', '.join(files) or now}"


class LockChange(msgspec.Struct, frozen=True):
    """One difference between two locks; a value is empty if only the other lock has it."""

    what: str
    """``package``, ``variable``, or a key of the lock: ``base``, ``python``, ``content``."""
    name: str
    before: str
    after: str

    def __str__(self) -> str:
        """Render as one line: ``+`` added, ``-`` removed, ``~`` changed."""
        if not self.before:
            return f"+ {self.what} {self.name} {self.after}"
        if not self.after:
            return f"- {self.what} {self.name} {self.before}"
        return f"~ {self.what} {self.name} {self.before} -> {self.after}"


def compare_locks(one: Lock, other: Lock) -> tuple[LockChange, ...]:
    """Return the differences between two locks: packages first, sorted by name."""
    both = (one, other)
    packages = [
        {f"{each.name} ({each.kind})": f"{each.version} {each.build}".strip() for each in lock.packages}
        for lock in both
    ]
    facts = [
        {"base": lock.base.digest, **{key: getattr(lock, key) for key in ("python", "content", "name")}}
        for lock in both
    ]
    return (
        *_compare("package", *packages),
        *_compare("variable", *(dict(lock.variables) for lock in both)),
        *_compare("image's", *facts),
    )


def _compare(what: str, one: dict[str, str], other: dict[str, str]) -> list[LockChange]:
    names = [name for name in sorted(one.keys() | other.keys()) if one.get(name, "") != other.get(name, "")]
    return [LockChange(what, name, one.get(name, ""), other.get(name, "")) for name in names]
