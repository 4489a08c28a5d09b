"""Explain the likely cause of a failure: the error, what differs from the last run that passed, and the lines; pure.

The functions `find_...` return the facts behind an explanation; the next steps of the report use them, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import PurePosixPath

import msgspec

from argosy.core.findings import Finding, State
from argosy.diagnostics.report.compare import ARGUMENTS, IMAGE, IN_LOG, NODES
from argosy.diagnostics.report.model import Change, Cited, Comparison, ReportCase, UserFrame
from argosy.diagnostics.report.source import (
    NCCL,
    ArgumentUse,
    defined_names,
    describe_arguments,
    find_argument_use,
    names_of,
)
from argosy.diagnostics.report.summary import BANDWIDTH, describe_writer, join_names, sentence
from argosy.diagnostics.why.find import KnownError
from argosy.jobs.outputs import TRACEBACK
from argosy.slurm.states import ENDED

CARDS = "NCCL_IB_HCA"
"""The variable of NCCL that names cards."""

OF_PROGRAM = "program-error"
"""Name of the error of a program that no signature knows."""

KNOWN_CAUSES = ("cause", "maybe", "end")
"""Levels of errors that explain a failure."""

MOST_CHANGES = 3
"""Differences from the last run that passed in the explanation; the section has all."""

RANK = {"rank"}
"""Names of the number of a rank in programs, in small letters."""

MOST_CALLS = 3
"""Calls before the raised line that are cited."""

MEANINGS = {
    "NCCL_IB_DISABLE": "1 switches InfiniBand off",
    "NCCL_IB_HCA": "names of the InfiniBand cards that NCCL may use",
    "NCCL_NET": "the network that NCCL uses",
    "NCCL_NET_PLUGIN": "the plugin for the network of NCCL",
    "NCCL_SOCKET_IFNAME": "the interfaces for NCCL's first contact and for TCP",
}
"""Variables of NCCL that choose the network (NCCL's documentation, Environment Variables)."""


class Definition(msgspec.Struct, frozen=True):
    """A line of the program, by its number, that defines a name which the line with the error reads."""

    line: int
    name: str
    code: str


class SettingFix(msgspec.Struct, frozen=True):
    """A line of the program, by its number, with a new argument and the value of a variable that NCCL read."""

    line: int
    code: str
    argument: str


def find_known_error(case: ReportCase) -> KnownError | None:
    """Return the first error in the output that a signature explains."""
    return next((each for each in case.errors if each.level in KNOWN_CAUSES and each.name != OF_PROGRAM), None)


def find_failed_check(case: ReportCase) -> Finding | None:
    """Return the first failed check that has a hint."""
    return next((each for each in case.findings if each.state is State.FAIL and each.hint), None)


def changes_only_arguments(compared: Comparison) -> bool:
    """Return whether nothing but the arguments differs from the last run that passed."""
    return bool(compared.changes) and all(each.name == ARGUMENTS for each in compared.changes)


def _find_use(case: ReportCase) -> ArgumentUse | None:
    """Return the frame of the traceback that reads a changed argument, and how."""
    changes = case.compared.changes
    if case.raised and case.plan and changes and changes[0].name == ARGUMENTS:
        return find_argument_use(case.raised, case.plan.command, changes[0])
    return None


def find_definitions(case: ReportCase) -> Iterator[Definition]:
    """Yield the lines on the page that define a name which the raised line reads."""
    if case.raised and case.raised.frames and case.excerpt:
        for number, text, _ in case.excerpt.lines:
            for name in sorted(defined_names(text) & names_of(case.raised.frames[-1].code)):
                yield Definition(number, name, text)


def find_settings(case: ReportCase) -> dict[str, SettingFix]:
    """Return each variable in the log that a line of the program sets by an argument, with that line."""
    found = {change.name: _find_setting(case, change) for change in case.compared.observed}
    return {name: setting for name, setting in found.items() if setting}


def _find_setting(case: ReportCase, change: Change) -> SettingFix | None:
    """Find the line of the program with a new argument, a variable of the log and its value."""
    name = change.name.removesuffix(IN_LOG)
    words = [word for word in case.search.words if word != NCCL] if case.search else []
    for number, text, _ in case.excerpt.lines if case.excerpt and change.now else ():
        for word in words:
            if word in text and name in text and change.now in text:
                return SettingFix(number, text, word)
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


def explain_cause(case: ReportCase) -> str:
    """Explain the likely cause of a failed job or check; empty for other jobs."""
    failed = find_failed_check(case)
    if case.facts.kind != ENDED:
        return ""
    if case.facts.code:
        return " ".join(f"{each}." for each in (*_explain_error(case), *_explain_changes(case)))
    if failed is None:
        return ""
    found = f"The {failed.what} check failed: {failed.evidence}"
    return " ".join(f"{each}." for each in (found, *_explain_changes(case)))


def _explain_error(case: ReportCase) -> Iterator[str]:
    known = find_known_error(case)
    program = next((each for each in case.errors if each.name == OF_PROGRAM), None)
    unexplained = next((each for each in case.errors if each.level == "unexplained"), None)
    symptom = next((each for each in case.errors if each.level == "symptom"), None)
    if known:
        often = "; ".join(known.often)
        yield sentence(f"{known.cause} (often: {often})" if often else known.cause)
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


def _explain_changes(case: ReportCase) -> Iterator[str]:
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
    yield from _explain_settings(case)


def _explain_use(case: ReportCase) -> Iterator[str]:
    """Yield where the traceback reads a changed argument, and whether the argument is the rank that failed first."""
    use = _find_use(case)
    if use is None or case.raised is None:
        return
    yield f"Line {use.frame.line} of {PurePosixPath(use.frame.path).name} reads this argument ({use.expression})"
    first, change = case.facts.first, case.compared.changes[0]
    of_rank = next((each for each in case.raised.frames if RANK & {name.lower() for name in names_of(each.code)}), None)
    if first and of_rank and str(first.rank) in set(shlex.split(change.now)) - set(shlex.split(change.before)):
        where = f"line {of_rank.line} of {PurePosixPath(of_rank.path).name}"
        yield f"{sentence(where)} uses the rank, and the argument is also the number of the rank that failed first"


def _describe_equal(case: ReportCase) -> str:
    """Say what was equal in the last run that passed, and which network it used if the check of the network failed."""
    compared = case.compared
    slow = any(each.what == "network" and each.state is State.FAIL for each in case.findings)
    network = f" with {compared.network}" if compared.network and slow else ""
    names = [text for name, text in ((NODES, "the same nodes"), (IMAGE, "the same image")) if name in compared.same]
    names += [f"the same {join_names(compared.files)}"] if compared.files else []
    return f"{network}{' on ' if names else ''}{join_names(names)}"


def describe_difference(compared: Comparison) -> str:
    """Describe the differences, for example ``argument 'b' (before: 'a')`` or ``image is 'b.sif', before: 'a.sif'``."""
    if changes_only_arguments(compared):
        return describe_arguments(compared.changes[0])
    return "; ".join(
        f"{each.name} is '{each.now or 'not set'}', before: '{each.before or 'not set'}'"
        for each in compared.changes[:MOST_CHANGES]
    )


def _explain_settings(case: ReportCase) -> Iterator[str]:
    """Yield what NCCL read in this job and not in the last run that passed, and what follows from it."""
    compared, settings, wrong_cards = case.compared, find_settings(case), find_wrong_cards(case.compared)
    for change in compared.observed:
        if not change.now:
            continue
        name = change.name.removesuffix(IN_LOG)
        meaning = f" ({MEANINGS[name]})" if name in MEANINGS else ""
        read = f"NCCL read {name}={change.now}{meaning}"
        found = settings.get(change.name)
        line = f"For '{found.argument}', line {found.line}" if found else ""
        where = f"{line} of the program contains this value of {name}. " if found else ""
        if change is wrong_cards:
            yield f"{where}{read}, {_name_cards(change.now, case)}{_consequence(case)}"
        else:
            before = f"read {change.before}" if change.before else "does not mention it"
            yield f"{where}{read}; the log of job {compared.job} {before}"


def _name_cards(rule: str, case: ReportCase) -> str:
    """Say that a rule allows no card of the last run that passed."""
    used = f"job {case.compared.job} used ({join_names(case.compared.cards)})"
    return (
        f"which excludes all cards that {used}" if rule.startswith("^") else f"but no card that {used} has such a name"
    )


def _consequence(case: ReportCase) -> str:
    """Say what followed in this job if NCCL may use none of the cards."""
    if not case.net.slow:
        return ""
    low = any(each.what == BANDWIDTH and each.state is State.FAIL for each in case.findings)
    return ", so NCCL used TCP" + (", which explains the low bandwidth" if low else "")


def cite_lines(case: ReportCase) -> tuple[Cited, ...]:
    """Return the lines that lead from a changed argument to a failure, in their order."""
    if case.raised and case.raised.frames:
        return tuple(_cite_traceback(case))
    return tuple(_cite_settings(case)) if not case.facts.code else ()


def _cite_traceback(case: ReportCase) -> Iterator[Cited]:
    """Yield the lines of the traceback, the definitions of names in the last one, and the last output before it."""
    use = _find_use(case)
    if case.raised is None:
        return
    last = case.raised.frames[-1]
    own = [frame for frame in case.raised.frames if frame.path == last.path]
    if use and use.frame is not last:
        other = "" if use.frame.path == last.path else f" of {PurePosixPath(use.frame.path).name}"
        line = 0 if other else use.frame.line
        yield Cited(f"Line {use.frame.line}{other} reads the argument ({use.expression})", use.frame.code, line)
    for frame, called in list(pairwise(own))[-MOST_CALLS:]:
        if not use or frame is not use.frame:
            yield Cited(f"Line {frame.line}{_inside(frame)} calls {called.function}", frame.code, frame.line)
    yield Cited(f"Line {last.line}{_inside(last)} raises {case.raised.text}", last.code, last.line)
    for each in find_definitions(case):
        yield Cited(f"Line {each.line} defines {each.name}", each.code, each.line)
    printed = _last_output(case)
    if printed:
        yield Cited(f"Last line of {describe_writer(case)} before the error", printed)


def _inside(frame: UserFrame) -> str:
    return "" if frame.function == "<module>" else f", in {frame.function},"


def _last_output(case: ReportCase) -> str:
    """Return the last line that was written before the traceback; empty if there is none."""
    lines = case.facts.last_lines
    begins = [number for number, line in enumerate(lines) if TRACEBACK in line]
    before = [line for line in lines[: begins[-1]] if line.strip()] if begins else []
    return before[-1] if before else ""


def _cite_settings(case: ReportCase) -> Iterator[Cited]:
    """Yield the line of the program with a new argument and a setting that NCCL read, and the lines that use it."""
    for name, found in [*find_settings(case).items()][:1]:
        yield Cited(
            f"Line {found.line} has '{found.argument}' and {name.removesuffix(IN_LOG)}", found.code.strip(), found.line
        )
        defined, excerpt = defined_names(found.code), case.excerpt
        rows = excerpt.lines if excerpt else ()
        users = [row for row in rows if row[0] != found.line and defined & names_of(row[1])]
        for line, code, _ in users[:MOST_CALLS]:
            yield Cited(f"Line {line} uses {', '.join(sorted(defined))}", code.strip(), line)
