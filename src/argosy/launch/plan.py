"""Plan a launch: render the script from its choices, check its length, and say what starts it; pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.model import APPTAINERS, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word, in_double_quotes, text_of
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.choices import LaunchFacts, choose_job_facts, choose_local_facts
from argosy.launch.context import LaunchContext
from argosy.launch.launchers.launcher import Counts, LauncherCommand, LauncherSpec, find_launcher
from argosy.launch.script.facts import ScriptFacts, SlurmFacts
from argosy.launch.script.head import inherited_names
from argosy.launch.script.node_command import node_check, render_attach
from argosy.launch.script.parts import RANK_PATH, SUCCESS_FILES, explain_resume, plan_resume, render_modules
from argosy.launch.script.render import directives, render_local_script, render_slurm_script
from argosy.launch.shape import bound_cores, choose_masks, planned_threads
from argosy.launch.site_settings import advised_against, replaced_by_user, with_variables
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import assignment
from argosy.sites.binding import render_core_list
from argosy.slurm.sbatch import plan_sbatch
from argosy.version import VERSION

ONE_STRING = 131_072
"""Bytes of one argument or NAME=VALUE, its NUL included: MAX_ARG_STRLEN, 32 pages (execve(2))."""

ALL_STRINGS = 2_097_152
"""Bytes of all arguments and variables together: a quarter of the usual stack limit of 8 MiB (execve(2))."""

APPTAINER_JSON = 1_048_448
"""Bytes of the JSON with a container's configuration in Apptainer, including arguments and environment (1.4.5)."""

SPARE = 32_768
"""Bytes reserved for variables that are set on the node by Slurm and the runtime."""

SHORTER_COMMAND = "write it to a file that the program reads"


def plan_launch(context: LaunchContext) -> LaunchPlan:
    """Plan a job of Slurm, or a launch on this machine.

    Raises
    ------
    UsageError, SiteError
        If there is no command or no such launcher, the command line is too long, or the launcher, the runtime or the
        site does not support the request.
    """
    if context.target.is_job:
        return plan_job(context)
    facts = choose_local_facts(context)
    return _base_plan(facts, script=_local_script(facts), submit=("sh", "{script}"))


def _base_plan(facts: LaunchFacts, *, script: str, submit: tuple[str, ...]) -> LaunchPlan:
    """Return the part of a plan that jobs and launches on this machine have in common."""
    container = facts.context.container
    return LaunchPlan(
        name=facts.name,
        site=facts.site.name,
        scheduler=facts.site.scheduler,
        image=container.entry.image.path,
        digest=container.entry.image.digest,
        shape=facts.shape,
        script=script,
        submit=submit,
        choices=facts.choices,
        command=facts.request.command,
        logs=facts.request.logs,
        versions={"argosy": VERSION, **facts.context.versions},
        private=inherited_names(facts.container),
        step_options=facts.site_settings.srun_always,
    )


def _local_script(facts: LaunchFacts) -> str:
    request, shape, record = facts.request, facts.shape, facts.context.record
    spec = LauncherSpec(
        request.command,
        Counts(str(shape.nodes), str(shape.ranks_per_node)),
        request.launcher_arguments,
        logs=str(Path(request.logs, Path(record).name or "run")) if request.logs else "",
        label=request.label,
        copy=ShellExpr("$argosy_rank") if shape.ranks > 1 else "",
    )
    started = find_launcher(facts.launcher).plan(spec)
    refuse_too_long(facts.container, started.command, facts.context.host.environment)
    return render_local_script(_script_facts(facts, facts.container, started))


def _script_facts(facts: LaunchFacts, container: ContainerPlan, started: LauncherCommand) -> ScriptFacts:
    """Return the facts of a script with this container and command."""
    before = facts.request.before
    return ScriptFacts(facts.name, facts.site.name, container, started, facts.shape, facts.choices, before)


