"""Conditions of a profile, as data: a table of fact -> comparison; total, three-valued, and nothing in it can run.

::

    when = { nodes = "> 1", rocm = "< 6.2", partition = "standard-g | small-g" }

Every row must hold.  A comparison is a word, several words with ``|`` between them, or one of ``< <= > >= == !=`` and a
value.  Versions compare number by number.  A fact that is not known makes the condition unknown: what depends on it is
then left out, and the plan says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from argosy.core.suggest import suggest_word

OPERATORS = ("<=", ">=", "==", "!=", "<", ">")
ORDER = frozenset({"<=", ">=", "<", ">"})


class Facts(msgspec.Struct, frozen=True):
    """What conditions may ask about a job; empty where it is not known.

    Attributes
    ----------
    nodes, ranks, ranks_per_node, gpus_per_node
        The job's shape.
    whole_nodes
        ``yes`` or ``no``: whether the job has its nodes for itself.
    runtime_version, slurm
        Versions of the runtime and of Slurm there, as far as the profile tells.
    rocm, cuda, torch, nccl
        Versions of what the image holds.
    """

    nodes: str = ""
    ranks: str = ""
    ranks_per_node: str = ""
    gpus_per_node: str = ""
    whole_nodes: str = ""
    partition: str = ""
    launcher: str = ""
    mode: str = ""
    vendor: str = ""
    runtime: str = ""
    runtime_version: str = ""
    slurm: str = ""
    rocm: str = ""
    cuda: str = ""
    torch: str = ""
    nccl: str = ""


KNOWN = Facts.__struct_fields__


class Row(msgspec.Struct, frozen=True):
    """One comparison: a fact, an operator, and the values of which one must hold."""

    fact: str
    operator: str
    values: tuple[str, ...]


Condition = tuple[Row, ...]


def parse_condition(table: Mapping[str, str]) -> Condition:
    """Read a condition.

    Raises
    ------
    ValueError
        When it asks for a fact that there is not (the nearest is named), or compares with nothing.
    """
    return tuple(_parse_row(fact, text) for fact, text in table.items())


def _parse_row(fact: str, text: str) -> Row:
    if fact not in KNOWN:
        near = suggest_word(fact, KNOWN)
        raise ValueError(
            f"when: there is no fact {fact!r}" + (f", did you mean {near!r}?" if near else f": {', '.join(KNOWN)}")
        )
    operator = next((each for each in OPERATORS if text.strip().startswith(each)), "")
    values = tuple(part.strip() for part in text.strip().removeprefix(operator).split("|"))
    if not all(values) or (operator in ORDER and not all(re.match(r"\d", value) for value in values)):
        raise ValueError(f"when: {fact} = {text!r} is no comparison; write a word, or an operator and a number")
    return Row(fact, operator or "==", values)


def judge_condition(condition: Condition, facts: Facts) -> bool | None:
    """Tell whether a condition holds; None where it asks for what is not known, and nothing else denies it."""
    verdicts = [_judge_row(row, str(getattr(facts, row.fact))) for row in condition]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def unknown_facts(condition: Condition, facts: Facts) -> tuple[str, ...]:
    """Name the facts that a condition needs and that are not known."""
    return tuple(row.fact for row in condition if not getattr(facts, row.fact))


def render_condition(table: Mapping[str, str]) -> str:
    """Say a condition in words, for people."""
    return " and ".join(f"{fact} {text}" if text[:1] in "<>=!" else f"{fact} = {text}" for fact, text in table.items())


def _judge_row(row: Row, fact: str) -> bool | None:
    if not fact:
        return None
    if row.operator in ORDER and not re.match(r"\d", fact):
        return None
    return any(_compare(row.operator, fact, value) for value in row.values)


def _compare(operator: str, fact: str, value: str) -> bool:
    left, right = _numbers(fact), _numbers(value)
    match operator:
        case "==":
            return fact == value
        case "!=":
            return fact != value
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
        case _:
            return left >= right


def _numbers(text: str) -> tuple[int, ...]:
    """Give a version's numbers without trailing zeros, so that 6.2 and 6.2.0 are one."""
    numbers = [int(part) for part in re.findall(r"\d+", text)]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
