"""Find the lines of the user's program that explain a job, and read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path, PurePosixPath

import msgspec

from argosy.core.redact import redact
from argosy.core.shell import join
from argosy.diagnostics.report.model import Change, Excerpt, Search, UserException, UserFrame
from argosy.jobs.command_files import is_in_image

RAISED = re.compile(r"^(?:\[?rank\d+\]?: ?| *\d+: )?((?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*)$")
"""The last line of a Python traceback: the exception, with the rank that torchrun or srun writes before it."""

FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
"""A frame of a Python traceback."""

PACKAGES = ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen", "<string>", "<stdin>")
"""Parts of the paths of frames that do not belong to the user's program."""

DEFINED = re.compile(r"([A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=)")
"""The beginning of a line of a module that gives a name a value."""

NAME = re.compile(r"[A-Za-z_]\w*")

ARGUMENT = re.compile(r"\bsys\.argv\[(\d{1,3})\]")

AROUND, MOST_LINES = 5, 30
"""Lines before and after the line that raised an exception, and lines of an excerpt."""

MOST_DEFINITIONS = 3
"""Definitions of names before an excerpt."""

STRING = re.compile(r"\"[^\"]*\"|'[^']*'")

MOST_BYTES, LONGEST = 1 << 20, 200
"""Size of the largest program that is read, and characters of a line."""

SHORTEST_WORD = 3
"""Characters of an argument that are enough to search for it."""

NCCL = "NCCL_"


class ArgumentUse(msgspec.Struct, frozen=True):
    """The frame of a traceback that reads an argument of the program, and how, for example ``sys.argv[2]``."""

    frame: UserFrame
    expression: str


def find_exception(lines: Sequence[str]) -> UserException | None:
    """Find the Python exception at the end of a program, with its frames in the user's code.

    Parameters
    ----------
    lines
        The last lines of the program.
    """
    found = [(number, match) for number, line in enumerate(lines) if (match := RAISED.match(line))]
    if not found:
        return None
    number, match = found[-1]
    return UserException(match[1].rstrip("."), tuple(_own_frames(lines[:number])))


def _own_frames(lines: Sequence[str]) -> Iterator[UserFrame]:
    """Yield the frames of the user's code with the line of code below them, which Python prints if it has it."""
    for line, after in pairwise([*lines, ""]):
        frame = FRAME.search(line)
        if frame and not any(part in frame[1] for part in PACKAGES):
            yield UserFrame(frame[1], int(frame[2]), frame[3], "" if FRAME.search(after) else after.strip())


def search_frames(raised: UserException, folder: str) -> Search | None:
    """Return the lines around the one that raised an exception, with those near it that led there.

    Parameters
    ----------
    folder
        The folder in which the program ran, for a relative path; empty if it is unknown, which finds no such path.
    """
    if not raised.frames or not PurePosixPath(folder, raised.frames[-1].path).is_absolute():
        return None
    last = raised.frames[-1]
    near = [each.line for each in raised.frames if each.path == last.path and abs(each.line - last.line) < MOST_LINES]
    first, end = max(1, min(last.line - AROUND, *near)), max(last.line + AROUND, *near)
    if end - first >= MOST_LINES:
        first, end, near = max(1, last.line - AROUND), last.line + AROUND, [last.line]
    path = str(PurePosixPath(folder, last.path))
    return Search(path, first, end, tuple(near), in_image=is_in_image(path))


def search_arguments(path: str, change: Change) -> Search:
    """Return the lines of a program that contain one of its new arguments, or set a variable of NCCL."""
    before = shlex.split(change.before)
    new = [part for word in shlex.split(change.now) if word not in before for part in word.lstrip("-").split("=")]
    return Search(path, words=(*dict.fromkeys(word for word in new if len(word) >= SHORTEST_WORD), NCCL))


