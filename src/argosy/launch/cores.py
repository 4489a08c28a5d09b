"""Choose the cores and threads of the ranks of a job; pure."""

from __future__ import annotations

import re

from argosy.core.model import Choice, ChoiceKey, Host, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, Word
from argosy.jobs.launch_plan import Shape
from argosy.launch.launchers.launcher import MPIEXEC, find_launcher
from argosy.sites.binding import plan_masks, render_core_list, usable_cores
from argosy.sites.job_settings import evident_choice
from argosy.sites.profile import Site


def bound_cores(shape: Shape, site: Site, mpi: str) -> tuple[str, ...]:
    """Return the cores that each local rank is bound to; empty if the host's mpiexec binds the ranks."""
    return () if mpi == MPIEXEC else tuple(map(render_core_list, choose_masks(shape, site)))


def plan_binding(shape: Shape, site: Site, launcher: str) -> tuple[Choice, ...]:
    """Return the choice that tells to which cores ranks are bound, and why."""
    masks = choose_masks(shape, site)
    if masks:
        where = " ".join(map(render_core_list, masks))
        why = "nearest to the rank's GPU, on whole nodes"
        return (evident_choice(site, site.node, ChoiceKey.RANK_CORES, where, field="gpu_cpus", why=why),)
    if not shape.gpus_per_node or shape.ranks_per_node == 1:
        return ()
    why = f"the site's map is for a whole node with {site.node.gpus} ranks, one per GPU, and its cores"
    if not site.node.gpu_cpus:
        why = "the profile has no gpu_cpus; the cores near each GPU are unknown"
    return (Choice(ChoiceKey.RANK_CORES, find_launcher(launcher).unbound, why, f"site {site.name}"),)


def binding_needs_whole_nodes(shape: Shape, site: Site) -> bool:
    """Return whether ranks are bound to cores at a site that lets jobs share a node.

    On a shared node, a job may get other cores than those in the site's map.
    """
    return not site.slurm.whole_nodes and bool(choose_masks(shape, site))


def choose_masks(shape: Shape, site: Site) -> tuple[int, ...]:
    """Return the masks of the ranks of a full node, if they have as many cores as the site's map gives; else none.

    If the map gives some GPUs more cores than others, a rank requests the smallest number, and its mask has all cores.
    """
    if not shape.gpus_per_node == shape.ranks_per_node == site.node.gpus > 0:
        return ()
    masks = plan_masks(site.node)
    fewest = min((mask.bit_count() for mask in masks), default=0)
    return masks if fewest == shape.cpus_per_rank else ()


def spare_cores(shape: Shape, site: Site) -> int:
    """Return how many cores of a node the masked ranks do not request; 0 without masks.

    A step that requests fewer than all cores gets cores that Slurm chooses, which may not be those of the masks.
    """
    masked = choose_masks(shape, site)
    return len(usable_cores(site.node)) - shape.cpus_per_rank * shape.ranks_per_node if masked else 0


def fewest_cores(allocated: str) -> int:
    """Return the fewest cores of a node in SLURM_JOB_CPUS_PER_NODE, for example of ``72(x2),36``; 0 if it is empty."""
    return min((int(number) for number in re.findall(r"(?:^|,)(\d{1,9})(?!\d)", allocated)), default=0)


def without_core_map(site: Site, allocated: str) -> Site:
    """Return the site without its map of cores if an allocation (SLURM_JOB_CPUS_PER_NODE) has only a part of a node."""
    given = fewest_cores(allocated)
    if not site.node.gpu_cpus or not given or given >= len(usable_cores(site.node)):
        return site
    return replace(site, node=replace(site.node, gpu_cpus=()))


THREADS = "OMP_NUM_THREADS"


def plan_local_threads(host: Host, shape: Shape) -> tuple[Word, Choice]:
    """Return the number of threads of a rank on this machine, with the reason."""
    threads = str(shape.cpus_per_rank or max(1, host.cpus // shape.ranks_per_node))
    return threads, Choice(THREADS, threads, f"{host.cpus} usable CPUs / {shape.ranks_per_node} ranks", "machine")


def plan_job_threads(site: Site, shape: Shape) -> tuple[Word, Choice]:
    """Return the number of threads of a rank in a job, with the reason.

    The job script computes it, because the job may be submitted with other numbers than planned.
    """
    cores = shape.cpus_per_rank
    if not cores:
        why = "the cores that Slurm gives on the node, divided by its ranks"
        return CORES_PER_RANK, Choice(THREADS, "cores / ranks", why, f"site {site.name}")
    if choose_masks(shape, site):
        return str(cores), Choice(THREADS, str(cores), "one thread per core", "default")
    return CORES_PER_RANK, Choice(THREADS, str(cores), "one thread per core of the rank", "default")


CORES_PER_RANK = ShellExpr("$argosy_cores_per_rank")
"""The cores of a rank, which a job script computes from those that Slurm gives on the node."""


def planned_threads(variables: tuple[Variable, ...], shape: Shape) -> tuple[Variable, ...]:
    """Return the variables for a script that does not count cores: the planned number of threads, or none."""
    planned = (Variable(THREADS, str(shape.cpus_per_rank)),) if shape.cpus_per_rank else ()
    counted = any(each.name == THREADS and isinstance(each.value, ShellExpr) for each in variables)
    return (*(each for each in variables if each.name != THREADS), *planned) if counted else variables
