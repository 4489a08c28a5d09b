"""The cores that ranks of a Slurm job are bound to, by the site's map; pure."""

from __future__ import annotations

import re

from argosy.core.model import Choice, ChoiceKey, Host, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word
from argosy.jobs.launch_plan import Shape
from argosy.sites.binding import plan_masks, render_core_list, usable_cores
from argosy.sites.profile import Site
from argosy.sites.resolve import evident_choice


def bound_cores(shape: Shape, site: Site, launcher: str) -> tuple[str, ...]:
    """Return the cores that each local rank is bound to; the host's mpiexec binds as it likes."""
    by_mpiexec = launcher == "mpi" and site.launcher.mpiexec
    return () if by_mpiexec else tuple(map(render_core_list, choose_masks(shape, site)))


def plan_binding(shape: Shape, site: Site) -> tuple[Choice, ...]:
    """Say whether ranks are bound to cores, and why."""
    masks = choose_masks(shape, site)
    if masks:
        where = " ".join(map(render_core_list, masks))
        why = "those nearest to its GPU, on whole nodes"
        return (evident_choice(site, site.node, ChoiceKey.RANK_CORES, where, field="gpu_cpus", why=why),)
    if site.node.gpu_cpus and shape.gpus_per_node:
        why = f"the site's map is for {site.node.gpus} ranks with a GPU each, on a whole node, with its own cores"
        return (Choice(ChoiceKey.RANK_CORES, "Slurm's choice", why, f"site {site.name}"),)
    return ()


def binding_needs_whole_nodes(shape: Shape, site: Site) -> bool:
    """Return whether ranks are bound to cores at a site that lets jobs share a node.

    On a shared node a job may get other cores than those of the site's map.
    """
    return not site.slurm.whole_nodes and bool(choose_masks(shape, site))


def choose_masks(shape: Shape, site: Site) -> tuple[int, ...]:
    """Return the masks of a node's ranks where they are the map's own: a full node, as many cores as the map gives.

    Where it gives some GPUs more cores than others, a rank asks for the fewest, and its mask has what there is.
    """
    if not shape.gpus_per_node == shape.ranks_per_node == site.node.gpus > 0:
        return ()
    masks = plan_masks(site.node)
    fewest = min((mask.bit_count() for mask in masks), default=0)
    return masks if fewest == shape.cpus_per_rank else ()


def spare_cores(shape: Shape, site: Site) -> int:
    """Return how many cores of a node masked ranks do not ask for; 0 where they ask for all, and where no mask is.

    A step that asks for fewer than all gets some of Slurm's choice, and they may be others than those of the masks.
    """
    masked = choose_masks(shape, site)
    return len(usable_cores(site.node)) - shape.cpus_per_rank * shape.ranks_per_node if masked else 0


def without_core_map(site: Site, allocated: str) -> Site:
    """Return the site without its map of cores where an allocation (SLURM_JOB_CPUS_PER_NODE) has but part of a node."""
    given = [int(number) for number in re.findall(r"(?:^|,)(\d+)", allocated)]
    if not site.node.gpu_cpus or not given or min(given) >= len(usable_cores(site.node)):
        return site
    return replace(site, node=replace(site.node, gpu_cpus=()))


NAME = "OMP_NUM_THREADS"


def plan_threads(site: Site, host: Host, shape: Shape) -> tuple[Word, Choice]:
    """Return the value and its reason; a Slurm script that is submitted with other numbers computes it from those."""
    given = host.environment.get(NAME)
    if given:
        return given, Choice(NAME, given, "set by the caller", "environment")
    cores = shape.cpus_per_rank
    if not site.has_slurm:
        threads = str(cores or max(1, host.cpus // shape.ranks_per_node))
        return threads, Choice(NAME, threads, f"{host.cpus} usable CPUs / {shape.ranks_per_node} ranks", "machine")
    if not cores:
        why = "what Slurm gave on the node, shared by its ranks"
        return CORES_PER_RANK, Choice(NAME, "cores / ranks", why, f"site {site.name}")

    if choose_masks(shape, site):
        return str(cores), Choice(NAME, str(cores), "the cores of a rank", "default")
    return CORES_PER_RANK, Choice(NAME, str(cores), f"the cores of a rank, planned: {cores}", "default")


CORES_PER_RANK = ShellExpr("$argosy_cores_per_rank")
"""The cores of a rank, which a script counts from those that Slurm gave on the node."""


def planned_threads(variables: tuple[Variable, ...], shape: Shape) -> tuple[Variable, ...]:
    """Return the variables of a script that counts no cores: the number is the plan's, or Slurm's cores decide."""
    planned = (Variable(NAME, str(shape.cpus_per_rank)),) if shape.cpus_per_rank else ()
    counted = any(each.name == NAME and isinstance(each.value, ShellExpr) for each in variables)
    return (*(each for each in variables if each.name != NAME), *planned) if counted else variables
