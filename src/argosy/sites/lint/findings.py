"""What rules find, as records; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

Subject = TypeVar("Subject")


class Found(msgspec.Struct, frozen=True):
    """One place that a rule does not like.

    Attributes
    ----------
    line
        From 1; 0 for the whole file.
    hint
        What to write instead, where it is known.
    source
        Who says so of this one; empty for the rule's own.
    """

    line: int
    what: str
    hint: str = ""
    source: str = ""


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A rule.

    Attributes
    ----------
    name
        What a finding is called.
    why
        What happens otherwise.
    source
        Who says so: a public address.
    """

    name: str
    why: str
    source: str
    check: Callable[[Subject], Iterable[Found]]


class Finding(msgspec.Struct, frozen=True):
    """What a rule found in a file, complete."""

    path: str
    line: int
    rule: str
    what: str
    why: str
    hint: str
    source: str

    def __str__(self) -> str:
        """Render it as compilers do, so that editors jump to the place."""
        place = f"{self.path}:{self.line}" if self.line else self.path
        hint = f"\n    -> {self.hint}" if self.hint else ""
        return f"{place}: {self.what} [{self.rule}]\n    {self.why} ({self.source}){hint}"
