"""Explain failures, warnings and progress of uv to the user; uv's own text is the evidence."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from argosy.builder.backends.container import UV_INSIDE, WORK_INSIDE, BuildContainer
from argosy.builder.python.sources import advise_on_git
from argosy.core.errors import ArgosyError, CheckFailed, NoVersions, ToolFailed, UsageError
from argosy.core.process import Reply
from argosy.core.progress import render_amount
from argosy.core.redact import redact, split_login
from argosy.recipes.merge import PYTHON_OF_DEBIAN
from argosy.recipes.recipe import PipLine
from argosy.recipes.requirements import suggest_package
from argosy.recipes.uv_lock import OUTDATED
from argosy.recipes.uv_options import UvSettings

NO_SETTINGS = UvSettings()
FIRST_OF_A_BUILD, LAST_OF_A_BUILD = 10, 29
"""Lines of a failed build that an error shows: the package and the failed call come first, the cause mostly last."""
MOST_LINES = 8
NO_SOLUTION = "No solution found"
STATUS = re.compile(r"HTTP status \w+ error \((?P<said>(?P<code>\d{3})[^)]*)\) for url")
GONE = re.compile(r"Failed to download(?: and build)? `(?P<package>[^`]+ @ (?P<url>https?:[^`]+))`")
MISMATCH = re.compile(r"Hash mismatch for `(?P<package>[^`]+)`")
REFUSED = re.compile(r"401 Unauthorized|403 Forbidden")
_WARNING = re.compile(
    r"warning: (?:The package )?`([^`]+)` "
    r"(?:does not have an extra named `([^`]+)`|is yanked(?: \(reason: \"(.*)\"\))?)"
)
UNKNOWN_PACKAGE = re.compile(r"Because (\S+) was not found in (?:the package registry|the provided package locations)")
DAMAGED = re.compile(r"Failed to deserialize cache entry|The wheel is invalid|Failed to read from zip file")
OTHER_PYTHON = re.compile(r"current Python version \([^)]*\) does not satisfy Python([<>=!~][\w.,<>=!~]*\w)")
WHEELS_ONLY = re.compile(
    r"only found wheels for `(?P<name>[^`]+)` \(v(?P<version>[^)]+)\) with the following Python (?:ABI|implementation) "
    r"tags?: (?P<tags>`\w+`(?:,? (?:and )?`\w+`)*)"
)
OTHER_SYSTEM = re.compile(
    r"Wheels are available for `(?P<name>[^`]+)` \(v[^)]+\) on the following platforms?: "
    r"(?P<platforms>`\w+`(?:,? (?:and )?`\w+`)*)"
)
UNREADABLE = re.compile(
    r"Couldn't parse requirement in `(?P<file>[^`]+)` at position (?P<at>\d+)\n(?P<why>.*)", re.DOTALL
)

OF_PYTHON = "is a part of Python itself"


def explain_uv(
    build_container: BuildContainer,
    arguments: tuple[str, ...],
    reply: Reply,
    *,
    doing: str,
    settings: UvSettings = NO_SETTINGS,
    find_pythons: Callable[[str], list[str]] = lambda _: [],
) -> ArgosyError:
    """Return the error for a failure of uv, with its output as evidence.

    Parameters
    ----------
    find_pythons
        Returns the minor versions of Python 3 that have a wheel of a package, written ``name==version``.
    """
    text = reply.stderr
    if wrong := _explain_one_package(text) or _explain_unreadable(build_container, text):
        return wrong
    about_git = advise_on_git(text, settings, lambda: build_container.ask("git", "--version").code == 0)
    if "Git operation failed" in text:
        said = text[text.find("error:") if "error:" in text else text.find("Git operation failed") :]
        hint = about_git or "check the address, the revision, the network, and your permission to read the repository"
        return ToolFailed("cannot fetch a git repository", evidence=said.strip(), hint=hint)
    if built := re.search(r"Failed to (?:download and )?build `([^`]+)`", text):
        return ToolFailed(
            f"cannot build {built[1]}, which has no wheel for this base",
            evidence=_shorten_build(text[built.start() :].strip()),
            hint=about_git or _advise_on_build(built[1], find_pythons, lacks="ModuleNotFoundError" in text),
        )
    if NO_SOLUTION in text or "no version of" in text:
        return _no_solution(text, settings)
    if failed := _explain_download(text):
        return failed
    error = build_container.failure((UV_INSIDE, *arguments[:2], "…"), reply, doing=doing, hint=about_git)
    if any(mark in text for mark in ("dns error", "error sending request", "tcp connect error", "Could not connect")):
        error.hint = "check the network and the index; if the nodes have no network, build on a login node"
    return error


def _advise_on_build(package: str, find_pythons: Callable[[str], list[str]], *, lacks: bool) -> str:
    """Return the hint for a package that cannot be built; `lacks` tells whether its build misses a module."""
    name, _, version = package.partition("==")
    if hint := suggest_package(canonicalize_name(_bare(package))):
        return hint
    if version and (hint := _advise_older_python(name, version, find_pythons(package))):
        return hint
    hint = "use a version that has a wheel, or a base with the Python, compilers and libraries that the build needs"
    return hint + (f"; if it needs packages of the image: --no-build-isolation {_bare(package)}" if lacks else "")


def _shorten_build(text: str) -> str:
    """Return the first and the last lines of the output of a build."""
    lines = text.splitlines()
    if len(lines) > FIRST_OF_A_BUILD + 1 + LAST_OF_A_BUILD:
        lines[FIRST_OF_A_BUILD:-LAST_OF_A_BUILD] = ["…"]
    return "\n".join(lines)


def mentioned_names(text: str) -> set[str]:
    """Return all words of a text that may be names of packages, normalised."""
    return {canonicalize_name(word) for word in re.findall(r"[\w.-]+", text)}


@contextmanager
def naming_lines(lines: Iterable[PipLine]) -> Iterator[None]:
    """Add the user's lines for the packages in uv's explanation to an error about conflicting versions."""
    try:
        yield
    except CheckFailed as error:
        if NO_SOLUTION in error.evidence:
            mentioned = mentioned_names(error.evidence)
            # All modules of Python are named at once.
            others = sys.stdlib_module_names if OF_PYTHON in error.hint else frozenset()
            found = [line for line in lines if line.name in mentioned or line.name in others]
            named = [f"{line.where}: {' '.join(redact(line.text).split())}" for line in found]
            error.evidence = "\n".join((error.evidence, *named[:MOST_LINES]))
            locked = {line.name for line in found if Path(line.where.file).name == "uv.lock"}
            if any(line.name in locked and Path(line.where.file).name != "uv.lock" for line in found):
                error.hint = OUTDATED
        raise


class WrongFile(CheckFailed):
    """Report a package whose file is missing or not the requested one.

    Parameters
    ----------
    package
        The package as uv writes it: ``name==version`` or ``name @ URL``.
    """

    def __init__(self, package: str, what: str, *, evidence: str, hint: str) -> None:
        super().__init__(what, evidence=evidence, hint=hint)
        self.package = package


def _explain_one_package(text: str) -> WrongFile | None:
    """Return the error for an address of the user that does not exist, or for another hash than the requested one."""
    evidence = text[text.find("error:") :].strip()
    if (gone := GONE.search(text)) and (status := STATUS.search(text)) and status["code"] in {"404", "410"}:
        what = f"the address does not exist: {redact(gone['url'])}"
        return WrongFile(gone["package"], what, evidence=evidence, hint="check the address")
    if other := MISMATCH.search(text):
        return WrongFile(
            other["package"],
            f"hash mismatch: {redact(other['package'])} is not the file that was requested",
            evidence=evidence,
            hint="the file was replaced, or may have been tampered with: find out why before you change the hash",
        )
    return None


def _explain_unreadable(build_container: BuildContainer, text: str) -> UsageError | None:
    """Return the error for a line that uv cannot read, with its place in the user's file.

    The comment above each line of the file that uv reads has that place.
    """
    found = UNREADABLE.search(text)
    folder = next((bind.source for bind in build_container.binds if bind.target == WORK_INSIDE), "") if found else ""
    if found is None or not folder or not Path(found["file"]).is_relative_to(WORK_INSIDE):
        return None
    read = Path(folder, Path(found["file"]).relative_to(WORK_INSIDE)).read_bytes()
    before, rest = (part.decode(errors="replace") for part in (read[: int(found["at"])], read[int(found["at"]) :]))
    places = [line.removeprefix("# ") for line in before.splitlines() if line.startswith("# ")]
    line = redact(" ".join(next(iter(rest.splitlines()), "").split()))
    return UsageError(
        "invalid requirement",
        evidence=f"{places[-1] if places else 'a requirement'}: {line}\n{redact(found['why'].rstrip())}",
        hint="correct the line: uv, which installs the packages, cannot read it",
    )


@contextmanager
def naming_package(lines: Iterable[PipLine]) -> Iterator[None]:
    """Add the user's line to an error about the file of one package."""
    try:
        yield
    except WrongFile as error:
        name, _, url = error.package.partition(" @ ")
        name, url = canonicalize_name(_bare(name)), split_login(url)[0]
        found = [line for line in lines if line.name == name or (url and split_login(line.spec)[0] == url)]
        named = [f"{line.where}: {' '.join(redact(_with_hashes(line)).split())}" for line in found[:MOST_LINES]]
        error.evidence = "\n".join((error.evidence, *named))
        if any(line.hashes and not re.search(r"==|@", line.text) for line in found):
            error.hint = f"write the version that the hash belongs to ({name}==…); otherwise {error.hint}"
        raise


