"""Find known errors in a text and tell causes from what follows of them; pure."""

from __future__ import annotations

import bisect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]  # what re itself reads a pattern with
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import msgspec

from argosy.core.errors import UsageError
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.diagnostics.why.signatures import LEVELS, Signature, read_signatures, signature_files
from argosy.jobs.first_failure import last_runs
from argosy.jobs.query import JobFacts, find_job
from argosy.jobs.record import can_read
from argosy.slurm.text import ENDED, FROM_OUTSIDE, is_job_id

NO_DIGITS = str.maketrans("", "", "0123456789")
SHORTEST = 3
"""Letters of a word that is worth looking for: shorter ones are everywhere."""


def skeleton(lines: Iterable[str]) -> str:
    """Give the lines without their digits, each once."""
    return "\n".join({line.translate(NO_DIGITS) for line in lines})


def needed_words(pattern: str) -> frozenset[str]:
    """Give words without digits, one of which is in every text that has the pattern; none where that is not known."""
    parsed = _parser.parse(pattern, re.MULTILINE)
    return frozenset() if parsed.state.flags & re.IGNORECASE else _of_sequence(parsed)


def _of_sequence(items: Iterable[tuple[Any, Any]]) -> frozenset[str]:
    """Give the words of that part of a sequence which is the rarest: its shortest word is the longest."""
    parts: list[frozenset[str]] = []
    run = ""
    for kind, value in items:
        letter = chr(value) if kind is sre.LITERAL else "\n"
        if letter != "\n" and not letter.isdigit():
            run += letter
            continue
        parts += [frozenset({run}), _of_part(kind, value)]
        run = ""
    best = max((*parts, frozenset({run})), key=_shortest)
    return best if _shortest(best) >= SHORTEST else frozenset()


def _of_part(kind: object, value: Any) -> frozenset[str]:
    if kind is sre.SUBPATTERN:
        _, more, _, part = value
        return frozenset() if more & re.IGNORECASE else _of_sequence(part)
    if kind is sre.BRANCH:
        branches = [_of_sequence(branch) for branch in value[1]]
        return frozenset().union(*branches) if all(branches) else frozenset()
    if kind in {sre.MAX_REPEAT, sre.MIN_REPEAT} and value[0] > 0:
        return _of_sequence(value[2])
    return frozenset()


def _shortest(words: frozenset[str]) -> int:
    return min(map(len, words), default=0)


LONGEST_LINE = 2000
"""Characters of a line that are looked at: a progress bar or a dump may have made one of megabytes."""

SHOWN = 200


class Finding(msgspec.Struct, frozen=True):
    """A known error in a text.

    Attributes
    ----------
    line
        Number of the first line that has it, from 1.
    text
        That line, shortened.
    times
        Lines that have it.
    """

    name: str
    level: str
    line: int
    text: str
    times: int
    cause: str
    fix: str
    source: str


def judge_log(text: str, signatures: Sequence[Signature]) -> tuple[Finding, ...]:
    """Give the known errors of a text: causes first, in the order of the text, then what follows of them."""
    lines = [line[:LONGEST_LINE] for line in re.split(r"\r\n|[\r\n]", text)]
    whole, starts = "\n".join(lines), _starts(lines)
    first: dict[str, int] = {}
    times: dict[str, int] = {}
    taken: set[int] = set()
    seen = skeleton(lines)
    for signature in signatures:
        words = needed_words(signature.match)
        if words and not any(word in seen for word in words):
            continue
        for number in sorted(set(_matches(signature, whole, starts)) - taken):
            first.setdefault(signature.name, number)
            times[signature.name] = times.get(signature.name, 0) + 1
            taken.add(number)
    found = [
        Finding(
            s.name, s.level, first[s.name] + 1, _short(lines[first[s.name]]), times[s.name], s.cause, s.fix, s.source
        )
        for s in signatures
        if s.name in first
    ]
    return tuple(sorted(found, key=lambda each: (LEVELS.index(each.level), each.line)))


def _matches(signature: Signature, text: str, starts: Sequence[int]) -> Iterator[int]:
    """Give the numbers of the lines that have a signature; the text is searched as a whole, which is faster."""
    for match in re.finditer(signature.match, text, re.MULTILINE):
        yield bisect.bisect_right(starts, match.start()) - 1


def _starts(lines: Sequence[str]) -> list[int]:
    starts, place = [], 0
    for line in lines:
        starts.append(place)
        place += len(line) + 1
    return starts


def _short(line: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in line).strip()
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _often(finding: Finding) -> str:
    return f", {finding.times} times" if finding.times > 1 else ""


