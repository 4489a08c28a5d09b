"""Find known errors in the text of a log, and separate causes from symptoms; pure."""

from __future__ import annotations

import bisect
import math
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from argosy.core.records import replace
from argosy.diagnostics.why.failure import failure_start, find_boxed, find_first_error, is_failure, lines_below, went_on
from argosy.diagnostics.why.lines import (
    NO_DIGITS,
    Line,
    hide_reports,
    last_output,
    lines_of_last_job,
    rank_of,
    split_lines,
)
from argosy.diagnostics.why.message import next_step, state_message
from argosy.diagnostics.why.program_error import (
    ProgramError,
    Raised,
    find_failed_command,
    find_program_error,
    find_raised,
    hide_ignored,
)
from argosy.diagnostics.why.signatures import Signature

SHOWN = 200
"""Characters of a line that are shown."""

SPAN = 40
"""Lines from the beginning of a match in which its named groups are."""

LEVELS = ("cause", "maybe", "unexplained", "end", "symptom", "survived", "warning")
"""The levels of errors in the order in which they are shown."""
BLAMED = ("cause", "maybe")
SURVIVABLE = (*BLAMED, "end", "symptom")
OF_LAUNCHERS = ("mpi-rank-ended", "mpi-rank-aborted", "mpi-aborted")
"""Symptoms that tell only that a rank ended."""
OF_LIMITS = ("time-limit", "timeout-command", "batch-time")
"""Ends at a time limit. Only an exception before it is the cause, for example of a rank for which the others waited."""
OF_OTHERS = ("ended-with-others", "terminated", "cgroup-join")
"""Symptoms that follow from an end."""
INTERRUPTED = "interrupted-program"
ENDS_FROM_OUTSIDE = (*OF_LIMITS, "job-cancelled", "condor-removed", INTERRUPTED)
"""Ends that have no cause in the program."""
ENVIRONMENT = ("conda-not-initialised", "environment-missing", "module-unknown", "module-unknown-and-needed")
"""Errors after which a program that ran until its end from outside did with another environment."""
MILD = ("script-file-missing", "terminated", "operand-missing", "conda-environment-there", "git-login")
"""Errors of one command, after which a script usually continues."""
OF_ONE_COMMAND = re.compile(r": line \d+: ")
"""Mark of what a shell says of one command of its script."""
TELL_LEAST = ("mpi-rank-ended", "mpi-rank-aborted", "ended-with-others", "wheel-build", "unsquashfs-failed")
"""Errors that come last of their level, since any other one tells more."""

WARNED = re.compile(
    r"(?<!NCCL )(?<!:\d{3} )\bWARN(?:ING)?\b(?!: Function: )|\bUserWarning\b"
    r"|(?:^|\] )W\d{4} |\[W(?:\d{4})? |: W \S+:\d+\]|^NOTE: "
)
"""Marks of a line that a program writes as a warning; NCCL writes its errors so."""

UNKNOWN = "not a known error; this is the first error of the failure"


class KnownError(msgspec.Struct, frozen=True):
    """A known error in a text."""

    name: str
    level: str
    line: int
    """Number of the first line with the error, from 1."""
    text: str
    """That line, shortened."""
    times: int
    """Number of lines with the error."""
    cause: str
    fix: str
    source: str
    rank: str = ""
    """The rank that wrote that line; empty if the log does not show it."""
    below: tuple[str, ...] = ()
    """The next lines of its message, if the error is only quoted; they often name the reason."""
    often: tuple[str, ...] = ()
    """The usual reasons of the cause, the most frequent one first; empty if the log shows the reason."""


def without_digits(lines: Iterable[str]) -> str:
    """Return the lines without their digits, each once."""
    return "\n".join({line.translate(NO_DIGITS) for line in lines})


def find_errors(text: str, signatures: Sequence[Signature], *, is_running: bool = False) -> tuple[KnownError, ...]:
    """Find the known errors of a text: causes first, then symptoms; those after which the program went on come last.

    Without a known cause, the uncaught exception that ended the program is the cause. Without an exception, the message
    in the first error line of the failure is. If the program went on and nothing failed later, no error is a cause.

    Parameters
    ----------
    is_running
        Whether the job that writes the text still runs, so that its last line may show what it waits for.
    """
    lines = lines_of_last_job(split_lines(text))
    texts = hide_ignored(hide_reports([line.text for line in lines]))
    places = _find_places(texts, signatures, last_output(lines, is_running=is_running))
    found = [_describe(each, lines, places[each.name]) for each in signatures if each.name in places]
    proven = {each.name for each in signatures if each.also}
    found = _without_mere_warnings(_without_consequences(found, places), texts, places, proven)
    warned = {number for each in found if each.level == "warning" for number in places[each.name]}
    texts = ["" if at in warned else text for at, text in enumerate(texts)]
    raised, start, unknown = _find_unknown(lines, texts, found, places)
    ended = {name for name, numbers in places.items() if numbers[-1] < start}
    numbers = set() if raised else {each.line for each in unknown}
    quoted = [at for at, line in enumerate(lines) if line.number in numbers]
    survived = _find_survived(texts, found, places, raised, quoted)
    if survived is not None:
        unknown = []
        found = [replace(each, level="survived") if each.name in survived else each for each in found]

    late = {each.name for each in signatures if each.late}
    is_explained = bool(unknown) or any(each.level in BLAMED and each.name not in ended for each in found)

    def importance(error: KnownError) -> tuple[int, bool, bool, bool, int]:
        is_past = error.name in ended and error.level in BLAMED and is_explained
        is_past = is_past and (bool(unknown) or bool(OF_ONE_COMMAND.search(error.text)))
        return (
            LEVELS.index("unexplained" if is_past else error.level),
            error.name in ended,
            error.name in TELL_LEAST,
            error.name not in late,
            error.line,
        )

    return tuple(sorted((*found, *unknown), key=importance))