def _with_hashes(line: PipLine) -> str:
    return " ".join((line.text, *(f"--hash={each}" for each in line.hashes if each not in line.text)))


def _explain_download(text: str) -> ToolFailed | None:
    """Return the error for a damaged file, or for an index that refuses to answer."""
    if DAMAGED.search(text):
        said = text[text.find("error:") :].strip()
        hint = "if the file of the index is intact, empty the cache and build again: argosy cache gc --older-than 0h"
        return ToolFailed("cannot read a wheel: the file or its cache entry is damaged", evidence=said, hint=hint)
    status = STATUS.search(text)
    return _explain_status(status["code"], status["said"], text) if status else None


def _explain_status(code: str, said: str, text: str) -> ToolFailed:
    """Return the error for the answer of an index, which uv has asked three more times with increasing pauses."""
    if code == "429":
        what = f"the index is busy: {said}"
        hint = "wait some minutes and build again; finished downloads stay in the cache"
    else:
        what, hint = f"the index answered {said}", "try again later, or report it to the operators of the index"
    return ToolFailed(what, evidence=text[text.find("error:") :].strip(), hint=hint)


NO_VERSION = re.compile(r"there is no version of ([\w.-]+)==(\S+) and you require \1==\2,")
TWO_VERSIONS = re.compile(r"you require ([\w.-]+)==\S+ and \1==")


