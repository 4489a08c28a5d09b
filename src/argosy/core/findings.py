"""Define the result of one check, and render results for people; every command that checks something uses it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec


class State(StrEnum):
    """The result of one check."""

    OK = "ok"
    """Nothing to do."""
    WARN = "warn"
    """It works, but it may be slow or cause trouble."""
    FAIL = "fail"
    """It does not work; the command exits with code 7."""
    UNKNOWN = "unknown"
    """The check could not be done here."""


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    what: str
    """Subject of the check in one or two words: ``runtime``, ``GPUs``."""
    state: State
    evidence: str
    """Result of the check."""
    hint: str = ""
    """Advice; empty if there is nothing to do."""


class FileFinding(Finding, frozen=True, kw_only=True):
    """A fault in a line of a file; `what` is the name of the rule that was broken."""

    path: str
    line: int
    """Line number from 1; 0 for the whole file."""
    why: str
    """Consequence of the fault."""
    source: str
    """Document that contains the rule."""


COLOURS = {State.OK: "32", State.WARN: "33", State.FAIL: "31", State.UNKNOWN: "36"}
"""ANSI colour codes: green, yellow, red, cyan."""
NO_LIMIT, LEAST_TEXT = 1 << 20, 28
"""Columns of a pipe, and the columns to which text is wrapped on the narrowest terminal."""
STATE_WIDTH = max(map(len, State))


def has_failed(findings: Iterable[Finding]) -> bool:
    """Return whether any check failed."""
    return any(finding.state is State.FAIL for finding in findings)


def render_findings(findings: Sequence[Finding], *, colour: bool = False, columns: int = NO_LIMIT) -> str:
    """Render findings for people, one line each, with the hints below.

    A `FileFinding` is rendered as compilers do it, so that editors can jump to the line.

    Parameters
    ----------
    columns
        Columns of the terminal.
    """
    width = max((len(each.what) for each in findings if not isinstance(each, FileFinding)), default=0)
    return "\n".join(
        _render_in_file(each, colour=colour)
        if isinstance(each, FileFinding)
        else _render(each, width, columns, colour=colour)
        for each in findings
    )


def _render(finding: Finding, width: int, columns: int, *, colour: bool) -> str:
    indent = " " * (STATE_WIDTH + width + 4)
    left = max(LEAST_TEXT, columns - len(indent))
    state = _paint(finding.state, f"{finding.state:<{STATE_WIDTH}}", colour=colour)
    first, *more = [part for line in finding.evidence.splitlines() or [""] for part in _wrap(line, left)]
    lines = [f"{state}  {finding.what:<{width}}  {first}", *(f"{indent}{line}" for line in more)]
    hint = [indent + part for part in _wrap(f"-> {finding.hint}", left)] if finding.hint else []
    return "\n".join([*lines, *hint])


def _wrap(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent="   " * line.startswith("-> "), break_long_words=False, break_on_hyphens=False
    )


def _render_in_file(finding: FileFinding, *, colour: bool) -> str:
    place = f"{finding.path}:{finding.line}" if finding.line else finding.path
    state = _paint(finding.state, finding.state, colour=colour)
    lines = [
        f"{place}: {state}: {finding.evidence} [{finding.what}]",
        f"    {finding.why}" + (f" ({finding.source})" if "://" in finding.source else ""),
    ]
    return "\n".join([*lines, f"    -> {finding.hint}"] if finding.hint else lines)


def _paint(state: State, text: str, *, colour: bool) -> str:
    return f"\x1b[{COLOURS[state]}m{text}\x1b[0m" if colour else text
