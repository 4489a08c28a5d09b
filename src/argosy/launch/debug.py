"""Plan the variables of ``--debug``: what the network library and torch log; pure."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.core.errors import UsageError
from argosy.core.model import Choice, Variable
from argosy.core.shell import ShellExpr, in_double_quotes
from argosy.core.suggest import did_you_mean

NCCL: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
    "NCCL_DEBUG_FILE": "{files}{job}-nccl{restart}-%h-%p.log",
}
"""For NCCL and RCCL, which write one file per rank (%h is the host, %p the process)."""

JOB, RESTART = "$SLURM_JOB_ID", "${SLURM_RESTART_COUNT:-0}"
"""The number of a job and of its run, in the names of its log files: all jobs of a folder write them there."""

ONECCL: Mapping[str, str] = {"CCL_LOG_LEVEL": "info", "FI_LOG_LEVEL": "info"}
"""For oneCCL and libfabric, which write to stderr; `--log-dir` separates their output by rank."""

TORCH: Mapping[str, str] = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "TORCH_CPP_LOG_LEVEL": "INFO", "LOGLEVEL": "INFO"}

TOPICS = ("net", "torch")
WHY = {"net": "shows which network is used", "torch": "shows what torch.distributed does"}


def _variables(topic: str, vendor: str) -> Mapping[str, str]:
    if topic == "torch":
        return TORCH
    return ONECCL if vendor == "intel" else NCCL


def plan_debug(
    topics: tuple[str, ...], files: str, vendor: str, *, is_job: bool
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Return the variables for each topic, with their reasons.

    Parameters
    ----------
    files
        Prefix of the log files.
    vendor
        Vendor of the GPUs: those of Intel use oneCCL, others NCCL or RCCL.
    is_job
        Whether it is a job of Slurm: the names of its log files contain its number and that of the run.

    Raises
    ------
    UsageError
        If a topic does not exist.
    """
    variables: list[Variable] = []
    choices: list[Choice] = []
    numbers = {"job": f"-{JOB}" if is_job else "", "restart": f"-{RESTART}" if is_job else ""}
    for topic in topics:
        if topic not in TOPICS:
            raise UsageError(
                f"invalid topic of --debug: {topic!r}",
                evidence=f"known: {', '.join(TOPICS)}",
                hint=did_you_mean(topic, TOPICS, "use --debug alone for all topics"),
            )
        for name, form in _variables(topic, vendor).items():
            text = form.format(files=files, **numbers)
            late = ShellExpr(form.format(files=in_double_quotes(files), **numbers))
            variables.append(Variable(name, late if is_job and text != form else text))
            choices.append(Choice(name, text, f"--debug {topic}: {WHY[topic]}", "option"))
    return tuple(variables), tuple(choices)