def _bare(name: str) -> str:
    return re.split(r"[ @=]", name, maxsplit=1)[0]


def _no_solution(text: str, settings: UvSettings) -> CheckFailed:
    evidence = (text[text.find(NO_SOLUTION) :] if NO_SOLUTION in text else text).strip()
    if unknown := UNKNOWN_PACKAGE.search(" ".join(text.split())):
        if REFUSED.search(text):
            return CheckFailed(
                f"no accessible index has a package {unknown[1]!r}",
                evidence=evidence,
                hint="put the index's login into ~/.netrc or pip's configuration, or check the spelling",
            )
        # The requirement may also come from an option, a pip: section or a project.
        hint = (
            "check the spelling; for a package of another index, set PIP_EXTRA_INDEX_URL, or add --extra-index-url URL "
            "to a requirements file or pip: section"
        )
        if unknown[1] in sys.stdlib_module_names:
            hint = f"{unknown[1]} {OF_PYTHON}: remove it from your requirements"
        hint = suggest_package(unknown[1]) or hint
        return CheckFailed(f"the index has no package {unknown[1]!r}", evidence=evidence, hint=hint)
    if missing := NO_VERSION.search(" ".join(text.split())):
        return NoVersions(
            f"the index has no {missing[1]}=={missing[2]}",
            evidence=evidence,
            hint=f"choose another version: 'pip index versions {missing[1]}' lists them",
        )
    hint = "change one of these requirements; exact versions that you did not write are those of the base"
    if twice := TWO_VERSIONS.search(" ".join(text.split())):
        hint = f"change one of these requirements; if one is the base's {twice[1]}, --allow-replace {twice[1]} hides it"
    if other := OTHER_PYTHON.search(" ".join(text.split())):
        hint = (
            f"use an older version, or a base with Python{other[1]}; python{other[1]} in an environment.yml also works"
        )
    if wheels := WHEELS_ONLY.search(" ".join(text.split())):
        hint = _advise_older_python(wheels["name"], wheels["version"], re.findall(r"`cp3(\d+)", wheels["tags"])) or hint
    hint = _advise_on_system(" ".join(text.split())) or hint
    if files := [value for word, value in pairwise(settings.arguments) if word == "--constraints"]:
        hint += f"; pip's configuration has constraints, too: {', '.join(files)}"
    return NoVersions("no compatible versions of the packages exist for this base", evidence=evidence, hint=hint)