def _without_consequences(found: Sequence[KnownError], places: Mapping[str, Sequence[int]]) -> list[KnownError]:
    """Return the errors with those that were only printed after a time limit as its symptoms."""
    limit = min((numbers[0] for name, numbers in places.items() if name in OF_LIMITS), default=math.inf)
    return [
        replace(each, level="symptom") if each.level in BLAMED and places[each.name][0] > limit else each
        for each in found
    ]


def _without_mere_warnings(
    found: Sequence[KnownError], texts: Sequence[str], places: Mapping[str, Sequence[int]], proven: Container[str]
) -> list[KnownError]:
    """Return the errors; those that only warnings name are warnings, if nothing else tells of a failure.

    The lines of a `proven` error together prove a failure, even if each is a warning.
    """
    unproven = [each.name for each in found if each.name not in proven]
    mere = {name for name in unproven if all(WARNED.search(texts[at]) for at in places[name])}
    warned = {at for name in mere for at in places[name]}
    is_known = any(each.name not in mere and each.level != "warning" for each in found)
    if is_known or any(is_failure(text) for at, text in enumerate(texts) if at not in warned):
        return list(found)
    return [replace(each, level="warning") if each.name in mere else each for each in found]


def _find_survived(
    texts: Sequence[str],
    found: Sequence[KnownError],
    places: Mapping[str, Sequence[int]],
    raised: Sequence[Raised],
    quoted: Sequence[int],
) -> set[str] | None:
    """Return the known errors after which the program, or a later run in the same log, continued.

    None if something failed after the last one, or nothing shows that it continued. `quoted` are the lines (from 0) of
    an error that no signature knows.
    """
    ends = [each for each in found if each.name in ENDS_FROM_OUTSIDE]
    # Only the user starts a program again in the same log; a scheduler writes a summary after it stopped a job.
    if {each.name for each in ends} == {INTERRUPTED} and went_on(texts, places[INTERRUPTED][-1], uncaught=True):
        ends = []
    survivable = [
        each
        for each in found
        if each.level in SURVIVABLE and each not in ends and not (ends and each.name in OF_OTHERS)
    ]
    known = [places[each.name][-1] for each in survivable]
    last = max((*known, *quoted, *(each.at for each in raised)), default=len(texts))
    if ends:
        # Of several interruptions, the earlier ones ended earlier runs.
        stopped = min(places[each.name][-1 if each.name == INTERRUPTED else 0] for each in ends)
        if last >= stopped:
            return None
        texts = texts[:stopped]
    uncaught = any(each.at >= last for each in raised)
    is_known = all(each.at in known for each in raised) and not quoted
    usual = (*MILD, *ENVIRONMENT) if ends else MILD
    mild = is_known and all(each.level == "maybe" or each.name in usual for each in survivable)
    return {each.name for each in survivable} if went_on(texts, last, uncaught=uncaught, mild=mild) else None


def _find_unknown(
    lines: Sequence[Line], texts: Sequence[str], found: Sequence[KnownError], places: Mapping[str, Sequence[int]]
) -> tuple[Sequence[Raised], int, list[KnownError]]:
    """Return the exceptions, where the failure begins, and its error if no known one explains it."""
    explained = {number for each in found if each.level != "warning" for number in places[each.name]}
    boxed, harmless = find_boxed(texts)
    texts = ["" if at in harmless else text for at, text in enumerate(texts)]
    raised = find_raised(texts)
    start = failure_start(texts, explained | {each.at for each in raised} | boxed)
    levels = {each.level for each in found if places[each.name][-1] >= start}
    if "cause" in levels:
        return raised, start, []
    end = min((places[each.name][0] for each in found if each.level == "end"), default=len(texts))
    error = find_program_error([each for each in raised if each.at < end], start, explained)
    # A rank's message often follows the launcher's report that it ended, since both are written at once.
    passed = {number for each in found if each.name in OF_LAUNCHERS for number in places[each.name]}
    known = bool(error) or "maybe" in levels or any(each.name in OF_LIMITS for each in found)
    first = None if known else find_first_error(texts, start, explained - passed, boxed - passed)
    if not error and first is None and not found:
        error = find_failed_command(raised, start)
    return raised, start, list(_quote(lines, error, first, boxed))


