"""Choose the shape of a launch: nodes, ranks, GPUs, and the cores and threads of ranks; each with its reason; pure."""

from __future__ import annotations

import re

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Host, Mark, Variable
from argosy.core.records import replace
from argosy.core.render import count
from argosy.core.shell import ShellExpr, Word
from argosy.jobs.launch_plan import SHARE, JobShape
from argosy.launch.launchers.launcher import MPIEXEC, find_launcher
from argosy.launch.model import ResourceRequest
from argosy.recipes.option_row import option_name
from argosy.sites.binding import plan_masks, render_core_list, usable_cores
from argosy.sites.job_settings import evident_choice
from argosy.sites.profile import Site

MOST_THREADS, FEWER_THREADS = 8, {"x86_64": 2, "aarch64": 2}
"""Most hardware threads of a core: eight on POWER, which is also the limit for an unknown architecture."""


def choose_job_shape(
    resources: ResourceRequest, site: Site, why_gpus: str = "", *, share: str = ""
) -> tuple[JobShape, tuple[Choice, ...]]:
    """Choose the shape of a job: the requested numbers, else a rank per GPU, else one rank per node.

    Parameters
    ----------
    why_gpus
        Why the job has GPUs, if the user gave no number.
    share
        Why ranks without GPUs share the cores that they find; empty if they get a core each, Slurm's default.

    Raises
    ------
    UsageError
        If the numbers contradict each other, cannot be divided by the nodes, or are negative.
    """
    refuse_impossible_numbers(resources)
    nodes = resources.nodes or 1
    gpus = _gpus_per_node(resources, site, nodes)
    ranks, why = _ranks_per_node(resources, site, nodes, gpus)
    share = share or (BY_WHOLE_NODES if site.slurm.whole_nodes else "")
    cpus, why_cpus = _cpus_per_rank(resources, site, ranks, gpus, share)
    note = _too_many_cores(site, ranks, cpus) if resources.cpus_per_rank or resources.ranks else ""
    is_idle = nodes > 1 and not gpus and ranks * cpus < site.node.cores
    why_nodes = "requested" if resources.nodes else "no other number was given"
    rows = (
        Choice(ChoiceKey.NODES, str(nodes), why_nodes, _source(resources.nodes)),
        _gpus_choice(gpus, why_gpus, site),
        Choice(ChoiceKey.RANKS_PER_NODE, str(ranks), why, _source(resources.ranks)),
        _cores_choice(cpus, (why_cpus, note), resources, site, idle=is_idle),
    )
    return JobShape(nodes, ranks, gpus, cpus), rows


def refuse_impossible_numbers(resources: ResourceRequest) -> None:
    """Refuse numbers of a job that are negative, contradict each other, or cannot be divided by the nodes."""
    _refuse_negative(resources)
    nodes = resources.nodes or 1
    if resources.gpus and resources.gpus_per_node and resources.gpus != resources.gpus_per_node * nodes:
        raise UsageError(
            "--gpus contradicts --gpus-per-node",
            evidence=f"--gpus {resources.gpus}, --gpus-per-node {resources.gpus_per_node}, {count(nodes, 'node')}",
            hint="use one of the two options",
        )
    for number, what in ((resources.gpus, "GPUs"), (resources.ranks, "ranks")):
        if number % nodes:
            raise UsageError(
                f"cannot distribute {number} {what} evenly over {nodes} nodes",
                evidence=f"{number} divided by {nodes} leaves a remainder of {number % nodes}",
                hint="use a multiple of the number of nodes",
            )


def _refuse_negative(resources: ResourceRequest) -> None:
    for name in ("nodes", "ranks", "gpus", "gpus_per_node", "cpus_per_rank"):
        if getattr(resources, name) < 0:
            raise UsageError(
                f"{option_name(name)} cannot be negative",
                evidence=f"{option_name(name)} {getattr(resources, name)}",
                hint=f"use a positive number, or remove {option_name(name)}",
            )


def _gpus_choice(gpus: int, why: str, site: Site) -> Choice:
    if why and gpus:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), why, "default")
    if gpus or why:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), why or "requested", "option")
    there = site.node.gpus
    why = "no option requests GPUs" + (f"; for all GPUs of a node: --gpus-per-node {there}" if there else "")
    return Choice(ChoiceKey.GPUS_PER_NODE, "0", why, "default", mark=Mark.DOUBTFUL if there else Mark.NONE)


