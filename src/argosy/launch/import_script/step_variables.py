"""Translate the variables of one command: of ``NAME=VALUE srun …``, ``srun --export`` and ``apptainer --env``; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from argosy.launch.import_script.model import Fate, Note
from argosy.launch.import_script.settings import RENDEZVOUS, reason_to_replace

COMPUTED = re.compile("[$`]")
"""Signs of a value that a shell computes."""

OF_SLURM = re.compile(r"([^$`\"\\]|\$\{SLURM_\w+(:-\w*)?\})*")
"""A value that the job's own variables complete."""

OF_USER = re.compile(r"([^$`\"\\]|\$\{\w+(:-\w*)?\})*")
"""A value that variables complete."""


class StepVariables(msgspec.Struct):
    """The variables of a command: those of the table, assignments for the shell of each rank, and notes."""

    env: dict[str, str] = {}
    prelude: list[str] = []
    notes: list[Note] = []


def translate_variables(variables: Mapping[str, str]) -> StepVariables:
    """Translate the variables of a command, with their values as the script writes them."""
    found = StepVariables()
    for name, value in variables.items():
        text, is_computed = f"{name}={value}", bool(COMPUTED.search(value))
        reason = reason_to_replace(name, value)
        if reason and (is_computed or name in RENDEZVOUS):
            found.notes.append((text, Fate.REPLACED, reason))
        elif not is_computed:
            found.env[name] = value
        elif OF_SLURM.fullmatch(value):
            found.prelude.append(f'export {name}="{value}"')
            found.notes.append((text, Fate.KEPT, "the shell of each rank sets it"))
        else:
            found.notes.append((text, Fate.UNTRANSLATED, _remedy(name, value)))
    return found


def _remedy(name: str, value: str) -> str:
    """Return what to do about a value that the job does not know."""
    if value == f"${{{name}}}":
        return f"your shell has the value: launch with --env {name}"
    if OF_USER.fullmatch(value):
        return f"your shell completes the value: launch with --env {name}=VALUE"
    return "the job computes the value: set it in the program, which sees the job's SLURM_* variables"
