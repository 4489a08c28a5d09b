"""Say what a failure of uv means for the user; its own explanation is the evidence."""

from __future__ import annotations

import re

from argosy.build.rooms import UV_INSIDE, Room
from argosy.errors import ArgosyError, CheckFailed, ToolFailed
from argosy.process import Reply

MOST_OF_A_BUILD = 40
UNKNOWN_PACKAGE = re.compile(r"Because (\S+) was not found in (?:the package registry|the provided package locations)")


def explain_uv(room: Room, words: tuple[str, ...], reply: Reply, *, doing: str) -> ArgosyError:
    """Say what uv's failure means for the user; its own explanation is the evidence."""
    text = reply.stderr
    if built := re.search(r"Failed to (?:download and )?build `([^`]+)`", text):
        lacks = "ModuleNotFoundError" in text
        return ToolFailed(
            f"{built[1]} has no wheel for this base, and could not be built",
            evidence="\n".join(text[built.start() :].strip().splitlines()[:MOST_OF_A_BUILD]),
            hint="take a version that has one, or a base that has what its build needs"
            + (f"; where it needs what the image has: --no-build-isolation {_bare(built[1])}" if lacks else ""),
        )
    if "No solution found" in text or "no version of" in text:
        return _no_solution(text)
    error = room.failure((UV_INSIDE, *words[:2], "…"), reply, doing=doing)
    if any(mark in text for mark in ("dns error", "error sending request", "tcp connect error", "Could not connect")):
        error.hint = "check the network and the index; where nodes have no network, build on a login node"
    return error


def _bare(name: str) -> str:
    return re.split(r"[ @=]", name, maxsplit=1)[0]


def _no_solution(text: str) -> CheckFailed:
    evidence = (text[text.find("No solution found") :] if "No solution found" in text else text).strip()
    if unknown := UNKNOWN_PACKAGE.search(" ".join(text.split())):
        return CheckFailed(
            f"the index has no package {unknown[1]!r}",
            evidence=evidence,
            hint="check the spelling; a package of another index needs --extra-index-url in the requirements file",
        )
    return CheckFailed(
        "no versions of the packages go together here",
        evidence=evidence,
        hint="change one of the requirements named; exact versions that you did not write are the base's",
    )
