"""Guess what a broken line was meant to be; it never changes what is built, it only words a hint."""

from __future__ import annotations

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^\]]*\])?"
_REWRITES = (
    # What was written, and what it usually means.  Order: the most specific first.
    (re.compile(r"^(?:python[\d.]* -m )?pip[\d.]* install (?:-U |--upgrade )?"), ""),
    (re.compile(r"^[-*] +"), ""),
    (re.compile(r"""^["'](.*)["'],?$"""), r"\1"),
    (re.compile(r"^[\w./:-]+::"), ""),
    (re.compile(r"[,;\s]+$"), ""),
    (re.compile(r"=>"), ">="),
    (re.compile(r"=<"), "<="),
    (re.compile(r"~>"), "~="),
    (re.compile(rf"^({_NAME})=([^=<>!~\s]+)=[\w.]+$"), r"\1==\2"),
    (re.compile(rf"^({_NAME})\s*=\s*([^=<>!~\s]+)"), r"\1==\2"),
    (re.compile(rf"^({_NAME})\s*[: @]\s*v?(\d[^\s,]*)$"), r"\1==\2"),
    (re.compile(r"([<>]=?\s*\d[\d.]*?)\.\*"), r"\1"),
    (re.compile(r"([<>=!~]=?\s*[\w.*+]+)\s+(?=[<>=!~])"), r"\1,"),
    (re.compile(r"([<>=!~])\s+="), r"\1="),
)


def suggest_requirement(text: str) -> str:
    """Give the nearest line that pip would understand, or nothing.

    One rewriting alone is tried before all of them together, so that as little as possible is changed.
    """
    return next((guess for guess in _guesses(text) if guess != text and _is_requirement(guess)), "")


def _guesses(text: str) -> Iterator[str]:
    for pattern, meant in _REWRITES:
        yield pattern.sub(meant, text)
    every = text
    for pattern, meant in _REWRITES:
        every = pattern.sub(meant, every)
    yield every


def _is_requirement(text: str) -> bool:
    try:
        Requirement(text)
    except InvalidRequirement:
        return False
    return True
