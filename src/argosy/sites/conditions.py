"""Parse and evaluate the conditions of a profile: tables of fact -> comparison, which never run code.

::

    when = { nodes = "> 1", rocm = "< 6.2", partition = "standard-g | small-g" }

All comparisons must hold. A comparison is a word, several words separated by ``|``, or one of ``< <= > >= == !=`` and
a value. Versions are compared number by number. If a fact is unknown, the condition is unknown: the plan then omits the
part, and lists it as not set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any

import msgspec

from argosy.core.suggest import did_you_mean

ORDER: Mapping[str, Callable[[Any, Any], bool]] = {"<=": le, ">=": ge, "<": lt, ">": gt}
OPERATORS = (*ORDER, "==", "!=")


class Facts(msgspec.Struct, frozen=True):
    """The facts about a job that conditions compare; empty if unknown."""

    nodes: str = ""
    ranks: str = ""
    ranks_per_node: str = ""
    gpus_per_node: str = ""
    """The job's shape."""
    whole_nodes: str = ""
    """``yes`` or ``no``: whether the job has whole nodes."""
    partition: str = ""
    launcher: str = ""
    mode: str = ""
    vendor: str = ""
    runtime: str = ""
    runtime_version: str = ""
    slurm: str = ""
    """Versions of the runtime and of Slurm at the site, if the profile contains them."""
    rocm: str = ""
    cuda: str = ""
    torch: str = ""
    nccl: str = ""
    """Versions of the software in the image."""


KNOWN = Facts.__struct_fields__


class FactComparison(msgspec.Struct, frozen=True):
    """One comparison of a fact; it holds if it holds for one of the values."""

    fact: str
    operator: str
    values: tuple[str, ...]


Condition = tuple[FactComparison, ...]


def parse_condition(table: Mapping[str, str]) -> Condition:
    """Parse a condition.

    Raises
    ------
    ValueError
        When a fact does not exist (the message suggests the most similar one), or a comparison is invalid.
    """
    return tuple(_parse_comparison(fact, text) for fact, text in table.items())


def _parse_comparison(fact: str, text: str) -> FactComparison:
    if fact not in KNOWN:
        hint = did_you_mean(fact, KNOWN, f"use one of {', '.join(KNOWN)}", form="'{}'")
        raise ValueError(f"when: unknown fact {fact!r}; {hint}")
    operator = next((each for each in OPERATORS if text.strip().startswith(each)), "")
    values = tuple(part.strip() for part in text.strip().removeprefix(operator).split("|"))
    if not all(values) or (operator in ORDER and not all(re.fullmatch(r"\d\S*", value) for value in values)):
        raise ValueError(f"when: invalid comparison {fact} = {text!r}; write a word, or an operator and a number")
    return FactComparison(fact, operator or "==", values)


def evaluate_condition(condition: Condition, facts: Facts) -> bool | None:
    """Return whether a condition holds; None if that depends on an unknown fact."""
    verdicts = [_evaluate_comparison(row, str(getattr(facts, row.fact))) for row in condition]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def unknown_facts(condition: Condition, facts: Facts) -> tuple[str, ...]:
    """Return the unknown facts that a condition compares."""
    return tuple(row.fact for row in condition if not getattr(facts, row.fact))


def render_condition(table: Mapping[str, str]) -> str:
    """Render a condition for people."""
    return " and ".join(f"{fact} {text}" if text[:1] in "<>=!" else f"{fact} = {text}" for fact, text in table.items())


def _evaluate_comparison(row: FactComparison, fact: str) -> bool | None:
    if not fact:
        return None
    if row.operator in ORDER and not re.match(r"\d", fact):
        return None
    return any(_compare(row.operator, fact, value) for value in row.values)


def _compare(operator: str, fact: str, value: str) -> bool:
    if operator in ORDER:
        return ORDER[operator](_numbers(fact), _numbers(value))
    return fact != value if operator == "!=" else fact == value


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version without trailing zeros, so that 6.2 equals 6.2.0."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
