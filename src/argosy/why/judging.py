"""Find known errors in a text and tell causes from what follows of them; pure."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

import msgspec

from argosy.why.literals import needed_words, skeleton
from argosy.why.signatures import LEVELS, Signature

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


def render_finding(finding: Finding, place: str) -> str:
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
    lines = [render_finding(each, place) for each in told]
    lines += [f"line {each.line}{_often(each)}: {each.cause}" for each in rest]
    return "\n".join(lines)
