"""Say what a failure of uv means for the user; its own explanation is the evidence."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import UV_INSIDE, BuildContainer
from argosy.builder.python.sources import advise_on_git
from argosy.core.errors import ArgosyError, CheckFailed, NoVersions, ToolFailed
from argosy.core.process import Reply
from argosy.core.progress import render_amount
from argosy.core.redact import redact
from argosy.recipes.recipe import PipLine
from argosy.recipes.uv_options import UvSettings

NO_SETTINGS = UvSettings()
MOST_OF_A_BUILD = 40
MOST_LINES = 8
NO_SOLUTION = "No solution found"
STATUS = re.compile(r"HTTP status \w+ error \((?P<said>(?P<code>\d{3})[^)]*)\) for url")
REFUSED = re.compile(r"401 Unauthorized|403 Forbidden")
_WARNING = re.compile(
    r"warning: (?:The package )?`([^`]+)` "
    r"(?:does not have an extra named `([^`]+)`|is yanked(?: \(reason: \"(.*)\"\))?)"
)
UNKNOWN_PACKAGE = re.compile(r"Because (\S+) was not found in (?:the package registry|the provided package locations)")
DAMAGED = re.compile(r"Failed to deserialize cache entry|The wheel is invalid|Failed to read from zip file")
OTHER_PYTHON = re.compile(r"current Python version \([^)]*\) does not satisfy Python([<>=!~][\w.,<>=!~]*\w)")


def explain_uv(
    build_container: BuildContainer,
    words: tuple[str, ...],
    reply: Reply,
    *,
    doing: str,
    settings: UvSettings = NO_SETTINGS,
) -> ArgosyError:
    """Say what uv's failure means for the user; its own explanation is the evidence."""
    text = reply.stderr
    about_git = advise_on_git(text, settings)
    if "Git operation failed" in text:
        said = text[text.find("error:") if "error:" in text else text.find("Git operation failed") :]
        hint = about_git or "check the address, the revision, the network, and that you may read it"
        return ToolFailed("a repository could not be fetched", evidence=said.strip(), hint=hint)
    if built := re.search(r"Failed to (?:download and )?build `([^`]+)`", text):
        lacks = "ModuleNotFoundError" in text
        return ToolFailed(
            f"{built[1]} has no wheel for this base, and could not be built",
            evidence="\n".join(text[built.start() :].strip().splitlines()[:MOST_OF_A_BUILD]),
            hint=about_git
            or "take a version that has one, or a base that has what its build needs"
            + (f"; where it needs what the image has: --no-build-isolation {_bare(built[1])}" if lacks else ""),
        )
    if NO_SOLUTION in text or "no version of" in text:
        return _no_solution(text, settings)
    if DAMAGED.search(text):
        said = text[text.find("error:") :].strip()
        hint = "where the index's own file is whole, empty the cache and build again: argosy cache gc --older-than 0h"
        return ToolFailed("a wheel is damaged, or its entry in the cache", evidence=said, hint=hint)
    if status := STATUS.search(text):
        return _explain_status(status["code"], status["said"], text)
    error = build_container.failure((UV_INSIDE, *words[:2], "…"), reply, doing=doing, hint=about_git)
    if any(mark in text for mark in ("dns error", "error sending request", "tcp connect error", "Could not connect")):
        error.hint = "check the network and the index; where nodes have no network, build on a login node"
    return error


@contextmanager
def naming_lines(lines: Iterable[PipLine]) -> Iterator[None]:
    """Where no versions go together, show the user's lines that ask for the packages in uv's explanation.

    Raises
    ------
    CheckFailed
        What came, with those lines.
    """
    try:
        yield
    except CheckFailed as error:
        if NO_SOLUTION in error.evidence:
            words = {re.sub(r"[-_.]+", "-", word.lower()) for word in re.findall(r"[\w.-]+", error.evidence)}
            named = [f"{line.where}: {' '.join(redact(line.text).split())}" for line in lines if line.name in words]
            error.evidence = "\n".join((error.evidence, *named[:MOST_LINES]))
        raise


def _explain_status(code: str, said: str, text: str) -> ToolFailed:
    """Say what an index answered; uv asked again three times, longer and longer after one another."""
    if code == "429":
        what, hint = f"the index asks us to be slower: {said}", "wait some minutes and build again: what came is kept"
    else:
        what, hint = f"the index answered {said}", "try again later, or tell those who run it"
    return ToolFailed(what, evidence=text[text.find("error:") :].strip(), hint=hint)


