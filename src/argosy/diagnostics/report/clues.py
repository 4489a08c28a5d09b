"""Find what the facts about a job show together: what reads a changed value, and which error or check explains it."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from argosy.core.findings import Finding, State
from argosy.diagnostics.report.compare import ARGUMENTS, IN_LOG
from argosy.diagnostics.report.model import Case, Change, Comparison
from argosy.diagnostics.report.source import NCCL, ArgumentUse, defined_names, find_argument_use, names_of
from argosy.diagnostics.why.find import KnownError

CARDS = "NCCL_IB_HCA"
"""The variable of NCCL that names cards."""

OF_PROGRAM = "program-error"
"""Name of the error of a program that no signature knows."""

KNOWN_CAUSES = ("cause", "maybe", "end")
"""Levels of errors that explain a failure."""


class Definition(msgspec.Struct, frozen=True):
    """A line of the program, by its number, that defines a name which the line with the error reads."""

    line: int
    name: str
    code: str


class Setting(msgspec.Struct, frozen=True):
    """A line of the program, by its number, with a new argument and the value of a variable that NCCL read."""

    line: int
    code: str
    argument: str


def find_known_error(case: Case) -> KnownError | None:
    """Return the first error in the output that a signature explains."""
    return next((each for each in case.errors if each.level in KNOWN_CAUSES and each.name != OF_PROGRAM), None)


def find_failed_check(case: Case) -> Finding | None:
    """Return the first failed check that has a hint."""
    return next((each for each in case.findings if each.state is State.FAIL and each.hint), None)


def changes_only_arguments(compared: Comparison) -> bool:
    """Return whether nothing but the arguments differs from the last run that passed."""
    return bool(compared.changes) and all(each.name == ARGUMENTS for each in compared.changes)


def find_use(case: Case) -> ArgumentUse | None:
    """Return the frame of the traceback that reads a changed argument, and how."""
    changes = case.compared.changes
    if case.raised and case.plan and changes and changes[0].name == ARGUMENTS:
        return find_argument_use(case.raised, case.plan.command, changes[0])
    return None


def find_definitions(case: Case) -> Iterator[Definition]:
    """Yield the lines on the page that define a name which the raised line reads."""
    if case.raised and case.raised.frames and case.excerpt:
        for number, text, _ in case.excerpt.lines:
            for name in sorted(defined_names(text) & names_of(case.raised.frames[-1].code)):
                yield Definition(number, name, text)


def find_settings(case: Case) -> dict[str, Setting]:
    """Return each variable in the log that a line of the program sets by an argument, with that line."""
    found = {change.name: _find_setting(case, change) for change in case.compared.observed}
    return {name: setting for name, setting in found.items() if setting}


def _find_setting(case: Case, change: Change) -> Setting | None:
    """Find the line of the program with a new argument, a variable of the log and its value."""
    name = change.name.removesuffix(IN_LOG)
    words = [word for word in case.search.words if word != NCCL] if case.search else []
    for number, text, _ in case.excerpt.lines if case.excerpt and change.now else ():
        for word in words:
            if word in text and name in text and change.now in text:
                return Setting(number, text, word)
    return None


def find_wrong_cards(compared: Comparison) -> Change | None:
    """Return the change of ``NCCL_IB_HCA`` if it allows none of the cards that the last run that passed used."""
    for change in compared.observed:
        if change.name == f"{CARDS}{IN_LOG}" and change.now and compared.cards:
            return None if any(allows_card(change.now, card) for card in compared.cards) else change
    return None


def allows_card(rule: str, card: str) -> bool:
    """Return whether a value of ``NCCL_IB_HCA`` allows a card.

    The value is a list of prefixes of names. ``=`` before the list requires whole names, ``^`` excludes the cards. A
    name may end with the number of a port; a rule that excludes one port still allows its card. Source: NCCL's
    documentation, Environment Variables.
    """
    excludes = rule.startswith("^")
    names = rule.removeprefix("^")
    exact = names.startswith("=")
    parts = [part.partition(":") for part in names.removeprefix("=").split(",") if part]
    listed = [name for name, _, port in parts if not (excludes and port)]
    matches = any(card == name if exact else card.startswith(name) for name in listed)
    return not parts or matches != excludes
