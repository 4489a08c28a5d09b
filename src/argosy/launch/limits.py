"""Check the sizes of a command line and its environment; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from argosy.core.errors import UsageError
from argosy.core.model import APPTAINERS
from argosy.core.shell import Word, text_of
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import assignment

ONE_STRING = 131_072
"""Bytes of one argument or NAME=VALUE, its NUL included: MAX_ARG_STRLEN, 32 pages (execve(2))."""

ALL_STRINGS = 2_097_152
"""Bytes of all arguments and variables together: a quarter of the usual stack limit of 8 MiB (execve(2))."""

APPTAINER_JSON = 1_048_448
"""Bytes of the JSON with a container's configuration in Apptainer, including arguments and environment (1.4.5)."""

SPARE = 32_768
"""Bytes reserved for variables that are set on the node by Slurm and the runtime."""

HINT = "write it to a file that the program reads"


def refuse_too_long(container: ContainerPlan, command: tuple[Word, ...], environment: Mapping[str, str]) -> None:
    """Refuse a command line or an environment that is longer than the kernel or the runtime accepts.

    Parameters
    ----------
    environment
        The caller's variables, which the job inherits.

    Raises
    ------
    UsageError
        If a size is above its limit.
    """
    words = container.argv(command)
    variables = (*container.exports(), *container.entry.variables)
    for index, word in enumerate(command):
        _refuse_long_argument(f"argument {index + 1} of the command", word)
    for variable in variables:
        _refuse_long_argument(f"the variable {variable.name}", assignment(variable))
    strings = [
        *words,
        *map(assignment, container.exports()),
        *(f"{name}={value}" for name, value in environment.items()),
    ]
    total = sum(map(_size, strings))
    _refuse_long_command(total, ALL_STRINGS, "the kernel accepts")
    if container.runtime.program in APPTAINERS:
        inside = [*command, *map(assignment, container.entry.variables), *(f"{n}={v}" for n, v in environment.items())]
        _refuse_long_command(json_size(inside), APPTAINER_JSON, f"{container.runtime.name} accepts")


def _refuse_long_argument(what: str, word: Word) -> None:
    if _size(word) > ONE_STRING:
        raise UsageError(
            f"{what} is too long",
            evidence=f"{_size(word):,} bytes; the kernel accepts {ONE_STRING:,} bytes in one argument or variable",
            hint=HINT,
        )


def _refuse_long_command(total: int, limit: int, who: str) -> None:
    if total + SPARE > limit:
        raise UsageError(
            "the command and its variables are too long",
            evidence=f"{total:,} bytes with the caller's variables; {who} {limit:,}, and Slurm needs {SPARE:,} of them",
            hint=HINT,
        )


def json_size(words: Iterable[Word]) -> int:
    """Return the bytes of arguments as Go writes them in JSON: ``<``, ``>`` and ``&`` take six (encoding/json)."""
    total = 0
    for word in words:
        text = text_of(word)
        total += len(json.dumps(text, ensure_ascii=False).encode(errors="surrogateescape")) + 1
        total += 5 * sum(map(text.count, "<>&"))
    return total


def _size(word: Word) -> int:
    return len(text_of(word).encode(errors="surrogateescape")) + 1
