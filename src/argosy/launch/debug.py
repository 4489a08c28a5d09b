"""What ``--debug`` sets so that libraries tell what they do; pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from argosy.errors import UsageError
from argosy.model import Choice, Variable
from argosy.nearest import nearest_word

NCCL: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
        "NCCL_DEBUG_FILE": "{files}-nccl-%h-%p.log",
    }
)
"""For NCCL and RCCL, which write a file per rank (%h host, %p process)."""

ONECCL: Mapping[str, str] = MappingProxyType({"CCL_LOG_LEVEL": "info", "FI_LOG_LEVEL": "info"})
"""For oneCCL and libfabric, which write to stderr: `--log-dir` parts them by rank."""

TORCH: Mapping[str, str] = MappingProxyType(
    {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"}
)

TOPICS = ("net", "torch")
WHY = {"net": "which network is used", "torch": "what torch.distributed does"}


def _variables(topic: str, vendor: str) -> Mapping[str, str]:
    if topic == "torch":
        return TORCH
    return ONECCL if vendor == "intel" else NCCL


def plan_debug(topics: tuple[str, ...], files: str, vendor: str) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Give the variables of each topic.

    Parameters
    ----------
    files
        How the names of files begin.
    vendor
        Of the GPUs: Intel's use another library than NVIDIA's and AMD's.

    Raises
    ------
    UsageError
        When there is no such topic; the nearest is named.
    """
    variables: list[Variable] = []
    choices: list[Choice] = []
    for topic in topics:
        if topic not in TOPICS:
            near = nearest_word(topic, TOPICS)
            raise UsageError(
                f"--debug knows no {topic!r}",
                evidence=f"known: {', '.join(TOPICS)}",
                hint=f"did you mean {near}?" if near else "say --debug alone for all of them",
            )
        for name, value in _variables(topic, vendor).items():
            variables.append(Variable(name, value.replace("{files}", files)))
            choices.append(Choice(name, str(variables[-1].value), f"--debug {topic}: {WHY[topic]}", "option"))
    return tuple(variables), tuple(choices)
