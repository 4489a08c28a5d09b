"""Explain the likely cause of a failure: the error itself, and what differs from the last run that passed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath

from argosy.core.findings import Finding, State
from argosy.diagnostics.report.chain import find_use
from argosy.diagnostics.report.compare import ARGUMENTS, IMAGE, NODES
from argosy.diagnostics.report.model import Case, Comparison
from argosy.diagnostics.report.network_cause import explain_settings
from argosy.diagnostics.report.source import describe_arguments, names_of
from argosy.diagnostics.report.summary import join_names, sentence
from argosy.diagnostics.why.find import KnownError
from argosy.slurm.text import ENDED

MOST_CHANGES = 3
"""Differences from the last run that passed in the explanation; the section has all."""

OF_PROGRAM = "program-error"
"""Name of the error of a program that no signature knows."""

RANK = {"rank"}
"""Names of the number of a rank in programs, in small letters."""

KNOWN_CAUSES, UNEXPLAINED = ("cause", "maybe"), "unexplained"
"""Levels of errors that explain a failure, and of the first error of another failure."""


def explain_cause(case: Case) -> str:
    """Explain the likely cause of a failed job or check; empty for other jobs."""
    if case.facts.kind != ENDED:
        return ""
    if case.facts.code:
        return " ".join(f"{each}." for each in (*_explain_error(case), *_explain_changes(case)))
    failed = find_failed_check(case)
    if failed is None:
        return ""
    found = f"The {failed.what} check failed: {failed.evidence}"
    return " ".join(f"{each}." for each in (found, *_explain_changes(case)))


def find_failed_check(case: Case) -> Finding | None:
    """Return the first failed check that has a hint."""
    return next((each for each in case.findings if each.state is State.FAIL and each.hint), None)


def find_known_cause(case: Case) -> KnownError | None:
    """Return the first cause in the output that a signature explains."""
    return next((each for each in case.errors if each.level in KNOWN_CAUSES and each.name != OF_PROGRAM), None)


def _explain_error(case: Case) -> Iterator[str]:
    """Yield what the output shows about the error."""
    known = find_known_cause(case)
    program = next((each for each in case.errors if each.name == OF_PROGRAM), None)
    unexplained = next((each for each in case.errors if each.level == UNEXPLAINED), None)
    symptom = next((each for each in case.errors if each.level == "symptom"), None)
    if known:
        yield sentence(known.cause)
    elif case.raised and case.raised.frames:
        frame = case.raised.frames[-1]
        yield f"Line {frame.line} of {frame.path} raised {case.raised.text} (in {frame.function})"
    elif program:
        yield sentence(program.cause)
    elif case.raised:
        yield f"The program raised {case.raised.text}"
    elif case.facts.advice:
        return
    elif unexplained:
        found = f"its first error is in line {unexplained.line}: {unexplained.text}"
        yield f"The output contains no error that Argosy knows; {found}"
    elif symptom and not case.facts.first:
        yield sentence(symptom.cause)
    else:
        yield "The output contains no error that Argosy knows"


def _explain_changes(case: Case) -> Iterator[str]:
    """Yield what differs from the last run that passed, and what does not."""
    compared = case.compared
    if not compared.job:
        return
    passed = f"job {compared.job}, which passed{_describe_equal(case)}"
    if not compared.changes:
        yield f"Nothing that Argosy records differs from {passed}"
    elif changes_only_arguments(compared):
        difference = describe_difference(compared)
        verb = "are" if difference.partition(" '")[0].endswith("arguments") else "is"
        yield f"In the launch, the {difference} {verb} the only difference from {passed}"
        yield from _explain_use(case)
    else:
        yield f"Recorded differences from {passed}: {describe_difference(compared)}"
    yield from explain_settings(case)


def _explain_use(case: Case) -> Iterator[str]:
    """Yield where the traceback reads a changed argument, and whether the argument is the rank that failed first."""
    use = find_use(case)
    if use is None or case.raised is None:
        return
    yield f"Line {use[0].line} of {PurePosixPath(use[0].path).name} reads this argument ({use[1]})"
    first, change = case.facts.first, case.compared.changes[0]
    of_rank = next((each for each in case.raised.frames if RANK & {name.lower() for name in names_of(each.code)}), None)
    if first and of_rank and str(first.rank) in set(shlex.split(change.now)) - set(shlex.split(change.before)):
        where = f"line {of_rank.line} of {PurePosixPath(of_rank.path).name}"
        yield f"{sentence(where)} uses the rank, and the argument is also the number of the rank that failed first"


def _describe_equal(case: Case) -> str:
    """Say what was equal in the last run that passed, and which network it used if the check of the network failed."""
    compared = case.compared
    slow = any(each.what == "network" and each.state is State.FAIL for each in case.findings)
    network = f" with {compared.network}" if compared.network and slow else ""
    names = [text for name, text in ((NODES, "the same nodes"), (IMAGE, "the same image")) if name in compared.same]
    names += [f"the same {join_names(compared.files)}"] if compared.files else []
    return f"{network}{' on ' if names else ''}{join_names(names)}"


def changes_only_arguments(compared: Comparison) -> bool:
    """Return whether nothing but the arguments differs."""
    return bool(compared.changes) and all(each.name == ARGUMENTS for each in compared.changes)


def describe_difference(compared: Comparison) -> str:
    """Describe the differences, for example ``argument 'b' (before: 'a')`` or ``image is 'b.sif', before: 'a.sif'``."""
    if changes_only_arguments(compared):
        return describe_arguments(compared.changes[0])
    return "; ".join(
        f"{each.name} is '{each.now or 'not set'}', before: '{each.before or 'not set'}'"
        for each in compared.changes[:MOST_CHANGES]
    )
