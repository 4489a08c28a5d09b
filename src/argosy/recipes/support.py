"""Judge whether a recipe can be built here; it never looks for another way by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from argosy.core.errors import CheckFailed, UsageError
from argosy.recipes.recipe import Where

PYTHON_OF_DEBIAN: Mapping[str, str] = MappingProxyType({"bullseye": "3.9.2", "bookworm": "3.11.2", "trixie": "3.13.5"})
"""Python of each Debian release; source: packages.debian.org, package python3, as released."""

_ONE = re.compile(r"(?P<op>[<>!=~]=?=?|)(?P<number>\d[\w.!+-]*?)(?P<star>\.?\*)?\Z")


def check_python(asked: str, found: str, where: Where | None) -> None:
    """Check the base's Python against the version that is asked for.

    Parameters
    ----------
    asked
        ``3.11``, ``=3.11.*``, ``>=3.10,<3.12``; empty: any.
    found
        The base's version, as ``3.11.2``.

    Raises
    ------
    CheckFailed
        Naming both versions, and the Debian releases that would fit.
    UsageError
        When `asked` is no version.
    """
    if python_fits(asked, found, where):
        return
    fitting = [suite for suite, version in PYTHON_OF_DEBIAN.items() if python_fits(asked, version, where)]
    minor = ".".join(found.split(".")[:2])
    ways = [f"--base debian:{suite} (Python {PYTHON_OF_DEBIAN[suite]})" for suite in fitting]
    ways += [] if ways else [f"a base that has it, or python{asked} in an environment.yml: conda brings it"]
    if python_fits(asked, minor + ".0", where) or asked.lstrip("=").startswith(minor + "."):
        ways.append(f"ask for python={minor}, which the base has")
    raise CheckFailed(
        f"the environment asks for Python {asked.lstrip('=')}, the base has {found}",
        evidence=f"{where}: python{asked}" if where else "",
        hint=f"use {', or '.join(ways)}",
    )


def python_fits(asked: str, found: str, where: Where | None = None) -> bool:
    """Say whether a version is one of those asked for; ``3.11`` and ``=3.11`` stand for all of 3.11."""
    try:
        version = Version(found)
        return not asked.strip() or any(
            all(_fits(token.strip(), version) for token in both.split(",")) for both in asked.split("|")
        )
    except (InvalidVersion, InvalidSpecifier) as error:
        raise UsageError(
            f"'{asked}' is no version of Python",
            evidence=f"{where}: python{asked}" if where else str(error),
            hint="write python=3.11 or python>=3.10,<3.13",
        ) from error


def _fits(token: str, version: Version) -> bool:
    found = _ONE.match(token)
    if not found:
        raise InvalidVersion(token)
    if found["op"] in ("", "="):
        wanted = Version(found["number"]).release
        return version.release[: len(wanted)] == wanted
    text = found["op"] + found["number"]
    if found["star"] and found["op"] in ("==", "!="):
        text += ".*"
    return SpecifierSet(text, prereleases=True).contains(version)


def can_agree(one: str, other: str) -> bool:
    """Say whether any version of Python satisfies both; tried on all that there may be.

    A wish that none of those satisfies (a release candidate) excludes nothing: the base's version is checked later.
    """
    versions = ["2.7.18", *(f"3.{minor}.{patch}" for minor in range(30) for patch in range(30))]
    first = {version for version in versions if python_fits(one, version)}
    second = {version for version in versions if python_fits(other, version)}
    return not first or not second or bool(first & second)
