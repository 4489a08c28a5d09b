"""Read the worker's answer; say what its errors mean for the user; the solver's tree is cut down to the cause."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from argosy.core.errors import ArgosyError, CheckFailed, ToolFailed, ToolMissing, UsageError
from argosy.core.process import FULL_DISK, FULL_DISK_HINT, LAST_LINES, Reply
from argosy.core.redact import redact
from argosy.recipes.conda_request import CondaPlan
from argosy.recipes.conda_spec import render_conda_spec

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
_BROKEN_OFF = ("error reading a body from connection", "connection closed before message completed", "Connection reset")
_NETWORK = ("error sending request", "dns error", "tcp connect error", "Connection refused", "timed out")


class CondaPackage(msgspec.Struct, frozen=True):
    """A conda package that was installed.

    Attributes
    ----------
    url
        Where it came from, without credentials.
    sha256, md5
        Of the package file; one may be empty.
    """

    name: str
    version: str
    build: str
    url: str
    sha256: str = ""
    md5: str = ""


def parse_answer(reply: Reply, plan: CondaPlan) -> tuple[CondaPackage, ...]:
    """Read which packages were installed, each after those that it depends on.

    Raises
    ------
    ArgosyError
        When conda said that it cannot be done, or ended without a word.
    """
    answer = _last_line(reply)
    if answer.get("event") == "done":
        rows = answer["packages"]
        return tuple(
            CondaPackage(row["name"], row["version"], row["build"], redact(row["url"]), row["sha256"], row["md5"])
            for row in rows
        )
    if answer.get("event") == "error":
        raise explain(str(answer.get("kind", "")), str(answer.get("message", "")), plan)
    raise _no_answer(reply)


def _last_line(reply: Reply) -> dict[str, Any]:
    lines = reply.stdout.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else {}
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _no_answer(reply: Reply) -> ArgosyError:
    last = "\n".join((*reply.stderr.strip().splitlines()[-LAST_LINES:], f"(exit code {reply.code})"))
    if "No module named 'rattler'" in reply.stderr:
        return ToolMissing(
            "py-rattler is not installed", evidence=last, hint="reinstall argosy, or pip install py-rattler"
        )
    hint = "it was killed: ask for more memory" if reply.code == KILLED else "try again; what was downloaded is kept"
    return ToolFailed("the conda step ended without an answer", evidence=redact(last), hint=hint)


def explain(kind: str, message: str, plan: CondaPlan) -> ArgosyError:
    """Say what a failure of rattler means; `kind` is the name of its exception."""
    message = redact(message)
    if kind == "SolverError":
        return _explain_solver(message, plan)
    if any(mark in message.lower() for mark in FULL_DISK):
        return CheckFailed("no space left while conda packages were installed", evidence=message, hint=FULL_DISK_HINT)
    if kind == "HashMismatch" or "hash mismatch" in message:
        if plan.pins:
            hint = "it was replaced in the channel since: lock again"
            return CheckFailed("a conda package is not the one that was locked", evidence=message, hint=hint)
        hint = "the channel's index and its packages differ: try again later, or tell those who run the channel"
        return CheckFailed("a conda package is not the one its channel announced", evidence=message, hint=hint)
    if kind == "ModuleNotFoundError":
        return ToolMissing("py-rattler is not installed", evidence=message, hint="pip install py-rattler")
    return _explain_network(message, plan) or ToolFailed(
        "installing conda packages failed", evidence=f"{kind}: {message}"
    )


def _explain_network(message: str, plan: CondaPlan) -> ArgosyError | None:
    status = _STATUS.search(message)
    if missing := _NO_SUBDIR.search(message):
        channel = missing["channel"].rstrip("/")
        return UsageError(
            f"there is no channel {channel}",
            evidence="\n".join((*_lines_of_channels(plan, channel), *message.splitlines()[1:])),
            hint="check its spelling; a channel has folders noarch and " + plan.platform,
        )
    if status and status["code"] in {"401", "403", "407"}:
        return ToolFailed(
            f"the channel refuses us: {status['code']} {status['word']}",
            evidence=status["url"],
            hint="put the login into ~/.netrc, or name a file by RATTLER_AUTH_FILE",
        )
    if status:
        hint = "it asks us to be slower: wait some minutes" if status["code"] == "429" else "try again later"
        return ToolFailed(f"the channel answered {status['code']} {status['word']}", evidence=status["url"], hint=hint)
    if any(mark in message for mark in _BROKEN_OFF):
        hint = "build again: what was fetched is kept, only the rest is downloaded"
        return ToolFailed("the network was lost in the middle of a download", evidence=message, hint=hint)
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
        return CheckFailed(
            f"no channel has a package {unknown['spec']!r}",
            evidence="\n".join((*_asked(plan, unknown["spec"]), f"channels: {' '.join(map(redact, plan.channels))}")),
            hint=_exported(plan, unknown["spec"]) or "check its spelling, or name the channel that has it",
        )
    return CheckFailed(
        "no versions of the conda packages go together",
        evidence="\n".join((*shorten_tree(message), *_asked(plan, message))),
        hint=_solver_hint(message, plan),
    )


def _asked(plan: CondaPlan, text: str) -> Iterator[str]:
    """Show the lines of the user's files that a message is about."""
    words = set(re.findall(r"[\w.-]+", text))
    for spec in plan.asked:
        if spec.name in words:
            yield f"{spec.where}: {render_conda_spec(spec)}"


