"""Parse the conda worker's reply, and convert its errors; the solver's explanation is shortened to the causes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.parse import parse_json
from argosy.core.process import Reply
from argosy.core.redact import redact
from argosy.core.tool_errors import FULL_DISK, FULL_DISK_HINT, LAST_LINES
from argosy.recipes.conda_request import CondaPackage, CondaPlan
from argosy.recipes.conda_spec import render_conda_spec
from argosy.recipes.merge import python_fits

MOST_LINES = 16
LONGEST_LINE = 180
PREAMBLE = "Cannot solve the request because of: "
CAUSES = ("no candidates", "no viable options", "cannot be fulfilled", "conflicts with", "excluded", "is locked")
KILLED = 137
_STATUS = re.compile(
    r"HTTP status (?:client|server) error \((?P<code>\d{3}) (?P<word>[^)]*)\) for url \((?P<url>[^)]*)\)"
)
_NO_SUBDIR = re.compile(r"could not find subdir '[^']*' in channel '(?P<channel>[^']*)'")
_UNKNOWN = re.compile(r"No candidates were found for (?P<spec>\S+)")
_UNFULFILLED = re.compile(r"the constraint (?P<name>\S+) (?P<version>\S+).* cannot be fulfilled")
_REQUIRING = re.compile(r"(?P<name>\S+) (?P<versions>.*) would require")
_TREE = "│├└─ "
"""Characters that draw the solver's tree."""

_BROKEN_OFF = ("error reading a body from connection", "connection closed before message completed", "Connection reset")
_NETWORK = ("error sending request", "dns error", "tcp connect error", "Connection refused", "timed out")


def packages_of(plan: CondaPlan) -> tuple[CondaPackage, ...]:
    """Return the exact packages of a plan, sorted by name."""
    pins = (CondaPackage(p.name, p.version, p.build, redact(p.url), p.sha256, p.md5, 0, p.url) for p in plan.pins)
    return tuple(sorted(pins, key=lambda package: package.name))


def parse_answer(reply: Reply, plan: CondaPlan) -> tuple[CondaPackage, ...]:
    """Return the packages that the worker chose or installed, sorted by name."""
    answer = _last_line(reply)
    if answer.get("event") == "done":
        packages = (_package_of(row) for row in answer["packages"])
        return tuple(sorted(packages, key=lambda package: package.name))
    if answer.get("event") == "error":
        raise explain(str(answer.get("kind", "")), str(answer.get("message", "")), plan)
    raise _no_answer(reply)


def _package_of(row: dict[str, Any]) -> CondaPackage:
    name, version, build, url = row["name"], row["version"], row["build"], row["url"]
    return CondaPackage(name, version, build, redact(url), row["sha256"], row["md5"], row["size"], url)


