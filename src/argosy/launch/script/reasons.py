"""Render the reasons of a plan in the head of a script, or next to the variable that they explain; pure.

A script has short, whole reasons. ``argosy explain`` has all of them in full, with their sources.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from argosy.core.model import Choice, ChoiceKey, Mark, Variable
from argosy.core.shell import as_comment, render_assignment

WIDTH = 99
INDENT = 4
MOST_ROWS = 7

MAIN = frozenset(
    (
        *(ChoiceKey.MODE, ChoiceKey.PARTITION, "--qos", ChoiceKey.QUEUE, ChoiceKey.LAUNCHER, ChoiceKey.RUNTIME),
        *(ChoiceKey.ENTER, ChoiceKey.GPU, ChoiceKey.PROFILE, ChoiceKey.ASSUMED, ChoiceKey.RANK_CORES),
    )
)
"""Choices that the head of a script explains."""

SHOWN_FIRST = frozenset((Mark.FIRST, Mark.DOUBTFUL))
"""Marks of choices that are at the top of the head."""

ALWAYS = frozenset((ChoiceKey.EXCLUDED_NODES, ChoiceKey.SIGNED_BY, ChoiceKey.TORCH, ChoiceKey.BILLED))
"""Choices that the head always explains: they change the cost of the job, or the resources that it may use."""


def render_choices(choices: Iterable[Choice]) -> Iterator[str]:
    """Render the reasons in the head: commands to run first, doubts, options that are not set, then main choices."""
    choices = tuple(choices)
    for choice in (choice for choice in choices if choice.mark is Mark.FIRST):
        yield as_comment(f"#   run first: {choice.value}")  # on one line, so that it can be copied
        yield from textwrap.wrap(as_comment(choice.why), WIDTH, initial_indent="#     ", subsequent_indent="#     ")
    for choice in (choice for choice in choices if choice.mark is Mark.DOUBTFUL):
        text = as_comment(f"{choice.label} = {choice.value}: {choice.why}")
        yield from textwrap.wrap(text, WIDTH, initial_indent="#   ", subsequent_indent="#     ")
    explained = (choice for choice in choices if _is_explained(choice) and choice.mark not in SHOWN_FIRST)
    rows = map(_row, sorted(explained, key=lambda choice: choice.key not in ALWAYS and not choice.mark))
    yield from [row for row in rows if row][:MOST_ROWS]


def _is_explained(choice: Choice) -> bool:
    is_plain = choice.value == "none" and choice.key != ChoiceKey.LAUNCHER
    usual = choice.key in MAIN and choice.source != "option" and not is_plain
    return usual or choice.key in ALWAYS or choice.mark in {Mark.UNUSED, Mark.UNSET}


def _row(choice: Choice) -> str:
    """Return the longest form of a reason that fits; the path of the user's own profile is always listed."""
    value = f"#   {choice.label} = {choice.value}"
    alone = value if choice.key == ChoiceKey.PROFILE else f"#   {choice.label}: {choice.why}"
    forms = [as_comment(text) for text in (f"{value}: {choice.why}", f"{value}: {_first(choice.why)}", alone)]
    return next((form for form in forms if len(form) <= WIDTH), forms[-1] if choice.key == ChoiceKey.PROFILE else "")


def _first(why: str) -> str:
    """Return the first clause of a reason."""
    return why.partition("; ")[0].partition(": ")[0]


def split_choices(
    choices: Iterable[Choice], exports: tuple[Variable, ...]
) -> tuple[tuple[Choice, ...], Mapping[str, Choice]]:
    """Split choices into those for the head of a script, and those for the export of a variable."""
    exported = {_name_inside(variable) for variable in exports}
    head: list[Choice] = []
    by_variable: dict[str, Choice] = {}
    for choice in choices:
        names = choice.key.split(", ")
        if exported.issuperset(names):
            by_variable |= dict.fromkeys(names, choice)
        else:
            head.append(choice)
    return tuple(head), by_variable


def render_exports(exports: tuple[Variable, ...], reasons: Mapping[str, Choice]) -> Iterator[str]:
    """Render the exports of variables with their reasons, which are above several variables that share one."""
    for why, group in groupby(exports, key=lambda variable: _reason(reasons.get(_name_inside(variable)))):
        words = [render_assignment(variable.name, variable.value) for variable in group]
        short = next((text for text in (why, _first(why)) if _fits(words, text)), "")
        if short:
            yield f"export {words[0]}  # {short}"
            continue
        if why:
            yield from (f"# {line}" for line in textwrap.wrap(_whole(why), WIDTH - INDENT - 2))
        yield from map("export {}".format, packed(words, WIDTH - INDENT - len("export ")))


def _reason(choice: Choice | None) -> str:
    return as_comment(choice.why) if choice else ""


def _fits(words: list[str], why: str) -> bool:
    return bool(why) and len(words) == 1 and INDENT + len(f"export {words[0]}  # {why}") <= WIDTH


def _whole(why: str) -> str:
    """Return a reason as it is if it fits on a line, else its first clause."""
    return why if len(why) <= WIDTH - INDENT - 2 else _first(why)


def packed(words: Iterable[str], width: int) -> Iterator[str]:
    """Yield lines of arguments that are at most `width` characters wide."""
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    yield line


def _name_inside(variable: Variable) -> str:
    """Return a variable's name inside the container: ``X`` for ``APPTAINERENV_X``."""
    family, _, name = variable.name.partition("ENV_")
    return name if family in {"APPTAINER", "SINGULARITY", "ARGOSY"} else variable.name
