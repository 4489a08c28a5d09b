"""Measure the time that a wrapped command takes to start: `argosy bench startup`."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.bench.startup_cases import CASES, Case, StartupRequest, find_cases, open_target
from argosy.bench.statistics import quartiles
from argosy.core.parse import parse_json
from argosy.core.process import Command, find_program, run_checked
from argosy.core.records import asdict
from argosy.core.render import align_rows
from argosy.core.session import Session
from argosy.core.store import work_folder

PROGRAM = Path(__file__).with_name("startup_program.py")
MILLI = 1000
CALL = re.compile(r'^(?:\d+\s+)?[a-z_0-9]+\((?:AT_FDCWD, |\d+, )?"(?P<path>[^"]+)"', re.MULTILINE)
"""A call of strace's class ``%file`` that names a path."""


class Figure(msgspec.Struct, frozen=True):
    """Milliseconds of one case: median and quartiles.

    Attributes
    ----------
    at_once
        Number of simultaneous starts; 0 for a cold start.
    each
        The single values in the order of the measurement.
    """

    case: str
    at_once: int
    median: float
    low: float
    high: float
    runs: int
    each: tuple[float, ...] = ()


class Calls(msgspec.Struct, frozen=True):
    """File-system calls of one start that name a path.

    Attributes
    ----------
    shared
        Calls on the shared file system; None if they cannot be counted.
    """

    case: str
    calls: int
    shared: int | None


class StartupReport(msgspec.Struct, frozen=True):
    """The result of a measurement.

    Attributes
    ----------
    notes
        Cases that could not be measured, with the reason.
    """

    prefix: str
    runtime: str
    code: str
    figures: tuple[Figure, ...]
    calls: tuple[Calls, ...]
    notes: tuple[str, ...] = ()


def measure_startup(request: StartupRequest, session: Session) -> StartupReport:
    """Compare the start of a prefix's Python with other ways to start it.

    Raises
    ------
    UsageError
        If there is no such prefix, or it has no Python.
    ToolFailed
        If a start fails.
    """
    with work_folder(session.work_parent()) as work:
        target = open_target(request, work, session)
        found = list(find_cases(target, session))
        cases = [case for case in found if isinstance(case, Case)]
        notes = [note for note in found if isinstance(note, str)]
        with session.step("start", f"{len(cases)} cases, alternately"):
            seconds = _measure(request, cases, work, session)
        calls: tuple[Calls, ...] = ()
        if request.count and find_program("strace"):
            calls = tuple(_trace(case, work / "trace", session) for case in cases)
        elif request.count:
            notes.append("file-system calls are not counted: strace is not installed")
    figures = tuple(figure for case in cases for figure in _figures(case.name, seconds[case.name]))
    return StartupReport(str(request.prefix), target.version.runtime, request.code, figures, calls, tuple(notes))


def _measure(
    request: StartupRequest, cases: Sequence[Case], work: Path, session: Session
) -> Mapping[str, Mapping[str, list[float]]]:
    task = {"cases": [asdict(case) for case in cases], "at_once": request.at_once, "cold": request.cold}
    argv = (sys.executable, str(PROGRAM), str(work / "said"))
    reply = run_checked(session.runner, Command(argv, stdin=json.dumps(task)), doing="starting the commands")
    seconds: Mapping[str, Mapping[str, list[float]]] = parse_json(reply.stdout)
    return seconds


def _figures(name: str, measured: Mapping[str, list[float]]) -> Iterator[Figure]:
    for key, seconds in measured.items():
        values = [each * MILLI for each in seconds]
        low, high = quartiles(values)
        at_once = 0 if key == "cold" else int(key)
        yield Figure(name, at_once, statistics.median(values), low, high, len(values), tuple(values))


def _trace(case: Case, log: Path, session: Session) -> Calls:
    options = ("-f", "--seccomp-bpf", "-qq", "-e", "trace=%file", "-e", "signal=none", "-o", str(log))
    command = Command(("strace", *options, *case.words), env=case.env)
    run_checked(session.runner, command, doing=f"counting the calls of {case.name}")
    return count_calls(case.name, log.read_text(errors="replace", encoding="utf-8"), case.place)


def count_calls(name: str, trace: str, folder: str) -> Calls:
    """Count the calls in a log of strace that name a path, and those that name a path below a folder."""
    paths = [match["path"] for match in CALL.finditer(trace)]
    shared = sum(1 for path in paths if path == folder or path.startswith(f"{folder}/")) if folder else None
    return Calls(name, len(paths), shared)


def render_table(report: StartupReport) -> str:
    """Render a report as a table: median and quartiles in milliseconds, and calls, one row per case."""
    batches = _batches(report)
    rows = [["", *(_batch_name(each) for each in batches), "calls", "on the prefix's files"]]
    for name in _case_names(report):
        figures = {figure.at_once: figure for figure in report.figures if figure.case == name}
        calls = next((each for each in report.calls if each.case == name), None)
        counts = ("", "")
        if calls:
            counts = (f"{calls.calls:,}", "" if calls.shared is None else f"{calls.shared:,}")
        rows.append([CASES[name], *(_milliseconds(figures.get(each)) for each in batches), *counts])
    title = f"python -c {report.code!r} of {report.prefix}, by {report.runtime}; milliseconds: median (quartiles)"
    return "\n".join([title, "", *align_rows(rows), *(["", *report.notes] if report.notes else [])])


def _milliseconds(figure: Figure | None) -> str:
    return f"{figure.median:.1f} ({figure.low:.1f}-{figure.high:.1f})" if figure else ""


def _batch_name(at_once: int) -> str:
    return f"{at_once} at once" if at_once > 1 else "one" if at_once else "one, cold"


def _case_names(report: StartupReport) -> list[str]:
    return [name for name in CASES if any(figure.case == name for figure in report.figures)]


def _batches(report: StartupReport) -> list[int]:
    return sorted({figure.at_once for figure in report.figures})
