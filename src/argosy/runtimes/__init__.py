"""Container runtimes: one module and one table row each; they turn records into words and start nothing.

A runtime declares what it cannot do; planning refuses such a request by name instead of dropping it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, cast

from argosy.errors import UsageError
from argosy.model import Entry, Host, Variable, Word
from argosy.nearest import nearest_word

RUNTIMES: Mapping[str, str] = MappingProxyType(
    {
        "apptainer": "argosy.runtimes.apptainer:APPTAINER",
        "singularity": "argosy.runtimes.apptainer:SINGULARITY",
        "bwrap": "argosy.runtimes.bwrap:BWRAP",
    }
)
"""Word of ``--runtime`` -> where its adapter lies; imported when used, tried in this order when nobody asks."""


class Runtime(Protocol):
    """How one runtime says what an `Entry` means."""

    @property
    def name(self) -> str:
        """The word of ``--runtime``."""

    @property
    def program(self) -> str:
        """The program that must be on PATH."""

    @property
    def package(self) -> str:
        """What to install where the program is missing."""

    @property
    def proof(self) -> str:
        """``ran``: the contract tests start it for real; ``rendered``: only its words are tested."""

    def refuse(self, entry: Entry, host: Host) -> str:
        """Say why this runtime cannot do what is asked on this machine; empty where it can."""

    def exports(self, entry: Entry) -> tuple[Variable, ...]:
        """Give what must be exported before the runtime starts, so that the entry's variables arrive verbatim."""

    def words(self, entry: Entry, command: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the whole command line that starts `command` in the container."""


def load_runtime(name: str) -> Runtime:
    """Give the adapter of a runtime by the word of ``--runtime``.

    Raises
    ------
    UsageError
        When no row has that name; the nearest one is the hint.
    """
    place = RUNTIMES.get(name)
    if place is None:
        near = nearest_word(name, RUNTIMES)
        raise UsageError(
            f"no runtime is called {name!r}",
            evidence=f"known: {', '.join(RUNTIMES)}",
            hint=f"did you mean --runtime {near}?" if near else "",
        )
    module, _, attribute = place.partition(":")
    return cast("Runtime", getattr(import_module(module), attribute))


def forced_variables(entry: Entry) -> tuple[Variable, ...]:
    """Give every variable that must arrive verbatim: the entry's, the GPU's, and TMPDIR where /tmp is a private one."""
    asked = {variable.name for variable in entry.variables}
    usual = [*entry.devices.variables, *([Variable("TMPDIR", "/tmp")] if entry.contain else [])]  # noqa: S108 - a name
    return (*(variable for variable in usual if variable.name not in asked), *entry.variables)
