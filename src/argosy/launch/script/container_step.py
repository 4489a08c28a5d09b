"""Containers that srun itself starts (pyxis, CSCS's engine): what the script says in a runtime's place; pure."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.shell import Word, quote
from argosy.launch.script.helpers import CHECK_CONTAINER
from argosy.runtimes.container_plan import ContainerPlan
from argosy.runtimes.runtime import StepRuntime, assignment


def inside_words(device: Word, folders: Word) -> tuple[Word, ...]:
    """Give the words that check a node, for containers that srun itself starts: they run inside, before the command."""
    return ("/bin/sh", "-c", CHECK_CONTAINER, CHECK_CONTAINER.name, device, folders)


def step_of(container: ContainerPlan) -> StepRuntime | None:
    """Give the runtime where srun starts its containers."""
    runtime = container.runtime
    return runtime if runtime.traits.by_srun and isinstance(runtime, StepRuntime) else None


def has_document(container: ContainerPlan) -> bool:
    """Tell whether srun reads the container's description from a file."""
    step = step_of(container)
    return step is not None and bool(step.document(container.entry))


def render_document(container: ContainerPlan) -> Iterator[str]:
    """Write the file that names image, mounts and variables; it goes away with the job."""
    step = step_of(container)
    lines = step.document(container.entry) if step else ()
    if not lines:
        return
    yield "# The environment definition file of this job, in the folder where srun looks for such files."
    yield "write_edf" + "".join(f" \\\n        {quote(line)}" for line in lines)


def step_prefix(container: ContainerPlan) -> tuple[str, ...]:
    """Set variables of the container for ``srun`` alone: exported by the script, they could replace one of its own."""
    step = step_of(container)
    variables = step.variables(container.entry) if step else ()
    return ("env", *map(quote, map(assignment, variables))) if variables else ()


def step_options(container: ContainerPlan) -> tuple[str, ...]:
    """Give the options of srun that start the container."""
    step = step_of(container)
    return tuple(map(quote, step.srun_options(container.entry))) if step else ()