def _solver_hint(message: str, plan: CondaPlan) -> str:
    virtual = {name: version for name, version, _ in plan.virtual}
    if "__cuda" in message:
        have = f"it was solved for CUDA {virtual['__cuda']}" if "__cuda" in virtual else "no GPU is assumed"
        return f"{have}: say with --cuda VERSION what the driver of the nodes supports, as in --cuda 12.8"
    if "__glibc" in message:
        have = f"the base has glibc {virtual['__glibc']}" if "__glibc" in virtual else "the base has no glibc"
        return f"{have}: take a newer base, or an older version of that package"
    return _exported(plan, message) or "change one of the versions named"


def _exported(plan: CondaPlan, message: str) -> str:
    """Explain a missing build that is asked for: an environment exported with its builds fits one platform only."""
    words = set(re.findall(r"[\w.-]+", message))
    exact = [spec for spec in plan.asked if spec.version.startswith("==") and re.fullmatch(r"\w+", spec.build)]
    if not any(spec.name in words for spec in exact):
        return ""
    return "a build is of one platform: export by 'conda env export --from-history', or leave builds out by --no-builds"


def shorten_tree(text: str) -> list[str]:
    """Keep of the solver's tree the lines that tell a cause, below those that lead to it, and the first of many."""
    lines = _without_repeats([line.rstrip() for line in text.splitlines() if line.strip()])
    if len(lines) > MOST_LINES:
        lines = _with_causes(lines)
    left = len(lines) - MOST_LINES
    shown = [_cut(line) for line in lines[:MOST_LINES]]
    return [*shown, f"… and {left} lines more of the same kind"] if left > 0 else shown


def _without_repeats(lines: list[str]) -> list[str]:
    """Leave out a line that says what the next one says: two ways to the same cause."""
    bare = [line.lstrip("│├└─ ") for line in lines]
    return [line for number, line in enumerate(lines) if bare[number] not in bare[number + 1 : number + 2]]


def _with_causes(lines: list[str]) -> list[str]:
    kept: set[int] = set()
    path: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        depth = len(line) - len(line.lstrip("│├└─ "))
        path = [(at, which) for at, which in path if at < depth] + [(depth, number)]
        if any(mark in line for mark in CAUSES):
            kept |= {which for _, which in path}
    return [line for number, line in enumerate(lines) if number in kept] or lines


def _cut(line: str) -> str:
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE // 2]} … {line[-LONGEST_LINE // 2 :]}"