def _last_line(reply: Reply) -> dict[str, Any]:
    lines = reply.stdout.strip().splitlines()
    try:
        answer = parse_json(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _no_answer(reply: Reply) -> ArgosyError:
    last = "\n".join((*reply.stderr.strip().splitlines()[-LAST_LINES:], f"(exit code {reply.code})"))
    if "No module named 'rattler'" in reply.stderr:
        return ToolMissing(
            "py-rattler is not installed", evidence=last, hint="reinstall argosy, or pip install py-rattler"
        )
    hint = "it was killed; request more memory" if reply.code == KILLED else "try again; finished downloads are kept"
    return ToolFailed("installing conda packages failed without a message", evidence=redact(last), hint=hint)


def explain(kind: str, message: str, plan: CondaPlan) -> ArgosyError:
    """Convert an error of rattler; `kind` is the name of its exception."""
    message = redact(message)
    if kind == "SolverError":
        return _explain_solver(message, plan)
    if any(mark in message.lower() for mark in FULL_DISK):
        return CheckFailed("cannot install conda packages: no space left", evidence=message, hint=FULL_DISK_HINT)
    if kind == "HashMismatch" or "hash mismatch" in message:
        if plan.pins:
            hint = "the channel has replaced the file; lock again"
            return CheckFailed("hash mismatch: a conda package differs from the lock", evidence=message, hint=hint)
        hint = "the channel is inconsistent: try again later, or inform its maintainers"
        return CheckFailed(
            "hash mismatch: a conda package differs from its channel's index", evidence=message, hint=hint
        )
    if kind == "ModuleNotFoundError":
        return ToolMissing("py-rattler is not installed", evidence=message, hint="pip install py-rattler")
    return _explain_network(message, plan) or ToolFailed(
        "installing conda packages failed",
        evidence=f"{kind}: {message}",
        hint="build again; if it fails again, remove the downloads: argosy cache gc",
    )


def _explain_network(message: str, plan: CondaPlan) -> ArgosyError | None:
    status = _STATUS.search(message)
    if missing := _NO_SUBDIR.search(message):
        channel = missing["channel"].rstrip("/")
        return UsageError(
            f"no such channel: {channel}",
            evidence="\n".join((*_lines_of_channels(plan, channel), *message.splitlines()[1:])),
            hint=f"check the spelling; a channel has the folders noarch and {plan.platform}",
        )
    if status and status["code"] in {"401", "403", "407"}:
        return ToolFailed(
            f"the channel denied access: {status['code']} {status['word']}",
            evidence=status["url"],
            hint="add the login to ~/.netrc or to the file in RATTLER_AUTH_FILE",
        )
    if status:
        hint = "too many requests; wait some minutes" if status["code"] == "429" else "try again later"
        return ToolFailed(f"the channel answered {status['code']} {status['word']}", evidence=status["url"], hint=hint)
    if any(mark in message for mark in _BROKEN_OFF):
        hint = "build again; only the missing files are downloaded"
        return ToolFailed("the connection was lost during a download", evidence=message, hint=hint)
    if any(mark in message for mark in _NETWORK):
        hint = "check the network and the channel; where nodes have no network, build on a login node"
        return ToolFailed("a channel cannot be reached", evidence=message, hint=hint)
    return None


def _lines_of_channels(plan: CondaPlan, channel: str) -> Iterator[str]:
    others = [redact(each) for each in plan.channels if redact(each).rstrip("/") != channel]
    if others:
        yield f"other channels: {', '.join(others)}"


def _explain_solver(message: str, plan: CondaPlan) -> ArgosyError:
    message = message.removeprefix(PREAMBLE)
    unknown = _UNKNOWN.match(message)
    if unknown and not unknown["spec"].startswith("__"):
        needed = [spec for spec in plan.for_pip if spec.name == unknown["spec"]]
        hint = "add a channel that has it, for example conda-forge" if needed else ""
        lines = (
            *_asked(plan, unknown["spec"]),
            *(f"{spec.where}: a package of 'pip:', which needs {spec.name}" for spec in needed),
            f"channels: {' '.join(map(redact, plan.channels))}",
        )
        return CheckFailed(
            f"no channel has a package {unknown['spec']!r}",
            evidence="\n".join(lines),
            hint=hint or _exported(plan, unknown["spec"]) or "check its spelling, or name the channel that has it",
        )
    return CheckFailed(
        "no versions of the conda packages are compatible",
        evidence="\n".join((*shorten_tree(message), *_asked(plan, message))),
        hint=_solver_hint(message, plan),
    )


def _asked(plan: CondaPlan, text: str) -> Iterator[str]:
    """Yield the lines of the user's files that a message mentions."""
    words = set(re.findall(r"[\w.-]+", text))
    for spec in plan.asked:
        if spec.name in words:
            yield f"{spec.where}: {render_conda_spec(spec)}"


def _solver_hint(message: str, plan: CondaPlan) -> str:
    change = _exported(plan, message) or "change one of these versions"
    known = {name: (version, build) for name, version, build in plan.virtual}
    for name, advise in _ADVICE.items():
        needing = _versions_needing(name, message)
        if name in message and _may_fit(needing, message, plan):
            others = any(found["name"] not in needing for found in _UNFULFILLED.finditer(message))
            return advise(*known.get(name, ("", ""))) + (f"; if that is not enough, {change}" if others else "")
    return change


def _advise_on_cuda(version: str, _: str) -> str:
    have = f"solved for CUDA {version}" if version else "solved without a GPU"
    return f"{have}; pass the CUDA version of the nodes' driver, for example --cuda 12.8"


def _advise_on_glibc(version: str, _: str) -> str:
    have = f"the base has glibc {version}" if version else "the base has no glibc"
    return f"{have}; use a newer base or an older version of that package"


def _advise_on_processors(_: str, kind: str) -> str:
    return f"solved for processors of type {kind}; pass --site NAME of a site with newer ones, or use another version"


_ADVICE = {"__cuda": _advise_on_cuda, "__glibc": _advise_on_glibc, "__archspec": _advise_on_processors}
"""Virtual package -> the advice, from its version and build."""


def _versions_needing(virtual: str, message: str) -> dict[str, list[str]]:
    """Return the versions of each package in the solver's tree that require a virtual package."""
    found: dict[str, list[str]] = {}
    path: list[tuple[int, str]] = []
    for line in message.splitlines():
        text = line.lstrip(_TREE)
        depth = len(line) - len(text)
        path = [(at, above) for at, above in path if at < depth]
        if text.startswith(f"{virtual} ") and path and (parent := _REQUIRING.match(path[-1][1])):
            found.setdefault(parent["name"], []).extend(parent["versions"].split(" | "))
        path.append((depth, text))
    return found


def _may_fit(needing: dict[str, list[str]], message: str, plan: CondaPlan) -> bool:
    """Return whether the constraints on these packages allow one of these versions of each."""
    asked = [(spec.name, spec.version) for spec in plan.asked if spec.version]
    unmet = [(found["name"], found["version"]) for found in _UNFULFILLED.finditer(message)]
    return all(
        any(_fits(version, each) for each in needing[name]) for name, version in (*asked, *unmet) if name in needing
    )


def _fits(asked: str, version: str) -> bool:
    """Return whether a version satisfies a constraint; true for those that are not written as Python's versions."""
    try:
        return python_fits(asked, version)
    except UsageError:
        return True


def _exported(plan: CondaPlan, message: str) -> str:
    """Return the hint for a missing exact build, which is often from an environment exported on another platform."""
    words = set(re.findall(r"[\w.-]+", message))
    exact = [spec for spec in plan.asked if spec.version.startswith("==") and re.fullmatch(r"\w+", spec.build)]
    if not any(spec.name in words for spec in exact):
        return ""
    return "builds are specific to a platform; export with 'conda env export --from-history' or --no-builds"


def shorten_tree(text: str) -> list[str]:
    """Shorten the solver's tree to lines with causes and their parents, and to a maximal number of lines."""
    lines = _without_repeats([line.rstrip() for line in text.splitlines() if line.strip()])
    if len(lines) > MOST_LINES:
        lines = _with_causes(lines)
    left = len(lines) - MOST_LINES
    shown = [_cut(line) for line in lines[:MOST_LINES]]
    return [*shown, f"… and {left} more lines"] if left > 0 else shown


def _without_repeats(lines: list[str]) -> list[str]:
    """Remove lines that equal the next one except for the tree: two paths to the same cause."""
    bare = [line.lstrip(_TREE) for line in lines]
    return [line for number, line in enumerate(lines) if bare[number] not in bare[number + 1 : number + 2]]


def _with_causes(lines: list[str]) -> list[str]:
    kept: set[int] = set()
    path: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip(_TREE))
        path = [(at, which) for at, which in path if at < depth] + [(depth, number)]
        if any(mark in line for mark in CAUSES):
            kept |= {which for _, which in path}
    return [line for number, line in enumerate(lines) if number in kept] or lines


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"
