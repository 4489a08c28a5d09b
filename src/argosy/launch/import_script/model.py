"""The records of an import: each part of the script with its translation, and the jobs that result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec


class Fate(StrEnum):
    """The result for a part of a script."""

    KEPT = "kept"
    REPLACED = "replaced"
    LEFT_OUT = "left out"
    UNTRANSLATED = "not translated"


class Translation(msgspec.Struct, frozen=True):
    """A part of the script and its translation."""

    line: int
    """Line of the script, from 1."""
    text: str
    """The part as it is written, on one line."""
    fate: Fate
    """``kept``: a key of ``argosy.toml`` has the same effect; ``replaced``: Argosy does it itself; ``left out``: a
    job in a container does not need it; ``not translated``: the user has to do it."""
    note: str
    """The key with its value, or the reason."""
    end: int = 0
    """Last line of a part over several lines, else 0."""
    lost_programs: str = ""
    """The programs that a part starts and that no job contains, for example ``train.py in a loop``."""

    @property
    def loss(self) -> str:
        """Return a sentence about the programs that no job contains."""
        is_block = self.end > self.line
        lines = f"lines {self.line}-{self.end} start" if is_block else f"line {self.line} starts"
        return f"{lines} {self.lost_programs} and {'are' if is_block else 'is'} NOT translated"


Note = tuple[str, Fate, str]
"""Text, fate and reason of a part of a statement."""


class Outcome(NamedTuple):
    """The fate of a statement, the reason, the programs that no job contains, and notes on its parts."""

    fate: Fate
    note: str
    lost_programs: str = ""
    parts: tuple[Note, ...] = ()


WIDEST = 60
"""Longest text of a statement in a translation, in characters."""


def shorten(text: str) -> str:
    """Cut a text that is too long for a translation."""
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def translate(line: int, text: str, fate: Fate, note: str, *, end: int = 0, lost_programs: str = "") -> Translation:
    """Make the translation of a statement; its text is put on one line, and shortened."""
    shown = shorten(re.sub(r"\s*\\?\n\s*", " ", text))
    return Translation(line, shown, fate, note, end, lost_programs)


class ImportedJob(msgspec.Struct, frozen=True):
    """A job of ``argosy.toml``."""

    name: str
    keys: Mapping[str, Any]
    line: int
    """Line of the script that starts its program."""
    program: str
    comments: tuple[str, ...] = ()
    """Parts of its table that the user has to correct."""


class ImportedScript(msgspec.Struct, frozen=True):
    """The jobs of a script, and the translation of each of its parts in the script's order."""

    path: str
    jobs: tuple[ImportedJob, ...]
    translations: tuple[Translation, ...]

    @property
    def untranslated(self) -> tuple[Translation, ...]:
        """The parts that the user has to translate."""
        return tuple(each for each in self.translations if each.fate is Fate.UNTRANSLATED)

    @property
    def lost(self) -> tuple[Translation, ...]:
        """The parts that start a program which no job contains."""
        return tuple(each for each in self.translations if each.lost_programs)


class Translations(list[Translation]):
    """The translations of a script so far."""

    def add(self, line: int, text: str, outcome: Outcome, *, end: int = 0) -> None:
        """Record what becomes of a statement, and of its parts."""
        fate, note, lost_programs, parts = outcome
        self.append(translate(line, text, fate, note, end=end, lost_programs=lost_programs))
        self.add_notes(line, parts)

    def add_notes(self, line: int, notes: Iterable[Note]) -> None:
        """Record the translations of parts of a statement; equal ones once."""
        self += [translate(line, *note) for note in dict.fromkeys(notes)]
