"""What a survey gathers: facts with their sources, partitions, and open questions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Value = str | int | bool | list[str] | list[int]


class Fact(msgspec.Struct, frozen=True):
    """One value of a profile.

    Attributes
    ----------
    section, key
        Its place: ``node``, ``cores``.
    source
        The command that told it, and on which machine.
    why
        How the value follows from what was told, where that is not plain.
    """

    section: str
    key: str
    value: Value
    source: str
    why: str = ""


class Draft(msgspec.Struct, frozen=True):
    """A profile in the making.

    Attributes
    ----------
    options
        Words for every job: the section is ``options``, the key the program that takes the word (``sbatch``).
    """

    facts: tuple[Fact, ...] = ()
    options: tuple[Fact, ...] = ()
    partitions: tuple[Mapping[str, str | int | bool], ...] = ()
    questions: tuple[str, ...] = ()