def _bare(name: str) -> str:
    return re.split(r"[ @=]", name, maxsplit=1)[0]


def _no_solution(text: str, settings: UvSettings) -> CheckFailed:
    evidence = (text[text.find(NO_SOLUTION) :] if NO_SOLUTION in text else text).strip()
    if unknown := UNKNOWN_PACKAGE.search(" ".join(text.split())):
        if REFUSED.search(text):
            return CheckFailed(
                f"no index that lets us in has a package {unknown[1]!r}",
                evidence=evidence,
                hint="put the index's login into ~/.netrc or pip's configuration, or check the spelling",
            )
        return CheckFailed(
            f"the index has no package {unknown[1]!r}",
            evidence=evidence,
            hint="check the spelling; a package of another index needs --extra-index-url in the requirements file",
        )
    hint = "change one of the requirements named; exact versions that you did not write are the base's"
    if other := OTHER_PYTHON.search(" ".join(text.split())):
        hint = (
            f"take an older version, or a base with Python{other[1]}; python{other[1]} in an environment.yml works too"
        )
    if files := [value for word, value in pairwise(settings.arguments) if word == "--constraints"]:
        hint += f"; pip's configuration constrains, too: {', '.join(files)}"
    return NoVersions("no versions of the packages go together here", evidence=evidence, hint=hint)


def explain_warnings(said: str, asked: Iterable[PipLine]) -> Iterator[str]:
    """Say what uv warns of and goes on: a release that was taken back, an extra that there is none of."""
    lines = tuple(asked)
    for found in dict.fromkeys(_WARNING.findall(said)):
        package, extra, reason = found
        name = canonicalize_name(package.partition("==")[0])
        where = next(
            (f"{line.where}: " for line in lines if line.name == name and extra in canonicalize_name(line.text)), ""
        )
        if extra:
            yield f"{where}{package} has no extra '{extra}': nothing is installed for it"
        else:
            yield f"{where}{package} was taken back by its authors{f': {reason}' if reason else ''}"


UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
BEGUN = re.compile(r"Downloading (?P<name>\S+) \((?P<size>[\d.]+)(?P<unit>[KMG]iB)\)")
ENDED = re.compile(r"Downloaded (?P<name>\S+)")
STAGES = (
    (re.compile(r"Resolved (\d+) packages?"), "fetching {0} packages"),
    (re.compile(r"Building (\S+)"), "building {0}"),
    (re.compile(r"Prepared (\d+) packages?"), "installing {0} packages"),
    (re.compile(r"Installed (\d+) packages?"), "compiling the byte code of {0} packages"),
)
"""What uv says at the end of a stage, and what therefore begins (uv 0.13)."""


class UvProgress(msgspec.Struct):
    """Remembers what is being downloaded.

    Attributes
    ----------
    tell
        Gets a line where there is something to say.
    sizes
        Bytes of each file that uv found worth naming: it says nothing of small ones.
    """

    tell: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    sizes: dict[str, float] = msgspec.field(default_factory=dict)
    ended: set[str] = msgspec.field(default_factory=set)
    begun: float = 0.0

    def hear(self, line: str) -> None:
        """Take one line of uv's; lines that tell a person nothing, as the list at its end, are dropped."""
        if found := BEGUN.search(line):
            self.begun = self.begun or self.clock()
            self.sizes[found["name"]] = float(found["size"]) * UNITS[found["unit"]]
            self.tell(self._amount())
        elif found := ENDED.search(line):
            self.ended.add(found["name"])
            self.tell(self._amount())
        else:
            for pattern, text in STAGES:
                if found := pattern.search(line):
                    self.tell(text.format(found[1]))

    def _amount(self) -> str:
        done = sum(size for name, size in self.sizes.items() if name in self.ended)
        waited = [name for name in self.sizes if name not in self.ended]
        amount = render_amount(done, sum(self.sizes.values()), self.clock() - self.begun)
        more = f" and {len(waited) - 1} more" if len(waited) > 1 else ""
        return f"downloading {max(waited, key=self.sizes.__getitem__)}{more}: {amount}" if waited else f"got {amount}"
