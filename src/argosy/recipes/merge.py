"""Merge the requests of several files into one recipe, and check Python versions; contradictions are errors."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import Any, TypeVar

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from argosy.core.errors import CheckFailed, UsageError
from argosy.core.records import replace
from argosy.core.redact import redact
from argosy.recipes.recipe import Asked, Channel, CondaPin, Note, Part, PipKind, PipLine, Recipe, Requests, Where

PYTHON_OF_DEBIAN: Mapping[str, str] = {"bullseye": "3.9.2", "bookworm": "3.11.2", "trixie": "3.13.5"}
"""Python of each Debian release; source: packages.debian.org, package python3, as released."""

_ONE = re.compile(r"(?P<op>[<>!=~]=?=?|)(?P<number>\d[\w.!+-]*?)(?P<star>\.?\*)?\Z")


def refuse_other_python(asked: str, found: str, where: Where | None, first_base: str = "") -> None:
    """Refuse a base whose Python is not the requested version.

    Parameters
    ----------
    asked
        For example ``3.11``, ``=3.11.*``, ``>=3.10,<3.12``; empty means any.
    found
        The base's version, for example ``3.11.2``.
    first_base
        The base of the base, if that is an Argosy image, over which conda can install another Python.

    Raises
    ------
    CheckFailed
        If the versions do not match; the hint names matching Debian releases.
    UsageError
        If `asked` is not a valid version.
    """
    if python_fits(asked, found, where):
        return
    fitting = [suite for suite, version in PYTHON_OF_DEBIAN.items() if python_fits(asked, version, where)]
    minor = ".".join(found.split(".")[:2])
    fixes = [f"use --base debian:{suite} (Python {PYTHON_OF_DEBIAN[suite]})" for suite in fitting]
    if not fixes and first_base:
        fixes = [f"build over the base of that image: --base {first_base}, over which conda installs this Python"]
    elif not fixes:
        fixes = [f"use a base that has it, or install python{asked} by conda in an environment.yml"]
    if python_fits(asked, minor + ".0", where) or asked.lstrip("=").startswith(minor + "."):
        fixes.append(f"request python={minor}, which the base has")
    raise CheckFailed(
        f"the environment requires Python {asked.lstrip('=')}, the base has {found}",
        evidence=f"{where}: python{asked}" if where else "",
        hint=", or ".join(fixes),
    )


def python_fits(asked: str, found: str, where: Where | None = None) -> bool:
    """Return whether a version satisfies a request; ``3.11`` and ``=3.11`` match all of 3.11."""
    try:
        version = Version(found)
        return not asked.strip() or any(
            all(_fits(token.strip(), version) for token in both.split(",")) for both in asked.split("|")
        )
    except (InvalidVersion, InvalidSpecifier) as error:
        raise UsageError(
            f"invalid Python version '{asked}'",
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


def _can_agree(one: str, other: str) -> bool:
    """Return whether any version of Python satisfies both requests, by trying all plausible versions.

    A request that matches no plausible version (a release candidate) excludes nothing: the base's version is checked
    later.
    """
    versions = ["2.7.18", *(f"3.{minor}.{patch}" for minor in range(30) for patch in range(30))]
    first = {version for version in versions if python_fits(one, version)}
    second = {version for version in versions if python_fits(other, version)}
    return not first or not second or bool(first & second)


T = TypeVar("T")


def merge_parts(parts: Sequence[Part]) -> Recipe:
    """Merge the parts in the given order."""
    python, where = _merge_python([asked for part in parts for asked in part.python])
    every: dict[str, tuple[Any, ...]] = {
        name: joined(getattr(part, name) for part in parts) for name in Requests.__struct_fields__ if name != "name"
    }
    merged: dict[str, Any] = {
        **every,
        "overrides": (*every["overrides"], *_settled(parts)),
        "conda_pins": _merge_pins(every["conda_pins"], parts),
        "channels": _merge_channels([part.channels for part in parts]),
        "sources": tuple(dict.fromkeys(every["sources"])),
        "notes": (*every["notes"], *_empty_note(parts)),
    }
    variables = _merge_variables([asked for part in parts for asked in part.variables])
    name = next((part.name for part in parts if part.name), "")
    return Recipe(name, python=python, python_where=where, variables=variables, **merged)


def joined(items: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """Concatenate tuples."""
    return tuple(chain.from_iterable(items))


def _settled(parts: Sequence[Part]) -> Iterator[PipLine]:
    """Yield the versions of the only pip lock as overrides, so that requirements of its packages cannot change them."""
    with_pip = [part for part in parts if part.pip]
    if len(with_pip) == 1 and with_pip[0].complete:
        yield from (replace(line, hashes=()) for line in with_pip[0].pip if line.kind is PipKind.INDEX)


def _merge_pins(pins: tuple[CondaPin, ...], parts: Sequence[Part]) -> tuple[CondaPin, ...]:
    """Merge lists of exact conda packages; a complete list excludes other requests."""
    merged: dict[str, CondaPin] = {}
    for pin in pins:
        first = merged.setdefault(pin.name, pin)
        if first.url != pin.url:
            raise UsageError(
                f"two lists name different files for {pin.name}",
                evidence=f"{first.where}: {redact(first.url)}\n{pin.where}: {redact(pin.url)}",
                hint="remove one of them",
            )
    asked = [spec for part in parts for spec in (*part.conda, *part.interpreter) if merged and spec.name not in merged]
    if asked:
        raise UsageError(
            f"cannot add {asked[0].name} to a complete list of conda packages",
            evidence=f"{asked[0].where}: {asked[0].name}\n{pins[0].where}: the list",
            hint="add it to the source of the list, and lock again",
        )
    return tuple(merged.values())


def _empty_note(parts: Sequence[Part]) -> tuple[Note, ...]:
    if any(part.pip or part.conda or part.conda_pins for part in parts):
        return ()
    python = any(part.python for part in parts)
    return (Note("the files request no package except Python" if python else "the files request no package"),)


def _merge_python(asked: list[Asked]) -> tuple[str, Where | None]:
    requests = [one for one in asked if one.value]
    for one, other in combinations(requests, 2):
        if not _can_agree(one.value, other.value):
            raise UsageError(
                "two lines request different versions of Python",
                evidence=f"{one.where}: python{one.value}\n{other.where}: python{other.value}",
                hint="remove one of them",
            )
    texts = list(dict.fromkeys(one.value for one in requests))
    where = (requests or asked)[0].where if asked else None
    return _conjunction(texts), where


def _conjunction(texts: list[str]) -> str:
    """Join versions so that all hold; alternatives are expanded, because ``|`` binds weaker than ``,``."""
    choices = [""]
    for text in texts:
        choices = [f"{left},{right}" if left else right for left in choices for right in text.split("|")]
    return "|".join(choices)


def _merge_channels(lists: list[tuple[Channel, ...]]) -> tuple[Channel, ...]:
    """Merge lists of channels; an opposite order of two channels is an error, because it would change packages."""
    merged: dict[str, Channel] = {}
    for channels in lists:
        order = {channel.name: channel for channel in channels}
        shared = [name for name in merged if name in order]
        for first, second in combinations(shared, 2):
            if list(order).index(first) > list(order).index(second):
                raise UsageError(
                    "two files order the same channels differently",
                    evidence=f"{merged[first].where}: {first} before {second}\n"
                    f"{order[second].where}: {second} before {first}",
                    hint="use the same order in both files: the first channel that has a package wins",
                )
        merged |= {name: channel for name, channel in order.items() if name not in merged}
    return tuple(merged.values())


def _merge_variables(asked: list[Asked]) -> tuple[tuple[str, str], ...]:
    merged: dict[str, Asked] = {}
    for one in asked:
        first = merged.setdefault(one.name, one)
        if first.value != one.value:
            raise UsageError(
                f"two files set {one.name} to different values",
                evidence=f"{first.where}: {first.value}\n{one.where}: {one.value}",
                hint="remove one of them",
            )
    return tuple((name, one.value) for name, one in merged.items())
