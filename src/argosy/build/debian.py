"""What ``debian:SUITE[+package…]`` names, and what a misspelt suite was meant to be; text only."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.errors import UsageError
from argosy.nearest import nearest_word

MIRROR = "ARGOSY_DEBIAN_MIRROR"
"""Variable that names another source of packages, whose suites may have names of their own."""

DEBIAN_NAME = r"[a-z0-9](?:[a-z0-9.-]|\+\+)*"
"""Two plus signs belong to a package's name (g++, libstdc++6), one begins the next."""

DEBIAN = re.compile(rf"debian:(?P<suite>[A-Za-z0-9][A-Za-z0-9.-]*)(?P<packages>(?:\+{DEBIAN_NAME})*)\Z")

DEBIAN_SUITES = (
    *("buster", "bullseye", "bookworm", "trixie", "forky", "duke", "sid", "experimental"),
    *("oldoldstable", "oldstable", "stable", "testing", "unstable"),
)
"""Debian's own; source: https://wiki.debian.org/DebianReleases, https://www.debian.org/releases/."""

UBUNTU_SUITES = ("xenial", "bionic", "focal", "jammy", "noble", "plucky", "questing", "resolute")
"""Ubuntu's, from a mirror of it; source: https://wiki.ubuntu.com/Releases."""

RELEASES = {"10": "buster", "11": "bullseye", "12": "bookworm", "13": "trixie", "14": "forky", "latest": "stable"}
"""What Docker's images of Debian are called beside their suite."""

POCKETS = ("-backports", "-proposed-updates", "-proposed", "-security", "-updates", "-slim")
"""Ends of suites; ``-slim`` is Docker's, and every base that is made here is slim."""

LIKENESS = 0.7
"""Below this a word may be a suite of a mirror, or a new one."""


def parse_debian(reference: str, environment: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Give suite and extra packages of ``debian:SUITE[+package…]``.

    Raises
    ------
    UsageError
        When it is not of that form, or the suite is a misspelt one of Debian's or Ubuntu's.
    """
    match = DEBIAN.match(reference)
    if match is None:
        raise UsageError(
            f"{reference!r} is no Debian base",
            evidence="the form is debian:SUITE[+package…], as in debian:bookworm or debian:trixie+git+libgomp1",
            hint="check the spelling; a suite is a name such as bookworm",
        )
    suite, packages = match["suite"], match["packages"]
    meant = "" if environment.get(MIRROR) else _meant_suite(suite)
    if meant:
        raise UsageError(
            f"there is no Debian suite {suite!r}",
            evidence=reference,
            hint=f"did you mean debian:{meant}{packages}? (Docker's image of that name: docker://debian:{suite})"
            if suite in RELEASES or suite.endswith("-slim")
            else f"did you mean debian:{meant}{packages}?",
        )
    return suite, tuple(re.findall(rf"\+({DEBIAN_NAME})", packages))


def is_known(suite: str) -> bool:
    """Tell whether a suite is one of Debian's or Ubuntu's, or of theirs for updates."""
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    return suite.removesuffix(end) in (*DEBIAN_SUITES, *UBUNTU_SUITES)


def _meant_suite(suite: str) -> str:
    """Give the suite that a word was probably meant to be; nothing where it is one, or is like none.

    A name that is like no suite may be one of a site's mirror, or one that is newer than this table.
    """
    known = (*DEBIAN_SUITES, *UBUNTU_SUITES)
    end = next((pocket for pocket in POCKETS if suite.endswith(pocket)), "")
    name = suite.removesuffix(end)
    if name in known:
        return name if end == "-slim" else ""
    return RELEASES.get(name) or nearest_word(name, known, likeness=LIKENESS)
