"""Render what every script has: the head with its reasons, and the environment of the ranks; pure.

A script has short, whole reasons: in its head, or next to the variable that they explain. ``argosy explain`` has all of
them in full, with their sources.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from argosy.core.model import Choice, ChoiceKey, Mark, Variable
from argosy.core.render import count
from argosy.core.shell import as_comment, render_assignment
from argosy.launch.script.facts import ScriptFacts
from argosy.launch.script.helpers import WIDTH, packed
from argosy.runtimes.container_plan import ContainerPlan
from argosy.version import VERSION

INDENT = 4
MOST_REASONS = 7

MAIN_CHOICES = frozenset(
    (
        *(ChoiceKey.MODE, ChoiceKey.PARTITION, "--qos", ChoiceKey.QUEUE, ChoiceKey.LAUNCHER, ChoiceKey.RUNTIME),
        *(ChoiceKey.ENTER, ChoiceKey.GPU, ChoiceKey.PROFILE, ChoiceKey.ASSUMED, ChoiceKey.RANK_CORES),
    )
)
"""Choices that the head of a script explains."""

SHOWN_FIRST = frozenset((Mark.FIRST, Mark.DOUBTFUL))
"""Marks of choices that are at the top of the head."""

ALWAYS_EXPLAINED = frozenset((ChoiceKey.EXCLUDED_NODES, ChoiceKey.SIGNED_BY, ChoiceKey.TORCH, ChoiceKey.BILLED))
"""Choices that the head always explains: they change the cost of the job, or the resources that it may use."""


def inherited_names(container: ContainerPlan) -> tuple[str, ...]:
    """Return the names of variables whose values come from the caller's environment."""
    return tuple(variable.name for variable in container.entry.variables if variable.inherited)


def render_head(facts: ScriptFacts, *, least_nodes: int = 0) -> Iterator[str]:
    """Render the comments in the head of a script: its shape, and the reasons of its main choices.

    Parameters
    ----------
    least_nodes
        The fewest nodes with which an elastic job continues; 0 for other jobs.
    """
    shape = facts.shape
    gpus = f"{count(shape.gpus_per_node, 'GPU')} and " if shape.gpus_per_node else ""
    each = f"{gpus}{count(shape.ranks_per_node, 'rank')}"
    nodes = f"{least_nodes} to {shape.nodes}" if least_nodes else str(shape.nodes)
    nodes = f"1 node with {each}" if shape.nodes == 1 else f"{nodes} nodes with {each} on each"
    yield "#"
    yield f"# {as_comment(facts.name)} on {facts.site}: {nodes}."
    yield f"# Written by Argosy {VERSION}; it runs without Argosy. The reason for each value: argosy explain"
    names = inherited_names(facts.container)
    if names:
        yield f"# PRIVATE: this script holds the values of {', '.join(names)} from the environment of its author."
    yield from render_choices(split_choices(facts.choices, facts.container.exports())[0])
    yield "# shellcheck disable=SC1091,SC2016,SC2034,SC2086,SC2317,SC2329"
    yield ""


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
    rows = map(
        _render_reason, sorted(explained, key=lambda choice: choice.key not in ALWAYS_EXPLAINED and not choice.mark)
    )
    yield from [row for row in rows if row][:MOST_REASONS]


def _is_explained(choice: Choice) -> bool:
    is_plain = choice.value == "none" and choice.key != ChoiceKey.LAUNCHER
    usual = choice.key in MAIN_CHOICES and choice.source != "option" and not is_plain
    return usual or choice.key in ALWAYS_EXPLAINED or choice.mark in {Mark.UNUSED, Mark.UNSET}


def _render_reason(choice: Choice) -> str:
    """Return the longest form of a reason that fits; the path of the user's own profile is always listed.

    So is what this profile replaces, on further lines: whoever gets the script must know that it is not the site's.
    """
    value = f"#   {choice.label} = {choice.value}"
    if choice.key == ChoiceKey.PROFILE and "; " in choice.why:
        why = as_comment(choice.why)
        rest = textwrap.wrap(why, WIDTH - len("#     "), break_long_words=False, break_on_hyphens=False)
        return "\n".join((as_comment(f"{value}:"), *(f"#     {line}" for line in rest)))
    alone = value if choice.key == ChoiceKey.PROFILE else f"#   {choice.label}: {choice.why}"
    forms = [as_comment(text) for text in (f"{value}: {choice.why}", f"{value}: {_first_clause(choice.why)}", alone)]
    return next((form for form in forms if len(form) <= WIDTH), forms[-1] if choice.key == ChoiceKey.PROFILE else "")


def _first_clause(why: str) -> str:
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


def render_environment(facts: ScriptFacts) -> Iterator[str]:
    """Render the lines that unset variables of the host, and export those of the plan."""
    entry = facts.container.entry
    if entry.drop:
        yield "# Not in the container: the host's software and mounts."
        yield from map("unset {}".format, packed(entry.drop, WIDTH - len("    unset ")))
    exports = facts.container.exports()
    if exports:
        yield "# Set for the container by name: the image would override a plain export."
        yield from render_exports(exports, split_choices(facts.choices, exports)[1])


def render_exports(exports: tuple[Variable, ...], reasons: Mapping[str, Choice]) -> Iterator[str]:
    """Render the exports of variables with their reasons, which are above several variables that share one."""
    for why, group in groupby(exports, key=lambda variable: _reason(reasons.get(_name_inside(variable)))):
        words = [render_assignment(variable.name, variable.value) for variable in group]
        short = next((text for text in (why, _first_clause(why)) if _fits(words, text)), "")
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
    return why if len(why) <= WIDTH - INDENT - 2 else _first_clause(why)


def _name_inside(variable: Variable) -> str:
    """Return a variable's name inside the container: ``X`` for ``APPTAINERENV_X``."""
    family, _, name = variable.name.partition("ENV_")
    return name if family in {"APPTAINER", "SINGULARITY", "ARGOSY"} else variable.name