def _cores_choice(cpus: int, reasons: tuple[str, str], resources: ResourceRequest, site: Site, *, idle: bool) -> Choice:
    """Return the choice of cores; warn if several nodes without GPUs compute on a core each by default.

    Parameters
    ----------
    reasons
        Why this number, and the note of `_too_many_cores`, a doubt about a number that the user gave.
    """
    why, note = reasons
    is_counted = why in {BY_SCRIPTS, BY_WHOLE_NODES, BY_ALLOCATION}
    source = f"site {site.name}" if is_counted else _source(resources.cpus_per_rank)
    is_one_by_default = idle and cpus == 1 and not resources.cpus_per_rank
    is_doubtful = is_one_by_default or (note and resources.cpus_per_rank)
    why += f" of the {site.node.cores} cores of a node" if is_one_by_default else ""
    mark = Mark.DOUBTFUL if is_doubtful else Mark.NONE
    return Choice(ChoiceKey.CORES_PER_RANK, str(cpus) if cpus else SHARE, why + note, source, mark=mark)


def _too_many_cores(site: Site, ranks: int, cpus: int) -> str:
    """Refuse more cores than a node has; return a note if its hardware threads are enough."""
    cores, asked = site.node.cores, ranks * cpus
    reserved = cores - len(usable_cores(site.node))
    if not cores or asked <= cores - reserved:
        return ""
    if asked <= cores:
        return (
            f"; {asked} cores include {asked - cores + reserved} of the {reserved} reserved ones, which jobs cannot use"
        )
    threads = FEWER_THREADS.get(site.node.architecture, MOST_THREADS)
    if asked > cores * threads:
        raise UsageError(
            f"a node of {site.name} has {cores} cores, on which {count(ranks, 'rank')} with {count(cpus, 'core')} each "
            "do not fit",
            evidence=f"they need {asked} cores; the node has at most {cores * threads} hardware threads",
            hint="use fewer cores with --cpus-per-rank, fewer ranks, or more nodes",
            key="node.cores",
        )
    return f"; {asked} on a node are more than its {cores} cores, which fits only if Slurm counts hardware threads"


def _source(number: int) -> str:
    return "option" if number else "default"


def _gpus_per_node(resources: ResourceRequest, site: Site, nodes: int) -> int:
    gpus = resources.gpus_per_node or resources.gpus // nodes
    if site.node.gpus and gpus > site.node.gpus:
        raise UsageError(
            f"a node of {site.name} has {site.node.gpus} GPUs, but {gpus} per node were requested",
            hint=f"use {_larger_partition(site, gpus)}more nodes: --nodes {-(-gpus * nodes // site.node.gpus)} "
            f"--gpus-per-node {site.node.gpus}{_same_ranks_per_gpu(resources, site, nodes, gpus)}",
            key="node.gpus",
        )
    return gpus


def _same_ranks_per_gpu(resources: ResourceRequest, site: Site, nodes: int, gpus: int) -> str:
    """Return the option that keeps a requested rank per GPU on nodes with fewer GPUs; empty for other numbers."""
    devices = site.node.devices_per_gpu
    return f" --ranks-per-node {site.node.gpus * devices}" if resources.ranks == gpus * devices * nodes else ""


def _larger_partition(site: Site, gpus: int) -> str:
    """Return the option for the first partition whose nodes have this many GPUs, for a hint; empty without one."""
    return next((f"--partition {each.name}, or " for each in site.partitions if (each.gpus or 0) >= gpus), "")


def _ranks_per_node(resources: ResourceRequest, site: Site, nodes: int, gpus: int) -> tuple[int, str]:
    if resources.ranks:
        return resources.ranks // nodes, f"{count(resources.ranks, 'rank')} requested on {count(nodes, 'node')}"
    devices = site.node.devices_per_gpu
    if gpus and devices > 1:
        return gpus * devices, f"{devices} per GPU: each GPU has {devices} root devices"
    return (gpus, "one per GPU") if gpus else (1, "one per node: the job has no GPUs, and --ranks is not given")


BY_SCRIPTS = "counted when the job starts: jobs of this site do not pass a number of cores to Slurm"
BY_WHOLE_NODES = "counted when the job starts: it gets whole nodes, whose cores the ranks share"
BY_ALLOCATION = "the ranks share the cores of the allocation"