def _render_finding(finding: Finding, place: str) -> str:
    """Say one known error: where it is, its cause, what to do, where one reads more."""
    perhaps = "perhaps " if finding.level == "maybe" else ""
    lines = [
        f"{place}{':' if place else 'line '}{finding.line}{_often(finding)}: {finding.text}",
        f"  cause  {perhaps}{finding.cause}",
        f"  fix    {finding.fix}",
    ]
    return "\n".join([*lines, f"  see    {finding.source}"] if finding.source else lines)


def render_findings(findings: Sequence[Finding], place: str = "") -> str:
    """Say the causes in full, and in a line each what follows of them; symptoms in full where nothing else is known."""
    causes = [each for each in findings if each.level != "symptom"]
    told = causes or list(findings[:1])
    rest = [each for each in findings if each not in told]
    lines = [_render_finding(each, place) for each in told]
    lines += [f"line {each.line}{_often(each)}: {each.cause}" for each in rest]
    return "\n".join(lines)


MOST_BYTES = 2 << 20
"""Of a log that is searched, from its end: errors stand there, and each pattern goes through all of it."""

BLOCK = 1 << 20


class Explained(msgspec.Struct, frozen=True):
    """A log, the known errors in it, and, where it is a job's, how that ended."""

    log: str
    findings: tuple[Finding, ...]
    end: str = ""


def explain_log(session: Session, log: str) -> Explained:
    """Find the known errors in a log; of a job that was ended from outside not what only follows of its end.

    Parameters
    ----------
    log
        A file, the number of a job, or ``-`` for standard input.

    Raises
    ------
    UsageError
        When there is no such file or job, or it has written nothing.
    """
    signatures = read_signatures(signature_files(session.host.environment))
    if log == "-":
        return Explained("standard input", judge_log(sys.stdin.buffer.read().decode(errors="replace"), signatures))
    path, facts = _find_log(session, log)
    text, before = _read_end(path)
    found = [each for each in judge_log(text, signatures) if facts is None or _is_told(each, facts)]
    end = facts.verdict if facts and facts.kind == ENDED else f"job {log} {facts.meaning}" if facts else ""
    return Explained(str(path), tuple(replace(each, line=each.line + before) for each in found), end)


def _is_told(finding: Finding, facts: JobFacts) -> bool:
    """Tell whether an error is of the job's own: one that was ended from outside has what follows of its end."""
    return not (facts.code and facts.state.split(maxsplit=1)[0] in FROM_OUTSIDE and finding.level == "symptom")


def _find_log(session: Session, log: str) -> tuple[Path, JobFacts | None]:
    """Give the file of a log, or of what a job printed, and what is known of that."""
    path = Path(log)
    if path.is_file():
        return path, None
    if not is_job_id(log):
        raise UsageError(f"there is no log {log!r}", hint="give a file, the number of a job, or - for standard input")
    facts = find_job(session, log, or_record=True)
    if not facts.output or not can_read(facts.output):
        raise UsageError(f"job {log} has written nothing", evidence=f"it {facts.meaning}; output: {facts.output}")
    return Path(facts.output), facts


def _read_end(path: Path) -> tuple[str, int]:
    """Read the end of a log, and count the lines before it.

    Raises
    ------
    UsageError
        When it cannot be read.
    """
    before, left = 0, 0
    try:
        with path.open("rb") as source:
            left = max(0, source.seek(0, 2) - MOST_BYTES)
            source.seek(0)
            while left > 0:
                block = source.read(min(left, BLOCK))
                before, left = before + block.count(b"\n"), left - max(1, len(block))
            return source.read().decode(errors="replace"), before
    except OSError as error:
        raise UsageError(f"the log {path} cannot be read", evidence=str(error), hint="check the path") from error


def _judge_last_run(session: Session, output: Path) -> tuple[Finding, ...]:
    """Give the known errors of a job's last run: one that was started again goes on with its file."""
    signatures = read_signatures(signature_files(session.host.environment))
    text, before = _read_end(output)
    for start, run in last_runs(text):
        if found := judge_log(run, signatures):
            lines = before + text.count("\n", 0, start)
            return tuple(replace(each, line=each.line + lines) for each in found)
    return ()


def explain_job_end(session: Session, facts: JobFacts) -> str:
    """Name the first cause of a job that failed, and what to do; empty where nothing is known or nothing failed."""
    if not facts.code or not facts.output or not can_read(facts.output):
        return ""
    found = _judge_last_run(session, Path(facts.output))
    told = [each for each in found if _is_told(each, facts)]
    return _render_finding(told[0], facts.output) if told else ""
