"""The story of `argosy bench startup`: find the command lines, start them in turns, count their calls, report."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from argosy.bench.startup.cases import find_cases, open_target
from argosy.bench.startup.model import Calls, Case, Figure, StartupReport, StartupRequest
from argosy.core.process import Command, find_program, run_checked
from argosy.core.records import asdict
from argosy.core.session import Session
from argosy.core.store import work_folder

PROGRAM = Path(__file__).with_name("program.py")
MILLI = 1000
CALL = re.compile(r'^(?:\d+\s+)?[a-z_0-9]+\((?:AT_FDCWD, |\d+, )?"(?P<path>[^"]+)"', re.MULTILINE)
"""A call of strace's class ``%file`` that names a path."""


def measure_startup(request: StartupRequest, session: Session) -> StartupReport:
    """Compare the start of a prefix's Python with other ways to start it.

    Raises
    ------
    UsageError
        When there is no such prefix, or it has no python.
    ToolFailed
        When a start fails, with what it said.
    """
    with work_folder(session.work_parent()) as work:
        target = open_target(request, work, session)
        found = list(find_cases(target, session))
        cases = [case for case in found if isinstance(case, Case)]
        notes = [note for note in found if isinstance(note, str)]
        with session.step("start", f"{len(cases)} ways, in turns") as step:
            taken = _timed(request, cases, work, session)
            step.result = f"{len(cases)} ways, in turns"
        calls: tuple[Calls, ...] = ()
        if request.count and find_program("strace"):
            calls = tuple(_counted(case, work / "trace", session) for case in cases)
        elif request.count:
            notes.append("no calls are counted: strace is not installed here")
    figures = tuple(figure for case in cases for figure in _figures(case.name, taken[case.name]))
    return StartupReport(str(request.prefix), target.version.runtime, request.code, figures, calls, tuple(notes))


def _timed(
    request: StartupRequest, cases: Sequence[Case], work: Path, session: Session
) -> Mapping[str, Mapping[str, list[float]]]:
    task = {"cases": [asdict(case) for case in cases], "at_once": request.at_once, "cold": request.cold}
    words = (sys.executable, str(PROGRAM), str(work / "said"))
    reply = run_checked(session.runner, Command(words, stdin=json.dumps(task)), doing="starting the commands")
    taken: Mapping[str, Mapping[str, list[float]]] = json.loads(reply.stdout)
    return taken


def _figures(name: str, taken: Mapping[str, list[float]]) -> Iterable[Figure]:
    for key, seconds in taken.items():
        values = [each * MILLI for each in seconds]
        low, high = (min(values), max(values)) if len(values) < 4 else statistics.quantiles(values, n=4)[::2]  # noqa: PLR2004
        at_once = 0 if key == "cold" else int(key)
        yield Figure(name, at_once, statistics.median(values), low, high, len(values), tuple(values))


def _counted(case: Case, log: Path, session: Session) -> Calls:
    words = (
        "strace",
        "-f",
        "--seccomp-bpf",
        "-qq",
        "-e",
        "trace=%file",
        "-e",
        "signal=none",
        "-o",
        str(log),
        *case.words,
    )
    run_checked(session.runner, Command(words, env=case.env), doing=f"counting the calls of {case.name}")
    return count_calls(case.name, log.read_text(errors="replace", encoding="utf-8"), case.place)


def count_calls(name: str, trace: str, place: str) -> Calls:
    """Count the calls in a log of strace: all that name a path, and those that name one below `place`."""
    paths = [match["path"] for match in CALL.finditer(trace)]
    shared = sum(1 for path in paths if path == place or path.startswith(f"{place}/")) if place else None
    return Calls(name, len(paths), shared)
