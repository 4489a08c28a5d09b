"""Find where the failure at the end of a log begins, and its first error line; pure.

The phrases that mark a line as an error, or as a line of a program that went on, are in ``marks.toml``. An error line
is quoted without a theory of its reason: a wrong cause costs the reader more than none.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Collection, Container, Iterator, Sequence

from argosy.diagnostics.why.lines import NO_DIGITS, Line, rank_of
from argosy.diagnostics.why.phrases import LineKind

HANDLED_ABOVE, HANDLED_BELOW = 1, 3
"""Lines above and below the last one of an error in which a program says that it continues."""
LEAST_STEPS = 2
"""Lines that are repeated after an error and show that a loop continued; one more after an exception or two errors."""

HEADLINE = re.compile(r"(?::|library error|FATAL CALLED -*)\s*$")
"""The end of an error line whose message is in the next line."""

MOST_BELOW = 3
"""Lines of a quoted message below its first one."""

BOX = "-" * 74
"""The line before and after a message of Open MPI or of its launcher."""
BOX_LINES = 40
"""Lines of the longest message in a box."""

WENT_ON = 12
"""Lines of ordinary output after an error that show that the program continued."""


def find_boxed(lines: Sequence[str]) -> tuple[set[int], set[int]]:
    """Return the lines (from 0) of Open MPI's messages: those that report an error, and harmless ones."""
    boxed, harmless = set[int](), set[int]()
    for inside in _find_boxes(lines):
        message = " ".join(lines[at].strip() for at in inside)
        if LineKind.HARMLESS_BOX.matches(message):
            harmless.update(inside)
        elif LineKind.BOXED_ERROR.matches(message) and not _follows(message):
            boxed.update(inside)
    return boxed, harmless


def _find_boxes(lines: Sequence[str]) -> Iterator[range]:
    """Yield the lines (from 0) of each message of Open MPI, without its edges."""
    edges = deque(at for at, line in enumerate(lines) if line.startswith(BOX))
    while len(edges) > 1:
        begin, end = edges.popleft(), edges[0]
        if 1 < end - begin <= BOX_LINES:  # of two edges without lines between them, the first ends a message
            edges.popleft()
            yield range(begin + 1, end)


def is_error_line(line: str) -> bool:
    """Return whether a line reports an error of its own."""
    if not (LineKind.REPORTED.matches(line) or LineKind.REFUSED.matches(line)):
        return False
    return not (LineKind.HARMLESS.matches(line) or _follows(line))


def _follows(line: str) -> bool:
    """Return whether a line follows from another error, or reports how another program ended."""
    return LineKind.CONSEQUENCE.matches(line) or LineKind.ENDED.matches(line)


def failure_start(lines: Sequence[str], explained: Container[int]) -> int:
    """Return the line (from 0) where the failure at the end of a log begins: after it, the program did not go on.

    Parameters
    ----------
    explained
        Lines (from 0) with a known error.
    """
    start, ordinary = len(lines), 0
    for at in range(len(lines) - 1, -1, -1):
        if at in explained or is_error_line(lines[at]):
            start, ordinary = at, 0
        elif _is_ordinary(lines[at]):
            ordinary += 1
            if ordinary > WENT_ON:
                break
    return start


def _is_ordinary(line: str) -> bool:
    """Return whether a line is one of a program that works."""
    return LineKind.PROGRESS.matches(line) or not LineKind.FAILURE_TALK.matches(line)


def went_on(lines: Sequence[str], last: int, *, uncaught: bool, mild: bool = False) -> bool:
    """Return whether the lines after an error are those of a program that continued, and nothing fails in them.

    Parameters
    ----------
    last
        The last line (from 0) of the last error; the number of lines if there is no error.
    uncaught
        Whether the error is an exception, which usually ends a program.
    mild
        Whether scripts and programs usually continue after the error.
    """
    near = lines[max(0, last - HANDLED_ABOVE) : last + 1 + HANDLED_BELOW]
    handled = mild or any(map(LineKind.HANDLED.matches, near))
    known, first = {_template(line) for line in lines[:last]}, lines[0] if lines else ""
    end = next((inside[-1] for inside in _find_boxes(lines) if last in inside), last)
    lines = lines[end + 1 :]
    if LineKind.CMAKE_TESTS.matches(first) or _is_built(lines):
        return True
    failed = [at for at, line in enumerate(lines) if is_failure(line)]
    if failed:
        return _goes_on(lines[failed[-1] + 1 :], known, uncaught=uncaught, least=LEAST_STEPS + 1)
    ordinary = [line for line in lines if _is_ordinary(line)]
    if len(ordinary) > (0 if handled else WENT_ON) or any(map(LineKind.WELL.matches, lines)):
        return True
    if _goes_on(lines, known, uncaught=uncaught, least=LEAST_STEPS + uncaught):
        return True
    return not uncaught and any(LineKind.DONE.matches(line) or LineKind.REPORTED_WELL.matches(line) for line in lines)


