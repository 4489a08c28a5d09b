"""Render the sbatch options of a job."""

from __future__ import annotations

from collections.abc import Iterator

from argosy.core.records import replace
from argosy.launch.script.parts import resume_directives
from argosy.launch.script.slurm_facts import SlurmFacts
from argosy.slurm.sbatch_options import join_dependencies, join_gres


def directives(facts: SlurmFacts) -> Iterator[str]:
    """Yield the sbatch options, with the shape first."""
    return join_dependencies(join_gres(_directives(facts)))


def _directives(facts: SlurmFacts) -> Iterator[str]:
    shape, slurm, options = facts.script.shape, facts.site.slurm, facts.options
    tasks = shape.ranks_per_node if facts.script.started.per_rank else 1
    yield f"--job-name={facts.script.name}"
    yield f"--nodes={f'{facts.least_nodes}-' if facts.least_nodes else ''}{shape.nodes}"
    if facts.least_nodes or facts.independent_ranks:
        yield "--no-kill"  # otherwise Slurm ends a job that loses a node
    if slurm.cpus_option:
        # If the profile does not contain the cores, a task per rank requests at least one core each.
        yield f"--ntasks-per-node={tasks if shape.cpus_per_rank else shape.ranks_per_node}"
    if slurm.cpus_option and shape.cpus_per_rank:
        yield f"--cpus-per-task={shape.cpus_per_rank if facts.script.started.per_rank else facts.cores_per_node}"
    yield from slurm.request_gpus(shape.gpus_per_node, facts.gpu_type)
    if facts.resume:
        yield from resume_directives(facts.resume)
        options = replace(options, signal="", requeue=False)
    elif options.requeue:
        yield "--open-mode=append"  # otherwise the second run would erase the output of the first
    asked = tuple(options.lines())
    yield from asked
    names = {option.partition("=")[0] for option in asked}
    yield from (option for option in facts.site_settings.sbatch if option.partition("=")[0] not in names)
    yield from facts.extra
