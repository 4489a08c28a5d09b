"""Say in a script why each choice was made, a line each: in its head, or beside the variable that it is about; pure.

A script is for the eye: what does not fit into a line ends with an ellipsis, and ``argosy explain`` has it in full.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from argosy.core.model import Choice, Variable
from argosy.core.shell import as_comment, render_assignment

WIDTH = 108
LONGEST_VALUE, LONGEST_BESIDE = 64, 80


def render_choices(choices: Iterable[Choice]) -> Iterator[str]:
    """Say what was chosen and why; neighbours with one and the same reason share a line where they fit."""
    for _, rows in groupby(choices, key=lambda choice: (choice.why, choice.source)):
        group = tuple(rows)
        line = _row(group)
        yield from (line,) if len(line) <= WIDTH else (_cut(_short_row(choice)) for choice in group)


def split_choices(
    choices: Iterable[Choice], exports: tuple[Variable, ...]
) -> tuple[tuple[Choice, ...], Mapping[str, Choice]]:
    """Part choices: those for the head of a script, and those that stand beside the exports that they are about."""
    exported = {_name_inside(variable) for variable in exports}
    head: list[Choice] = []
    beside: dict[str, Choice] = {}
    for choice in choices:
        names = choice.key.split(", ")
        if exported.issuperset(names):
            beside |= dict.fromkeys(names, choice)
        else:
            head.append(choice)
    return tuple(head), beside


def render_exports(exports: tuple[Variable, ...], reasons: Mapping[str, Choice]) -> Iterator[str]:
    """Export variables with their reasons: beside one that has its own, above several that share it."""
    for why, group in groupby(exports, key=lambda variable: _reason(reasons.get(_name_inside(variable)))):
        words = [render_assignment(variable.name, variable.value) for variable in group]
        if why and len(words) == 1 and len(words[0]) <= LONGEST_BESIDE:
            yield f"export {words[0]}  {_cut(why, WIDTH - len(words[0]) - len('export   '))}"
            continue
        yield from (_cut(why),) if why else ()
        yield from map("export {}".format, _packed(words))


def _reason(choice: Choice | None) -> str:
    return as_comment(f"# {choice.why} [{_source(choice)}]") if choice else ""


def _packed(words: Iterable[str]) -> Iterator[str]:
    """Put words on one line as long as it stays short."""
    line = ""
    for word in words:
        if line and len(line) + len(word) >= WIDTH - len("export "):
            yield line
            line = ""
        line = f"{line} {word}" if line else word
    yield line


def _name_inside(variable: Variable) -> str:
    """Give a variable's name inside the container: ``X`` for ``APPTAINERENV_X``."""
    family, _, name = variable.name.partition("ENV_")
    return name if family in {"APPTAINER", "SINGULARITY", "ARGOSY"} else variable.name


def _row(group: tuple[Choice, ...]) -> str:
    pairs = ", ".join(f"{choice.label} = {choice.value}" for choice in group)
    return as_comment(f"#   {pairs}: {group[0].why} [{_source(group[0])}]")


def _short_row(choice: Choice) -> str:
    value = textwrap.shorten(choice.value, LONGEST_VALUE, placeholder=" …")
    return as_comment(f"#   {choice.label} = {value}: {choice.why} [{_source(choice)}]")


def _source(choice: Choice) -> str:
    """Give where a choice comes from; the head of the script names the site."""
    return "site" if choice.source.startswith("site ") else choice.source


def _cut(line: str, width: int = WIDTH) -> str:
    """Cut a line that ends with a source in brackets; the source stays."""
    if len(line) <= width:
        return line
    text, _, source = line.rpartition(" [")
    kept = text[: max(0, width - len(source) - len(" … ["))].rsplit(" ", 1)[0]
    return f"{kept} … [{source}"
