"""Check requirements against the vendor builds of a base, which the resolver cannot do.

A vendor's torch 2.9.0a0+x is a build of 2.9.0, but PEP 440 orders it before 2.9.0.  The resolver therefore gets it as
an override, which satisfies every requirement.  This module checks each requirement against the build and against the
release that it is built from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path

import msgspec
from packaging.markers import default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from argosy.core.errors import CheckFailed
from argosy.recipes.recipe import PipKind, Recipe

VENDORS = re.compile(r"\+|(a|b|rc|dev)\d")
"""Marks of a vendor's build: a local version, or a pre-release."""


class CannotHave(CheckFailed):
    """Report a requirement that the base's own package does not satisfy.

    Parameters
    ----------
    wanted
        The requirement.
    """

    def __init__(self, wanted: Requirement, what: str, *, evidence: str = "", hint: str = "") -> None:
        super().__init__(what, evidence=evidence, hint=hint)
        self.wanted = wanted


class Demand(msgspec.Struct, frozen=True):
    """Hold a requirement and its origin: ``file:line``, or a package with its version."""

    by: str
    requirement: Requirement


def vendor_builds(packages: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the packages of a base with a version that no index has."""
    return {name: version for name, version in packages if VENDORS.search(version)}


def judge_demands(demands: Iterable[Demand], builds: Mapping[str, str], python: str) -> None:
    """Refuse the first requirement that a vendor's build does not satisfy.

    Parameters
    ----------
    python
        Python version in the image, for markers.

    Raises
    ------
    CheckFailed
        The evidence shows the requirement, its origin, and the base's version.
    """
    if not builds:
        return
    inside = {name: str(value) for name, value in default_environment().items()}
    inside |= {"python_full_version": python, "python_version": ".".join(python.split(".")[:2]), "extra": ""}
    for demand in demands:
        wanted = demand.requirement
        name = canonicalize_name(wanted.name)
        if name not in builds or (wanted.marker and not wanted.marker.evaluate(inside)):
            continue
        if not meets(builds[name], wanted):
            raise CannotHave(
                wanted,
                f"cannot install {wanted}: the base has its own {name}, which is not replaced",
                evidence=f"{demand.by} requires {wanted}\nthe base has {name}=={builds[name]}",
                hint=f"change the version, use a base with another {name}, or allow to hide the base's: "
                f"--allow-replace {name}",
            )


def meets(version: str, wanted: Requirement) -> bool:
    """Tell whether a build, or the release that it is built from, satisfies a requirement."""
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return not wanted.specifier
    return not wanted.url and any(wanted.specifier.contains(v, prereleases=True) for v in (version, release))


def asked_demands(recipe: Recipe) -> Iterator[Demand]:
    """Return the requirements of the user's own files."""
    for line in (*recipe.pip, *recipe.constraints):
        if line.kind is PipKind.INDEX or line.name:
            yield from _demand(str(line.where), line.requirement)


def read_demands(site_packages: Path) -> Iterator[Demand]:
    """Return the requirements of the packages in a folder."""
    for dist in distributions(path=[str(site_packages)]):
        facts = dist.metadata  # each access reads and parses the file again
        by = f"{facts['Name']} {facts['Version']}"
        for text in dist.requires or ():
            yield from _demand(by, text)


def _demand(by: str, text: str) -> Iterator[Demand]:
    try:
        yield Demand(by, Requirement(text))
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