def _cpus_per_rank(resources: ResourceRequest, site: Site, ranks: int, gpus: int, share: str) -> tuple[int, str]:
    if resources.cpus_per_rank:
        return resources.cpus_per_rank, "requested"
    masks = plan_masks(site.node) if gpus == ranks == site.node.gpus else ()
    if masks:
        return min(mask.bit_count() for mask in masks), "the cores nearest to each GPU, by the site's map"
    if not site.slurm.cpus_option or (share and not gpus):
        return 0, share if site.slurm.cpus_option else BY_SCRIPTS
    if gpus and site.slurm.cpus_per_gpu:
        return max(1, site.slurm.cpus_per_gpu * gpus // ranks), f"the site's {site.slurm.cpus_per_gpu} cores per GPU"
    usable = len(usable_cores(site.node))
    if gpus and site.node.gpus and usable >= site.node.gpus:
        return max(1, usable // site.node.gpus * gpus // ranks), f"an equal share of a node's {usable} cores"
    return _unknown_cores(gpus)


def _unknown_cores(gpus: int) -> tuple[int, str]:
    """Leave the cores of a job with GPUs to Slurm, which knows them (DefCpuPerGPU, or whole nodes)."""
    if gpus:
        return 0, "the profile has no number of cores per GPU: Slurm decides; --cpus-per-rank requests more"
    return 1, "Slurm's default; --cpus-per-rank requests more"


def choose_local_shape(resources: ResourceRequest, host: Host) -> tuple[JobShape, tuple[Choice, ...]]:
    """Choose the shape on this machine: the requested ranks, else a rank per GPU, else one rank.

    Raises
    ------
    UsageError
        If more GPUs than this machine has were requested, or a number is negative.
    """
    _refuse_negative(resources)
    gpus = resources.gpus_per_node or resources.gpus
    if gpus > len(host.gpus):
        raise UsageError(
            f"not enough GPUs: {gpus} requested, {len(host.gpus)} on this machine",
            hint="request fewer, or launch on a cluster with --site",
        )
    cpus = resources.cpus_per_rank
    if resources.ranks:
        return JobShape(1, resources.ranks, gpus, cpus), (
            Choice(ChoiceKey.RANKS, str(resources.ranks), "requested", "option"),
        )
    ranks = gpus or len(host.gpus)
    if ranks:
        return JobShape(1, ranks, gpus, cpus), (Choice(ChoiceKey.RANKS, str(ranks), "one per GPU", "machine"),)
    why = "no GPU is visible here, and no number was given"
    return JobShape(1, 1, 0, cpus), (Choice(ChoiceKey.RANKS, "1", why, "machine"),)


def bound_cores(shape: JobShape, site: Site, mpi: str) -> tuple[str, ...]:
    """Return the cores that each local rank is bound to; empty if the host's mpiexec binds the ranks."""
    return () if mpi == MPIEXEC else tuple(map(render_core_list, choose_masks(shape, site)))


def plan_binding(shape: JobShape, site: Site, launcher: str, why_unbound: str = "") -> tuple[Choice, ...]:
    """Return the choice that tells to which cores ranks are bound, and why.

    Parameters
    ----------
    why_unbound
        Why the site is without the map of its profile; empty if nothing removed the map.
    """
    masks = choose_masks(shape, site)
    if masks:
        where = " ".join(map(render_core_list, masks))
        why = "nearest to the rank's GPU, on whole nodes"
        return (evident_choice(site, site.node, ChoiceKey.RANK_CORES, where, field="gpu_cpus", why=why),)
    if not shape.gpus_per_node or shape.ranks_per_node == 1:
        return ()
    why = f"the site's map is for a whole node with {site.node.gpus} ranks, one per GPU, and its cores"
    if why_unbound:
        why = why_unbound
    elif not site.node.gpu_cpus:
        why = "the profile has no gpu_cpus; the cores near each GPU are unknown"
    return (Choice(ChoiceKey.RANK_CORES, find_launcher(launcher).unbound, why, f"site {site.name}"),)


def binding_needs_whole_nodes(shape: JobShape, site: Site) -> bool:
    """Return whether ranks are bound to cores at a site that lets jobs share a node.

    On a shared node, a job may get other cores than those in the site's map.
    """
    return not site.slurm.whole_nodes and bool(choose_masks(shape, site))


def choose_masks(shape: JobShape, site: Site) -> tuple[int, ...]:
    """Return the masks of the ranks of a full node, if they have as many cores as the site's map gives; else none.

    If the map gives some GPUs more cores than others, a rank requests the smallest number, and its mask has all cores.
    """
    if not shape.gpus_per_node == shape.ranks_per_node == site.node.gpus > 0:
        return ()
    masks = plan_masks(site.node)
    fewest = min((mask.bit_count() for mask in masks), default=0)
    return masks if fewest == shape.cpus_per_rank else ()


def spare_cores(shape: JobShape, site: Site) -> int:
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


def plan_local_threads(host: Host, shape: JobShape) -> tuple[Word, Choice]:
    """Return the number of threads of a rank on this machine, with the reason."""
    threads = str(shape.cpus_per_rank or max(1, host.cpus // shape.ranks_per_node))
    return threads, Choice(THREADS, threads, f"{host.cpus} usable CPUs / {shape.ranks_per_node} ranks", "machine")


def plan_job_threads(site: Site, shape: JobShape) -> tuple[Word, Choice]:
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


def planned_threads(variables: tuple[Variable, ...], shape: JobShape) -> tuple[Variable, ...]:
    """Return the variables for a script that does not count cores: the planned number of threads, or none."""
    planned = (Variable(THREADS, str(shape.cpus_per_rank)),) if shape.cpus_per_rank else ()
    counted = any(each.name == THREADS and isinstance(each.value, ShellExpr) for each in variables)
    return (*(each for each in variables if each.name != THREADS), *planned) if counted else variables