def _quote(
    lines: Sequence[Line], error: ProgramError | None, first: int | None, boxed: Container[int]
) -> Iterator[KnownError]:
    """Yield the error of a failure without a known cause: the exception, or the first error line with its message."""
    if error:
        below = lines_below(lines, error.at)
        yield _unknown(lines[error.at], "program-error", "cause", error.cause, error.fix, below, error.often)
    elif first is not None:
        below = lines_below(lines, first)
        fix = next_step("\n".join([lines[first].text, *below]))
        cause = state_message(lines[first].text, below, boxed=first in boxed) or UNKNOWN
        yield _unknown(lines[first], "first-error", "unexplained", cause, fix, below)


def _unknown(
    line: Line, name: str, level: str, cause: str, fix: str, lines: Sequence[str], often: tuple[str, ...] = ()
) -> KnownError:
    below = tuple(_short(each) for each in lines)
    return KnownError(name, level, line.number, _short(line.text), 1, cause, fix, "", rank_of(line), below, often)


def _describe(signature: Signature, lines: Sequence[Line], places: Sequence[int]) -> KnownError:
    first, s = lines[places[0]], signature
    names = _read_names(s, "\n".join(line.text for line in lines[places[0] : places[0] + SPAN]))
    return KnownError(
        name=s.name,
        level=_level(s, [lines[at].text for at in places]),
        line=first.number,
        text=_short(first.text),
        times=len(places),
        cause=_fill(s.cause, names),
        fix=_fill(s.fix, names),
        source=s.source,
        rank=rank_of(first),
        often=tuple(_fill(reason, names) for reason in s.often),
    )


def _level(signature: Signature, texts: Sequence[str]) -> str:
    """Return the level of an error. One that appears only in warnings may be the cause, but an exception is first.

    If the signature asks for further lines, they prove that the program did not continue.
    """
    only_warned = signature.level == "cause" and not signature.also and all(WARNED.search(text) for text in texts)
    return "maybe" if only_warned else signature.level


def _read_names(signature: Signature, text: str) -> dict[str, str]:
    """Return the text of each named group of a signature that matches a text."""
    if "(?P<" not in signature.match:
        return {}
    match = re.search(signature.match, text, re.MULTILINE)
    found = match.groupdict("") if match else dict.fromkeys(re.compile(signature.match).groupindex, "")
    return {name: " ".join(_short(value).strip(" :").rstrip(" .:").split()) for name, value in found.items()}


NO_TEXT = "\0"
"""Marks in a template a name without a text, until the blanks, colon and brackets around it are removed."""


def _fill(template: str, names: Mapping[str, str]) -> str:
    """Replace each name in braces by its text; without one, drop it with the blanks, colon and brackets around it."""
    for name, value in names.items():
        template = template.replace(f"{{{name}}}", value or NO_TEXT)
    template = re.sub(r" *\([ \0]*\0[ \0]*\)|:?[ \0]*\0[ \0]*(?=[,.:;)]|$)", "", template)
    return re.sub(r"[ \0]*\0[ \0]*", lambda found: " " if " " in found[0] else "", template)


def _find_places(lines: Sequence[str], signatures: Sequence[Signature], last: int | None) -> dict[str, list[int]]:
    """Return the lines (from 0) of each signature; `last` is the last output of a program that was stopped.

    The first signature that matches a line names it.
    """
    whole, starts = "\n".join(lines), _starts(lines)
    places: dict[str, list[int]] = {}
    taken: set[int] = set()
    # Most lines of a log differ only in their digits, so searching this short text first is ten times faster.
    short = without_digits(lines)
    for signature in signatures:
        if signature.needs and not any(word in short for word in signature.needs):
            continue
        spans = [(at, end) for at, end in _matches(signature, whole, starts) if at not in taken]
        if signature.stalled:
            spans = [(at, end) for at, end in spans if last is not None and at <= last <= end]
        numbers = sorted({at for at, _ in spans})
        if numbers and _fits(signature, whole):
            places[signature.name] = numbers
            taken.update(numbers)
    return places


def _fits(signature: Signature, text: str) -> bool:
    """Return whether the whole log fits a signature: it has all that it must have, and nothing that it must not."""
    has_all = all(re.search(each, text, re.MULTILINE) for each in signature.also)
    return has_all and not any(re.search(each, text, re.MULTILINE) for each in signature.unless)


def _matches(signature: Signature, text: str, starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Find the first and last lines (from 0) that match a signature. One search is faster than one for each line."""
    for match in re.finditer(signature.match, text, re.MULTILINE):
        yield bisect.bisect_right(starts, match.start()) - 1, bisect.bisect_right(starts, match.end()) - 1


def _starts(lines: Sequence[str]) -> list[int]:
    starts, offset = [], 0
    for line in lines:
        starts.append(offset)
        offset += len(line) + 1
    return starts


def _short(line: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in line).strip()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
