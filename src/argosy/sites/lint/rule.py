"""Define a lint rule and the fault that it reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

import msgspec

from argosy.core.findings import FileFinding, State

Subject = TypeVar("Subject")


class Fault(msgspec.Struct, frozen=True):
    """One place in a file that breaks a rule.

    Attributes
    ----------
    line
        Line number from 1, or 0 for the whole file.
    what
        Description of the fault.
    hint
        Correction, if it is known.
    source
        URL that documents this fault, if it differs from the rule's source.
    """

    line: int
    what: str
    hint: str = ""
    source: str = ""


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A lint rule.

    Attributes
    ----------
    why
        Consequence of such a fault.
    source
        A public address that documents the rule.
    """

    name: str
    why: str
    source: str
    check: Callable[[Subject], Iterable[Fault]]


def file_finding(path: str, rule: Rule[Subject], fault: Fault) -> FileFinding:
    """Return the finding for a fault in a file."""
    source = fault.source or rule.source
    return FileFinding(
        rule.name, State.FAIL, fault.what, fault.hint, path=path, line=fault.line, why=rule.why, source=source
    )
