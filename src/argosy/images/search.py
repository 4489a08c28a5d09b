"""Find images by the packages that are in them; pure over their locks."""

from __future__ import annotations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from argosy.core.errors import UsageError
from argosy.recipes.lock import PYTHON_NAMES, Lock, LockedPackage


def parse_wanted(texts: tuple[str, ...]) -> tuple[Requirement, ...]:
    """Read what is looked for, as pip writes it: ``torch``, ``numpy>=2``.

    Raises
    ------
    UsageError
        When one is no requirement.
    """
    try:
        return tuple(Requirement(text) for text in texts)
    except InvalidRequirement as error:
        raise UsageError(
            "what is looked for is no package", evidence=str(error), hint="write it as pip does: --has 'numpy>=2'"
        ) from error


def find_wanted(lock: Lock, wanted: tuple[Requirement, ...]) -> tuple[str, ...]:
    """Give the package that meets each one asked for, as ``torch 2.9.0``; nothing where one is not met."""
    found = [next((p for p in lock.packages if _meets(p, each)), None) for each in wanted]
    return tuple(f"{p.name} {p.version}" for p in found if p) if all(found) else ()


def _meets(package: LockedPackage, wanted: Requirement) -> bool:
    names = {canonicalize_name(package.name), canonicalize_name(PYTHON_NAMES.get(package.name, package.name))}
    if canonicalize_name(wanted.name) not in names:
        return False
    try:
        return wanted.specifier.contains(Version(package.version), prereleases=True)
    except InvalidVersion:
        return not wanted.specifier
