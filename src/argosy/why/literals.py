"""Tell without a search that a text cannot have a pattern: it lacks every word that the pattern needs; pure.

A log of megabytes is mostly one line with other numbers, and a hundred patterns went through all of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import _constants as sre  # type: ignore[attr-defined]  # what re itself reads a pattern with
from re import _parser  # type: ignore[attr-defined]
from typing import Any

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