def _is_built(lines: Sequence[str]) -> bool:
    """Return whether the lines are the end of a build or of its configuration that succeeded."""
    end = next((line for line in reversed(lines) if line.strip() and not LineKind.PROMPT.matches(line)), "")
    if LineKind.BUILT.matches(end):
        return not any(map(LineKind.STOPPED_BUILD.matches, lines))
    return LineKind.CONFIGURED.matches(end)


def _goes_on(lines: Sequence[str], before: Container[str], *, uncaught: bool, least: int) -> bool:
    """Return whether some lines differ only in numbers from those before or from each other: steps of a loop.

    After an exception, only lines as those before count: another part of the script may follow it.
    """
    times = Counter(_template(line) for line in lines if not LineKind.NO_STEP.matches(line))
    steps = (number for each, number in times.items() if each and (each in before or (number > 1 and not uncaught)))
    return sum(steps) >= least


def _template(line: str) -> str:
    """Return a line without its numbers, which differ between the steps of a loop; empty if nothing is left."""
    text = re.sub(r"[-+.]?\d[\d.eE+:-]*", "0", line).strip()
    return text if "0" in text and re.search(r"[A-Za-z]{2}", text) else ""


def is_failure(line: str) -> bool:
    """Return whether a line reports an error, or an end that was not a success, and not that the program continued."""
    if LineKind.HANDLED.matches(line) or LineKind.REPORTED_WELL.matches(line):
        return False
    ended = LineKind.ENDED.matches(line) and not LineKind.EXIT_ZERO.matches(line)
    return is_error_line(line) or LineKind.CONSEQUENCE.matches(line) or ended


def find_first_error(
    lines: Sequence[str], start: int, explained: Collection[int], boxed: Collection[int]
) -> int | None:
    """Return the first error line (from 0) of the failure that begins at a line.

    None if there is none, if a known consequence precedes it, or if ordinary output ends the log.
    """
    reported = {*explained, *boxed}
    # After a message that came before, the program went on.
    before = {line.translate(NO_DIGITS) for line in lines[:start]}
    first = next((at for at in range(start, len(lines)) if at in reported or _is_new_error(lines[at], before)), None)
    if first is None or first in explained or _ends_well(lines[first:], reported, first):
        return None
    inner = first if first in boxed else _innermost(lines, first)
    return None if inner in explained else inner


def _is_new_error(line: str, before: Container[str]) -> bool:
    return is_error_line(line) and line.translate(NO_DIGITS) not in before


def lines_below(lines: Sequence[Line], at: int) -> list[str]:
    """Return up to three lines that continue the message at a line: of the same rank, until a blank line."""
    below: list[str] = []
    for line in lines[at + 1 :]:
        if rank_of(line) != rank_of(lines[at]):
            continue
        if not line.text.strip(" *|-") and not below and HEADLINE.search(lines[at].text):
            continue
        if line.text == lines[at].text:  # of another rank
            break
        if len(below) == MOST_BELOW or not line.text.strip() or line.text.startswith(BOX):
            break
        if LineKind.ENDED.matches(line.text):
            break
        below.append(line.text)
    return below


def _innermost(lines: Sequence[str], first: int) -> int:
    """Return the innermost cause of an error that lists its causes below it."""
    inner = first
    for at in range(first + 1, len(lines)):
        if LineKind.INNER.matches(lines[at]):
            inner = at
        elif not LineKind.OUTER.matches(lines[at]):
            break
    return inner


def _ends_well(failure: Sequence[str], explained: Container[int], start: int) -> bool:
    """Return whether the lines end with those of a run that went on."""
    if LineKind.FATAL.matches(failure[0]) and sum(map(_is_ordinary, failure)) <= WENT_ON:
        return False
    for at in range(len(failure) - 1, 0, -1):
        line = failure[at]
        if LineKind.WELL.matches(line) or LineKind.DONE.matches(line):
            return True
        if start + at in explained or is_error_line(line) or _follows(line):
            return False
        if not LineKind.FAILURE_TALK.matches(line) and not HEADLINE.search(failure[0]):
            return True
    return False
