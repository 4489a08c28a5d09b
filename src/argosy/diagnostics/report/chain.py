"""Cite the lines that lead to a failure: of the program, and of its output; pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

from argosy.diagnostics.report.compare import ARGUMENTS, IN_LOG
from argosy.diagnostics.report.model import Case, Cited, Frame
from argosy.diagnostics.report.source import defined_names, find_argument_use, find_setting, names_of
from argosy.diagnostics.report.summary import describe_writer

MOST_CALLS = 3
"""Calls before the raised line that are cited."""

TRACEBACK = "Traceback (most recent call last)"


def cite_lines(case: Case) -> tuple[Cited, ...]:
    """Return the lines that lead from a changed argument to a failure, in their order."""
    if case.raised and case.raised.frames:
        return tuple(_cite_traceback(case))
    return tuple(_cite_settings(case)) if not case.facts.code else ()


def _cite_traceback(case: Case) -> Iterator[Cited]:
    """Yield the lines of the traceback, the definitions of names in the last one, and the last output before it."""
    if case.raised is None:
        return
    use = find_use(case)
    last = case.raised.frames[-1]
    own = [frame for frame in case.raised.frames if frame.path == last.path]
    if use and use[0] is not last:
        other = "" if use[0].path == last.path else f" of {PurePosixPath(use[0].path).name}"
        line = 0 if other else use[0].line
        yield Cited(f"Line {use[0].line}{other} reads the argument ({use[1]})", use[0].code, line)
    for frame, called in list(pairwise(own))[-MOST_CALLS:]:
        if not use or frame is not use[0]:
            yield Cited(f"Line {frame.line}{_inside(frame)} calls {called.function}", frame.code, frame.line)
    yield Cited(f"Line {last.line}{_inside(last)} raises {case.raised.text}", last.code, last.line)
    for number, name, text in find_definitions(case):
        yield Cited(f"Line {number} defines {name}", text, number)
    printed = _last_output(case)
    if printed:
        yield Cited(f"Last line of {describe_writer(case)} before the error", printed)


def find_definitions(case: Case) -> Iterator[tuple[int, str, str]]:
    """Yield the lines on the page that define a name which the raised line reads: number, name and text."""
    if case.raised and case.raised.frames and case.excerpt:
        for number, text, _ in case.excerpt.lines:
            for name in sorted(defined_names(text) & names_of(case.raised.frames[-1].code)):
                yield number, name, text


def find_use(case: Case) -> tuple[Frame, str] | None:
    """Return the frame of the traceback that reads a changed argument, and how."""
    changes = case.compared.changes
    if case.raised and case.plan and changes and changes[0].name == ARGUMENTS:
        return find_argument_use(case.raised, case.plan.command, changes[0])
    return None


def _inside(frame: Frame) -> str:
    return "" if frame.function == "<module>" else f", in {frame.function},"


def _last_output(case: Case) -> str:
    """Return the last line that was written before the traceback; empty if there is none."""
    lines = case.facts.last_lines
    begins = [number for number, line in enumerate(lines) if TRACEBACK in line]
    before = [line for line in lines[: begins[-1]] if line.strip()] if begins else []
    return before[-1] if before else ""


def _cite_settings(case: Case) -> Iterator[Cited]:
    """Yield the line of the program with a new argument and a setting that NCCL read, and the lines that use it."""
    for change in case.compared.observed:
        found = find_setting(case, change)
        if found and case.excerpt:
            number, text = found[:2]
            yield Cited(f"Line {number} has '{found[2]}' and {change.name.removesuffix(IN_LOG)}", text.strip(), number)
            users = [row for row in case.excerpt.lines if row[0] != number and defined_names(text) & names_of(row[1])]
            for line, code, _ in users[:MOST_CALLS]:
                yield Cited(f"Line {line} uses {', '.join(sorted(defined_names(text)))}", code.strip(), line)
            return
