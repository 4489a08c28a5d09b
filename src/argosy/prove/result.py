"""Read what a proving job wrote: facts by name, each with the way it was tried."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from argosy.errors import UsageError

NOT_TRIED = "not tried"
MOST_BYTES = 1 << 20


class Fact(msgspec.Struct, frozen=True):
    """One fact.

    Attributes
    ----------
    name
        ``node.cores``, ``attach.overlay``.
    value
        In words; ``not tried`` where there was no way to, and `how` says why.
    how
        How it was tried.
    """

    name: str
    value: str
    how: str = ""

    @property
    def tried(self) -> bool:
        """Whether it tells anything."""
        return self.value not in {"", NOT_TRIED}


class Result(msgspec.Struct, frozen=True):
    """What a proving job found."""

    argosy_prove: int
    site: str
    job: str
    date: str
    partition: str
    nodes: str
    runtime: str
    image: str
    facts: tuple[Fact, ...]

    def value(self, name: str) -> str:
        """Give a fact; empty where it was not tried."""
        return next((fact.value for fact in self.facts if fact.name == name and fact.tried), "")

    @property
    def versions(self) -> dict[str, str]:
        """Versions that the facts hold with."""
        slurm = re.search(r"\d+(?:\.\d+)+", self.value("slurm.version"))
        found = {"slurm": slurm[0] if slurm else "", self.runtime or "runtime": self.value("runtime.version")}
        return {name: version for name, version in found.items() if version}

    @property
    def words(self) -> str:
        """Say what proves a value: ``2026-11-21, job 7, slurm 24.11.5, apptainer 1.4.5``."""
        versions = (f"{name} {version}" for name, version in self.versions.items())
        return ", ".join((self.date, f"job {self.job}", *versions))


def read_result(path: Path) -> Result:
    """Read the JSON of a proving job.

    Raises
    ------
    UsageError
        When it cannot be read, or is no such file.
    """
    try:
        with path.open("rb") as source:
            text = source.read(MOST_BYTES).decode(errors="replace")
        result = msgspec.json.decode(text, type=Result)
    except (OSError, msgspec.DecodeError) as error:
        hint = "give the argosy-prove-JOB.json that the job wrote"
        raise UsageError(f"{path} is no result of argosy prove", evidence=str(error), hint=hint) from error
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", result.date) or not re.fullmatch(r"[\w-]*", result.job):
        raise UsageError(f"{path} is no result of argosy prove", evidence=f"date {result.date!r}, job {result.job!r}")
    return result
