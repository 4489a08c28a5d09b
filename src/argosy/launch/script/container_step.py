"""Render the steps of containers that srun itself starts (pyxis, the engine of CSCS), and the attach script; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from argosy.core.shell import ShellExpr, Word, collect_helpers, quote, render_helpers
from argosy.launch.script.facts import ScriptFacts
from argosy.launch.script.head import render_environment
from argosy.launch.script.helpers import CHECK_CONTAINER, continued, render_call, render_script_functions
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import StepRuntime, assignment


def inside_words(device: Word) -> tuple[Word, ...]:
    """Return the command that checks a node inside a container that srun starts, before the command of the rank."""
    return ("/bin/sh", "-c", CHECK_CONTAINER, CHECK_CONTAINER.name, device)


def step_of(container: ContainerPlan) -> StepRuntime | None:
    """Return the runtime if srun starts its containers, else None."""
    return container.runtime if isinstance(container.runtime, StepRuntime) else None


def has_document(container: ContainerPlan) -> bool:
    """Return whether srun reads the container's description from a file."""
    step = step_of(container)
    return step is not None and bool(step.document(container.entry))


def render_document(container: ContainerPlan) -> Iterator[str]:
    """Render the lines that write the file with image, mounts and variables; the job removes it at its end."""
    step = step_of(container)
    lines = step.document(container.entry) if step else ()
    if not lines:
        return
    yield "# The environment definition file of this job, in the folder where srun looks for such files."
    yield "write_edf" + "".join(f" \\\n        {quote(line)}" for line in lines)


def step_prefix(container: ContainerPlan) -> tuple[str, ...]:
    """Return the command that sets variables of the container for srun only: exported, they could change the script."""
    step = step_of(container)
    variables = step.variables(container.entry) if step else ()
    return ("env", *map(quote, map(assignment, variables))) if variables else ()


def step_options(container: ContainerPlan) -> tuple[str, ...]:
    """Return the options of srun that start the container."""
    step = step_of(container)
    return tuple(map(quote, step.srun_options(container.entry))) if step else ()


ATTACH = "attach.sh"
"""Name of the script in the record of a job."""

OF_OUTER_STEP = "SLURM_CPU_BIND SLURM_CPUS_PER_TASK SLURM_NTASKS_PER_NODE SLURM_DISTRIBUTION"
"""Variables that srun of the outer step sets, and srun of the inner step would read as options."""


def render_attach(facts: ScriptFacts, modules: Iterable[str], check: tuple[Word, ...]) -> str:
    """Render the script that runs its arguments in the container of a job.

    Parameters
    ----------
    modules
        Lines that load the modules of the site, for example for the runtime.
    check
        Command that checks the node and starts the container.
    """
    modules = tuple(modules)
    checked = () if step_of(facts.container) else check
    helpers, words = collect_helpers((*checked, *facts.container.argv((ShellExpr("$@"),))))
    start = render_call(words, facts.container.runtime.program)
    lines = [
        "#!/bin/bash",
        "# Run a command in the container of a job: srun --overlap --jobid=JOB bash THIS_FILE COMMAND…",
        "# shellcheck disable=SC1091,SC2016,SC2086,SC2317  # quoted texts are for other shells; traps call functions",
        "set -eu",
        *render_script_functions("\n".join((*modules, "write_edf" * has_document(facts.container)))),
        *render_helpers(helpers),
        *render_environment(facts),
        *modules,
        *(_in_step(facts, start) if step_of(facts.container) else ("exec " + start.lstrip(),)),
    ]
    return "\n".join(lines) + "\n"


def _in_step(facts: ScriptFacts, start: str) -> Iterator[str]:
    """Render the step that starts the container on this node with srun, which alone can start it."""
    yield f"unset {OF_OUTER_STEP}"
    yield "terminal=; [ ! -t 0 ] || terminal=--pty"
    yield from render_document(facts.container)
    step = 'srun --overlap --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" --cpu-bind=none --mpi=none --export=ALL'
    pieces = (*step_prefix(facts.container), step, "$terminal", *step_options(facts.container))
    command = f"{continued(pieces)} \\\n{start}"
    if not has_document(facts.container):
        yield f"exec {command}"
        return
    yield command
