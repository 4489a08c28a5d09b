"""Plan the variables of the ranks: those of the user, the caller, the site, and of ``--debug``; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from argosy.core.errors import UsageError
from argosy.core.model import Choice, Variable
from argosy.core.shell import ShellExpr, Word, in_double_quotes
from argosy.core.suggest import did_you_mean
from argosy.launch.context import LaunchContext
from argosy.launch.launchers.launcher import LABEL_FORM
from argosy.launch.model import file_name, job_name
from argosy.launch.shape import THREADS
from argosy.sites.job_settings import SiteSettings

TUNING = re.compile(r"(NCCL|RCCL|UCX|FI|CCL|I_MPI)_[A-Z0-9_]+\Z")
"""Variables of the libraries that transfer data between ranks."""

NCCL_DEBUG: Mapping[str, str] = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
    "NCCL_DEBUG_FILE": "{files}{job}-nccl{restart}-%h-%p.log",
}
"""For NCCL and RCCL, which write one file per rank (%h is the host, %p the process)."""

JOB, RESTART = "$SLURM_JOB_ID", "${SLURM_RESTART_COUNT:-0}"
"""The number of a job and of its run, in the names of its log files: all jobs of a folder write them there."""

ONECCL_DEBUG: Mapping[str, str] = {"CCL_LOG_LEVEL": "info", "FI_LOG_LEVEL": "info"}
"""For oneCCL and libfabric, which write to stderr; `--log-dir` separates their output by rank."""

TORCH_DEBUG: Mapping[str, str] = {
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_CPP_LOG_LEVEL": "INFO",
    "LOGLEVEL": "INFO",
}

DEBUG_TOPICS = ("net", "torch")
DEBUG_WHY = {"net": "shows which network is used", "torch": "shows what torch.distributed does"}


def plan_variables(
    context: LaunchContext, settings: SiteSettings, threads: tuple[Word, Choice], *, launcher: str
) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    """Plan the variables of a launch: those of the user override those of the site, and these the defaults.

    Parameters
    ----------
    threads
        Number of threads of a rank, with the reason.
    """
    requested, environment = context.request.container.variables, context.host.environment
    number, why_threads = threads
    if environment.get(THREADS):
        number = environment[THREADS]
        why_threads = Choice(THREADS, number, "set by the caller", "environment")
    debug, why_debug = _plan_debug(context)
    label = (Variable(*LABEL_FORM),) if context.request.label and launcher == "torchrun" else ()
    from_caller = caller_variables(environment)
    # Of several with one name, the last one has the value; those of the user are added below.
    planned = (Variable(THREADS, number), *settings.variables, *from_caller, *label, *debug)
    by_name = {variable.name: variable for variable in planned}
    kept = tuple(variable for name, variable in by_name.items() if name not in _names(requested))
    why_site = (row for row in settings.choices if row.key not in _names(from_caller))
    why_planned = (why_threads, *why_site, *_explain(from_caller, "set by the caller", "environment"), *why_debug)
    why_kept = (row for row in why_planned if row.key not in _names(requested))
    return (*kept, *requested), (*why_kept, *_explain(requested, "requested", "option"))


def _names(variables: tuple[Variable, ...]) -> frozenset[str]:
    return frozenset(variable.name for variable in variables)


def _explain(variables: tuple[Variable, ...], why: str, source: str) -> Iterator[Choice]:
    return (Choice(variable.name, str(variable.value), why, source) for variable in variables)


def _plan_debug(context: LaunchContext) -> tuple[tuple[Variable, ...], tuple[Choice, ...]]:
    request, target = context.request, context.target
    if not request.debug:
        return (), ()
    files = f"{context.host.cwd or '.'}/{file_name(job_name(request))}"
    return plan_debug(request.debug, files, target.site.node.gpu_vendor, is_job=target.is_job)


def caller_variables(environment: Mapping[str, str]) -> tuple[Variable, ...]:
    """Return the caller's variables that tune the network; a plan sets them, because the image may override them."""
    forced = (name for name in sorted(environment) if TUNING.match(name))
    return tuple(Variable(name, environment[name]) for name in forced)


def _debug_variables(topic: str, vendor: str) -> Mapping[str, str]:
    if topic == "torch":
        return TORCH_DEBUG
    return ONECCL_DEBUG if vendor == "intel" else NCCL_DEBUG


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
        if topic not in DEBUG_TOPICS:
            raise UsageError(
                f"invalid topic of --debug: {topic!r}",
                evidence=f"known: {', '.join(DEBUG_TOPICS)}",
                hint=did_you_mean(topic, DEBUG_TOPICS, "use --debug alone for all topics"),
            )
        for name, form in _debug_variables(topic, vendor).items():
            text = form.format(files=files, **numbers)
            late = ShellExpr(form.format(files=in_double_quotes(files), **numbers))
            variables.append(Variable(name, late if is_job and text != form else text))
            choices.append(Choice(name, text, f"--debug {topic}: {DEBUG_WHY[topic]}", "option"))
    return tuple(variables), tuple(choices)