def _advise_on_system(text: str) -> str:
    """Return the hint for a package that has wheels only for Windows or for macOS; empty for others."""
    found = OTHER_SYSTEM.search(text)
    platforms = re.findall(r"`(\w+)`", found["platforms"]) if found else ()
    for prefix, system, value in (("win", "Windows", "win32"), ("macosx", "macOS", "darwin")):
        if found and all(platform.startswith(prefix) for platform in platforms):
            return f"{found['name']} is only for {system}: remove it, or add to its line: ; sys_platform == '{value}'"
    return ""


def _advise_older_python(name: str, version: str, minors: list[str]) -> str:
    """Return how to get one of the Pythons 3.`minors` that wheels exist for; empty without such a Python."""
    if not minors:
        return ""
    pythons = [f"3.{minor}" for minor in minors]
    bases = [
        f"--base debian:{suite} (Python {python})"
        for suite, python in PYTHON_OF_DEBIAN.items()
        if python.rpartition(".")[0] in pythons
    ]
    fixes = ["use another version of it", *bases, f"--base docker://python:{pythons[-1]}-slim"]
    return (
        f"{name} {version} has wheels only for Python {', '.join(pythons)}: "
        f"{', '.join(fixes)}, or python={pythons[-1]} in an environment.yml"
    )


def explain_warnings(said: str, asked: Iterable[PipLine]) -> Iterator[str]:
    """Describe uv's warnings about yanked releases and unknown extras."""
    lines = tuple(asked)
    for found in dict.fromkeys(_WARNING.findall(said)):
        package, extra, reason = found
        name = canonicalize_name(package.partition("==")[0])
        where = next(
            (f"{line.where}: " for line in lines if line.name == name and extra in canonicalize_name(line.text)), ""
        )
        if extra:
            yield f"{where}{package} has no extra '{extra}', which is ignored"
        else:
            yield f"{where}{package} was yanked by its authors{f': {reason}' if reason else ''}"


UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
BEGUN = re.compile(r"Downloading (?P<name>\S+) \((?P<size>[\d.]+)(?P<unit>[KMG]iB)\)")
ENDED = re.compile(r"Downloaded (?P<name>\S+)")
STAGES = (
    (re.compile(r"Resolved (\d+) packages?"), "fetching {0} packages"),
    (re.compile(r"Building (\S+)"), "building {0}"),
    (re.compile(r"Prepared (\d+) packages?"), "installing {0} packages"),
    (re.compile(r"Installed (\d+) packages?"), "compiling the byte code of {0} packages"),
)
"""uv's line at the end of a stage -> description of the next stage (uv 0.13)."""


class UvProgress(msgspec.Struct):
    """Turn uv's output into progress lines."""

    report: Callable[[str], None]
    """Receives each progress line."""
    clock: Callable[[], float] = time.monotonic
    sizes: dict[str, float] = msgspec.field(default_factory=dict)
    """Bytes of each file that uv lists; it does not list small ones."""
    ended: set[str] = msgspec.field(default_factory=set)
    begun: float = 0.0

    def hear(self, line: str) -> None:
        """Read one line of uv's output; lines without progress, for example the final list, are ignored."""
        if found := BEGUN.search(line):
            self.begun = self.begun or self.clock()
            self.sizes[found["name"]] = float(found["size"]) * UNITS[found["unit"]]
            self.report(self._amount())
        elif found := ENDED.search(line):
            self.ended.add(found["name"])
            self.report(self._amount())
        else:
            for pattern, text in STAGES:
                if found := pattern.search(line):
                    self.report(text.format(found[1]))

    def _amount(self) -> str:
        done = sum(size for name, size in self.sizes.items() if name in self.ended)
        waited = [name for name in self.sizes if name not in self.ended]
        total = sum(self.sizes.values())
        # uv reports a file when it is complete, and small ones first: they say little about the rate.
        amount = render_amount(done, total, self.clock() - self.begun if done > total / 2 else 0.0)
        more = f" and {len(waited) - 1} more" if len(waited) > 1 else ""
        return f"downloading {max(waited, key=self.sizes.__getitem__)}{more}: {amount}" if waited else f"got {amount}"
