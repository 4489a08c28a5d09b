"""Check the sizes of a command line and its environment, and plan the variables of ``--debug``; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from argosy.core.errors import UsageError
from argosy.core.model import Choice, Variable
from argosy.core.shell import ShellExpr, Word
from argosy.core.suggest import did_you_mean
from argosy.runtimes.container_plan import ContainerPlan

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
        _refuse_long_argument(f"the variable {variable.name}", _joined(variable))
    strings = [*words, *map(_joined, container.exports()), *(f"{name}={value}" for name, value in environment.items())]
    total = sum(map(_size, strings))
    _refuse_long_command(total, ALL_STRINGS, "the kernel accepts")
    if container.runtime.program in {"apptainer", "singularity"}:
        inside = [*command, *map(_joined, container.entry.variables), *(f"{n}={v}" for n, v in environment.items())]
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
        text = word.expression if isinstance(word, ShellExpr) else word
        total += len(json.dumps(text, ensure_ascii=False).encode(errors="surrogateescape")) + 1
        total += 5 * sum(map(text.count, "<>&"))
    return total


def _joined(variable: Variable) -> Word:
    value = variable.value
    return (
        ShellExpr(f"{variable.name}={value.expression}") if isinstance(value, ShellExpr) else f"{variable.name}={value}"
    )


def _size(word: Word) -> int:
    text = word.expression if isinstance(word, ShellExpr) else word
    return len(text.encode(errors="surrogateescape")) + 1


NCCL: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": "{files}-nccl-%h-%p.log",
    }
)
"""For NCCL and RCCL, which write one file per rank (%h is the host, %p the process)."""

ONECCL: Mapping[str, str] = MappingProxyType({"CCL_LOG_LEVEL": "info", "FI_LOG_LEVEL": "info"})
"""For oneCCL and libfabric, which write to stderr; `--log-dir` separates their output by rank."""

TORCH: Mapping[str, str] = MappingProxyType(
    {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"}
)

TOPICS = ("net", "torch")
WHY = {"net": "shows which network is used", "torch": "shows what torch.distributed does"}


def _variables(topic: str, vendor: str) -> Mapping[str, str]:
    if topic == "torch":
        return TORCH
    return ONECCL if vendor == "intel" else NCCL


def plan_debug(topics: tuple[str, ...], files: str, vendor: str) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Return the variables for each topic, with their reasons.

    Parameters
    ----------
    files
        Prefix of the log files.
    vendor
        Vendor of the GPUs: those of Intel use oneCCL, others NCCL or RCCL.

    Raises
    ------
    UsageError
        If a topic does not exist.
    """
    variables: list[Variable] = []
    choices: list[Choice] = []
    for topic in topics:
        if topic not in TOPICS:
            raise UsageError(
                f"invalid topic of --debug: {topic!r}",
                evidence=f"known: {', '.join(TOPICS)}",
                hint=did_you_mean(topic, TOPICS, "use --debug alone for all topics"),
            )
        for name, value in _variables(topic, vendor).items():
            variables.append(Variable(name, value.replace("{files}", files)))
            choices.append(Choice(name, str(variables[-1].value), f"--debug {topic}: {WHY[topic]}", "option"))
    return tuple(variables), tuple(choices)
