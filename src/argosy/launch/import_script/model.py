"""The records of an import: each part of the script with its translation, and the jobs that result."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec


class Fate(StrEnum):
    """The result for a part of a script."""

    KEPT = "kept"
    REPLACED = "replaced"
    LEFT_OUT = "left out"
    NOT_READ = "not read"


class Translation(msgspec.Struct, frozen=True):
    """A part of the script and its translation.

    Attributes
    ----------
    line
        Line of the script, from 1.
    text
        The part as it is written, on one line.
    fate
        ``kept``: a key of ``argosy.toml`` says the same; ``replaced``: Argosy does it itself; ``left out``: a job in a
        container does not need it; ``not read``: the user has to translate it.
    note
        The key with its value, or the reason.
    end
        Last line of a part over several lines, else 0.
    starts
        The programs that a part starts which was not read, for example ``train.py in a loop``: no job contains them.
    """

    line: int
    text: str
    fate: Fate
    note: str
    end: int = 0
    starts: str = ""

    @property
    def lost_program(self) -> str:
        """Return a sentence about the programs that no job contains."""
        is_block = self.end > self.line
        lines = f"lines {self.line}-{self.end} start" if is_block else f"line {self.line} starts"
        return f"{lines} {self.starts} and {'are' if is_block else 'is'} NOT translated"


class ImportedJob(msgspec.Struct, frozen=True):
    """A job of ``argosy.toml``: its name and its keys, and the line of the script that starts its program."""

    name: str
    keys: Mapping[str, Any]
    line: int
    program: str


class ImportedScript(msgspec.Struct, frozen=True):
    """The jobs of a script, and the translation of each of its parts in the script's order."""

    path: str
    jobs: tuple[ImportedJob, ...]
    translations: tuple[Translation, ...]

    @property
    def unread(self) -> tuple[Translation, ...]:
        """The parts that the user has to translate."""
        return tuple(each for each in self.translations if each.fate is Fate.NOT_READ)

    @property
    def lost(self) -> tuple[Translation, ...]:
        """The parts that start a program which no job contains."""
        return tuple(each for each in self.translations if each.starts)
