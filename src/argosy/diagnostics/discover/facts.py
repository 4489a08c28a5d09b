"""Define the draft of a profile: facts with their sources, partitions, and open questions."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

Value = str | int | bool | list[str] | list[int]


class Fact(msgspec.Struct, frozen=True):
    """One value of a profile.

    Attributes
    ----------
    section, key
        Section and key: ``node``, ``cores``.
    source
        The command that printed it, and the machine.
    why
        How the value was derived, if that is not obvious.
    """

    section: str
    key: str
    value: Value
    source: str
    why: str = ""


class Draft(msgspec.Struct, frozen=True):
    """The draft of a profile.

    Attributes
    ----------
    options
        Arguments for every job: the section is ``options``, the key the program (``sbatch``).
    """

    facts: tuple[Fact, ...] = ()
    options: tuple[Fact, ...] = ()
    partitions: tuple[Mapping[str, str | int | bool], ...] = ()
    questions: tuple[str, ...] = ()
