"""Judge what asks for a vendor's build in the base: the resolver is blind to it; nothing is resolved or changed here.

A vendor's torch 2.9.0a0+x is older than 2.9.0 for PEP 440 and stands for it: the resolver is given it as an override,
which meets whatever is asked.  So what was asked is looked at here: a requirement is met where the build itself or the
release that it stands for meets it.
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
"""What marks a vendor's build: a local version, or a pre-release."""


class CannotHave(CheckFailed):
    """A requirement that the base's own package does not meet.

    Parameters
    ----------
    wanted
        The requirement.
    """

    def __init__(self, wanted: Requirement, what: str, *, evidence: str = "", hint: str = "") -> None:
        super().__init__(what, evidence=evidence, hint=hint)
        self.wanted = wanted


class Demand(msgspec.Struct, frozen=True):
    """A requirement, and who has it: ``file:line``, or a package with its version."""

    by: str
    requirement: Requirement


def vendor_builds(packages: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Give the packages of a base whose version no release on an index has."""
    return {name: version for name, version in packages if VENDORS.search(version)}


def judge_demands(demands: Iterable[Demand], builds: Mapping[str, str], python: str) -> None:
    """Refuse the first demand that a vendor's build does not meet.

    Parameters
    ----------
    python
        Version of the Python inside, for markers.

    Raises
    ------
    CheckFailed
        With the requirement, who has it, and what the base has.
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
                f"{wanted} cannot be had: the base has its own {name}, which is never replaced",
                evidence=f"{demand.by} requires {wanted}\nthe base has {name}=={builds[name]}",
                hint=f"ask for another version, or take a base with another {name}; or hide the base's: "
                f"--allow-replace {name}",
            )


def meets(version: str, wanted: Requirement) -> bool:
    """Tell whether a build, or the release that it stands for, meets a requirement."""
    try:
        release = Version(version).base_version
    except InvalidVersion:
        return not wanted.specifier
    return not wanted.url and any(wanted.specifier.contains(v, prereleases=True) for v in (version, release))


def asked_demands(recipe: Recipe) -> Iterator[Demand]:
    """Give what the user's own files ask for by name and version."""
    for line in (*recipe.pip, *recipe.constraints):
        if line.kind is PipKind.INDEX or line.name:
            yield from _demand(str(line.where), line.requirement)


def read_demands(site_packages: Path) -> Iterator[Demand]:
    """Give what the packages in a folder require."""
    for dist in distributions(path=[str(site_packages)]):
        facts = dist.metadata  # read and parsed anew each time that it is asked for
        by = f"{facts['Name']} {facts['Version']}"
        for text in dist.requires or ():
            yield from _demand(by, text)


def _demand(by: str, text: str) -> Iterator[Demand]:
    try:
        yield Demand(by, Requirement(text))
    except InvalidRequirement:
        return  # the resolver has read it, and will say so


def replaceable(recipe: Recipe) -> frozenset[str]:
    """Name the base's packages that may be hidden: those that the user named, and what a lock of ours holds."""
    locked = (line.name for line in recipe.pip if recipe.exact)
    return frozenset((*recipe.replaceable, *locked))


def hidden_notes(base: Mapping[str, str], chosen: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Say which packages of the base are hidden by another version; both give versions by name."""
    return tuple(
        f"{name} {version} hides the base's {base[name]}: what the base has built against its own may not work with it"
        for name, version in chosen
        if base.get(name, version) != version
    )