RENDEZVOUS = tuple(Variable(name, ShellExpr(f"${name}")) for name in ("MASTER_ADDR", "MASTER_PORT"))
"""Variables with the address of the first rank; the job script sets both."""


def plan_job(context: LaunchContext) -> LaunchPlan:
    """Plan a job of Slurm; errors as `plan_launch`."""
    facts = choose_job_facts(context)
    slurm = plan_slurm_facts(facts)
    options = tuple(directives(slurm))
    asked = (*facts.options.lines(), *facts.request.extra)
    return replace(
        _base_plan(facts, script=render_slurm_script(slurm), submit=plan_sbatch(options)),
        choices=(
            *facts.choices,
            *explain_resume(slurm.resume),
            *advised_against(facts.site, facts.site_settings.avoided, asked),
            *replaced_by_user(facts.site, facts.site_settings.sbatch, asked),
        ),
        attach=_attach_script(facts),
        cores=bound_cores(facts.shape, facts.site, facts.mpi),
        output=facts.options.output,
        directives=options,
        polling_seconds=facts.site.slurm.polling_seconds,
    )


def plan_slurm_facts(facts: LaunchFacts) -> SlurmFacts:
    """Plan the command of the launcher, and return all facts of the job script.

    Raises
    ------
    UsageError
        If the command line or the environment is longer than the kernel or the runtime accepts.
    """
    request, host, record = facts.request, facts.context.host, facts.context.record
    masks = choose_masks(facts.shape, facts.site)
    resume = plan_resume(request.restarts, request.checkpoint, facts.options)
    least = int(request.elastic.partition(":")[0]) if request.elastic else 0
    started = find_launcher(facts.launcher).plan(
        LauncherSpec(
            command=request.command,
            counts=Counts(ShellExpr("$argosy_nodes"), ShellExpr("$argosy_ranks_per_node")),
            extra=request.launcher_arguments,
            cores=tuple(map(render_core_list, masks)) if facts.launcher == "torchrun" or facts.rank_python else (),
            core_lists=ShellExpr("$argosy_cores"),
            logs=ShellExpr(f"{in_double_quotes(request.logs)}/$SLURM_JOB_ID") if request.logs else "",
            label=request.label,
            least_nodes=least,
            note_file=RANK_PATH if record else "",
            end_files=SUCCESS_FILES if record else "",
            python=facts.rank_python,
            warning=resume.signal if resume else "",
        )
    )
    given = facts.container.entry.variables
    rendezvous = (each for each in RENDEZVOUS if each.name not in {variable.name for variable in given})
    container = with_variables(facts.container, (*rendezvous, *given))
    refuse_too_long(container, started.command, host.environment)
    return SlurmFacts(
        script=_script_facts(facts, container, started),
        site=facts.site,
        request=request,
        options=facts.options,
        masks=masks,
        mpi=facts.mpi,
        site_settings=facts.site_settings,
        least_nodes=least,
        record=record,
        resume=resume,
    )


def _attach_script(facts: LaunchFacts) -> str:
    container = with_variables(facts.container, planned_threads(facts.container.entry.variables, facts.shape))
    script = _script_facts(facts, container, LauncherCommand(facts.request.command))
    check = node_check(container, "", facts.site_settings.node_binds)
    return render_attach(script, render_modules(facts.site.modules), check)


def refuse_too_long(container: ContainerPlan, command: tuple[Word, ...], environment: Mapping[str, str]) -> None:
    """Refuse a command line or an environment that is longer than the kernel or the runtime accepts.

    Parameters
    ----------
    environment
        The caller's variables, which the job inherits.
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
            hint=SHORTER_COMMAND,
        )


def _refuse_long_command(total: int, limit: int, who: str) -> None:
    if total + SPARE > limit:
        raise UsageError(
            "the command and its variables are too long",
            evidence=f"{total:,} bytes with the caller's variables; {who} {limit:,}, and Slurm needs {SPARE:,} of them",
            hint=SHORTER_COMMAND,
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