def read_excerpt(search: Search, started: float) -> Excerpt | None:
    """Read the lines of a program on this machine; None if it cannot be read.

    The path may come from a log, so only Python programs are read: other files may be private.

    Parameters
    ----------
    started
        Start of the job in seconds since 1970; the lines of a file that changed later are not shown.
    """
    file = Path(search.path)
    try:
        if search.in_image or file.suffix != ".py" or file.stat().st_size > MOST_BYTES:
            return None
        if file.stat().st_mtime > started:
            return Excerpt(
                search.path, note=f"{file.name} was changed after the job started, so its lines are not shown."
            )
        text = file.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
    lines = list(enumerate(redact(text).splitlines(), 1))
    shown = _lines_with_words(lines, search.words) if search.words else _lines_of_range(lines, search)
    return Excerpt(search.path, tuple((number, text[:LONGEST], number in search.marked) for number, text in shown))


def _lines_with_words(lines: Sequence[tuple[int, str]], words: Sequence[str]) -> list[tuple[int, str]]:
    """Return the lines that contain a word, or a name that a line with an argument defines."""
    arguments = [word for word in words if word != NCCL]
    names = {name for _, text in lines if any(word in text for word in arguments) for name in defined_names(text)}
    return [row for row in lines if any(word in row[1] for word in words) or names & names_of(row[1])][:MOST_LINES]


def _lines_of_range(lines: Sequence[tuple[int, str]], search: Search) -> list[tuple[int, str]]:
    """Return a range of lines, after the lines that define the names of the last marked line."""
    used = names_of(lines[search.marked[-1] - 1][1]) if search.marked and search.marked[-1] <= len(lines) else set()
    defined = [row for row in lines[: search.first - 1] if defined_names(row[1]) & used]
    return [*defined[-MOST_DEFINITIONS:], *lines[search.first - 1 : search.last]]


def defined_names(text: str) -> set[str]:
    """Return the name that a line of a module defines, or nothing."""
    match = DEFINED.match(text)
    return {match[1]} if match else set()


def names_of(text: str) -> set[str]:
    """Return the names in a line of code, without those in simple strings."""
    return set(NAME.findall(STRING.sub("", text)))


def describe_arguments(change: Change) -> str:
    """Describe how arguments differ, for example ``argument 'sockets' (before: 'ib')``."""
    before, now = _changed_words(change)
    if not before:
        return f"added {_arguments(now)}"
    if not now:
        return f"missing {_arguments(before)}"
    return f"{_arguments(now)} (before: '{join(before)}')"


def describe_return(change: Change) -> str:
    """Describe how to launch with the earlier arguments, for example ``with 'ib'`` or ``without '3'``."""
    before, now = _changed_words(change)
    return f"with '{join(before)}'" if before else f"without '{join(now)}'"


def _changed_words(change: Change) -> tuple[list[str], list[str]]:
    """Return the arguments that only the earlier command has, and those that only this one has."""
    before, now = shlex.split(change.before), shlex.split(change.now)
    if now[: len(before)] == before:
        return [], now[len(before) :]
    if before[: len(now)] == now:
        return before[len(now) :], []
    if len(before) == len(now):
        pairs = [pair for pair in zip(before, now, strict=True) if pair[0] != pair[1]]
        return [old for old, _ in pairs], [new for _, new in pairs]
    return before, now


def _arguments(words: Sequence[str]) -> str:
    return f"{'argument' if len(words) == 1 else 'arguments'} '{join(words)}'"


def find_argument_use(raised: UserException, command: Sequence[str], change: Change) -> ArgumentUse | None:
    """Find the frame of a traceback that reads an argument which changed, and how, for example ``sys.argv[2]``."""
    script = next((number for number, word in enumerate(command) if word.endswith(".py")), -1)
    before = [*command[: len(command) - len(shlex.split(change.now))], *shlex.split(change.before)]
    for frame in raised.frames if script >= 0 else ():
        for match in ARGUMENT.finditer(frame.code):
            at = script + int(match[1])
            if at < len(command) and (at >= len(before) or command[at] != before[at]):
                return ArgumentUse(frame, match[0])
    return None
