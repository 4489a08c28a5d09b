"""Choose where a job runs, and its shape there: mode, partition, nodes, ranks, GPUs and cores; pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import NO_VALUES, Choice, ChoiceKey, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.core.render import count
from argosy.jobs.launch_plan import SHARE, Shape
from argosy.launch.cores import binding_needs_whole_nodes, without_core_map
from argosy.launch.launchers.launcher import NEED_SLURM, ONE_PER_NODE, refuse_without_slurm
from argosy.launch.model import LaunchRequest, Wanted
from argosy.launch.option_checks import list_unqueued
from argosy.recipes.option_row import option_name
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.binding import parse_ranges, plan_masks
from argosy.sites.job_settings import at_gpu_type, at_partition, choose_mode, evident_choice
from argosy.sites.load import sites_here
from argosy.sites.partitions import Demand, choose_partition, is_whole
from argosy.sites.profile import Partition, Site
from argosy.slurm.option_checks import parse_megabytes, refuse_invalid_options
from argosy.slurm.text import JobOptions, choose_defaults


class LaunchTarget(msgspec.Struct, frozen=True):
    """The site in the mode and partition of a job, and the job's shape there.

    Attributes
    ----------
    site
        The profile with the settings of the mode and the partition applied.
    is_job
        Whether the launch is a job of Slurm; else it runs on this machine.
    partition
        Its name; empty if Slurm decides.
    whole_nodes
        Whether the job gets whole nodes, as far as the profile shows.
    exclusive
        Whether the job must request whole nodes (``--exclusive``), because its ranks are bound to cores.
    """

    site: Site
    shape: Shape
    is_job: bool
    mode: str = ""
    partition: str = ""
    whole_nodes: bool = False
    exclusive: bool = False
    choices: tuple[Choice, ...] = ()


class LaunchContext(msgspec.Struct, frozen=True):
    """Everything that a launch is planned from; `plan_launch` needs nothing else.

    Attributes
    ----------
    request
        The user's request, completed by the project file, the allocation and the site.
    host
        The machine that the job runs on, as far as it is known here.
    versions
        Known versions of torch, ROCm, CUDA and NCCL in the image.
    record
        Folder of the job's record; empty for a script without a record.
    """

    request: LaunchRequest
    target: LaunchTarget
    container: ContainerPlan
    host: Host
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    record: str = ""


def choose_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    """Choose the mode and partition of a launch, and its shape there.

    Raises
    ------
    UsageError
        If an option of the job is not valid, two options contradict each other, or the shape does not fit.
    SiteError
        If the site does not have this mode, or no partition allows the job.
    """
    site, mode = choose_mode(site, request.mode, request.image)
    rows = (evident_choice(site, site.modes[mode], ChoiceKey.MODE, mode),) if mode else ()
    target = _choose_job_target(request, site, host) if site.has_slurm else _choose_local_target(request, site, host)
    return replace(target, mode=mode, choices=(*rows, *target.choices))


def _choose_local_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    if request.launcher in NEED_SLURM:
        refuse_without_slurm(request.launcher, _own_cluster(host))
    here = replace(host, gpus=()) if request.container.gpu is GpuMode.NONE else host
    shape, why_shape = _choose_local_shape(_wanted(request), here)
    return LaunchTarget(site, shape, is_job=False, choices=(*list_unqueued(request, site), *why_shape))


def _choose_job_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    options = request.options if request.in_allocation else with_user_defaults(request.options, host)
    refuse_invalid_options(options, request.extra)
    wanted, nodes = request.wanted, request.wanted.nodes or 1
    gpus = wanted.gpus_per_node or wanted.gpus // max(1, nodes)
    demand = Demand(nodes, gpus, options.time, exclusive=options.exclusive)
    partition, why = choose_partition(site, options.partition, demand)
    whole = is_whole(site, partition, demand)
    there = at_gpu_type(_site_at_partition(site, partition, nodes, gpus), request.gpu_type)
    if request.in_allocation:
        there = without_core_map(there, host.environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    shape, why_shape = choose_job_shape(_wanted(request), there, request.why_gpus)
    if not request.no_check:
        refuse_memory(options.mem, there)
        _refuse_reserved_cores(shape, there)
    exclusive = not (request.options.exclusive or request.in_allocation) and binding_needs_whole_nodes(shape, there)
    if exclusive:
        reason = "the site's map of cores is valid on whole nodes, and jobs of this partition may share nodes"
        why = (*why, Choice("--exclusive", "yes", reason, f"site {there.name}"))
    return LaunchTarget(
        site=there,
        shape=shape,
        is_job=True,
        partition=partition.name if partition else options.partition,
        whole_nodes=whole or exclusive,
        exclusive=exclusive,
        choices=(*why, *why_shape, *_idle_gpus(request, shape, there)),
    )


def _idle_gpus(request: LaunchRequest, shape: Shape, site: Site) -> tuple[Choice, ...]:
    """Warn about ranks for another machine, for example of a project file, in a job that gets all GPUs by default."""
    ranks, gpus = request.wanted.ranks, shape.gpus_per_node
    if not (ranks and request.why_gpus and shape.ranks_per_node < gpus) or request.launcher in ONE_PER_NODE:
        return ()
    each = gpus * max(1, site.node.devices_per_gpu)
    why = (
        f"{count(shape.ranks_per_node, 'rank')} on a node with {count(gpus, 'GPU')}; "
        f"for a rank per GPU: --ranks {each * shape.nodes}"
    )
    if {"ranks", "ranks_per_node"} & set(request.given):
        why = f"{why}, or remove the number of ranks from argosy.toml"
    return (Choice("--ranks", str(ranks), why, "option", mark=Mark.DOUBTFUL),)


def with_user_defaults(options: JobOptions, host: Host) -> JobOptions:
    """Fill the options that were not given from the user's SBATCH_* variables."""
    return replace(options, **choose_defaults(options, host.environment))  # type: ignore[arg-type]  # text fields only


def _wanted(request: LaunchRequest) -> Wanted:
    return one_rank_per_node(request.wanted) if request.launcher in ONE_PER_NODE else request.wanted


def _site_at_partition(site: Site, partition: Partition | None, nodes: int, gpus: int) -> Site:
    there = at_partition(site, partition)
    all_gpus = there.node.gpus
    if there.slurm.several_nodes_whole and nodes > 1 and gpus not in {0, all_gpus}:
        raise SiteError(
            f"{there.name} accepts jobs on several nodes only if they use all {all_gpus} GPUs of each node",
            evidence=f"{nodes} nodes with {gpus} GPUs each were requested",
            hint=f"use --gpus-per-node {all_gpus}, or one node",
            key="slurm.several_nodes_whole",
        )
    return there


THREADS, FEWER_THREADS = 8, MappingProxyType({"x86_64": 2, "aarch64": 2})
"""Most hardware threads of a core: eight on POWER, which is also the limit for an unknown architecture."""


def one_rank_per_node(wanted: Wanted) -> Wanted:
    """Return the same shape with one rank on each node.

    Raises
    ------
    UsageError
        If another number of ranks was requested.
    """
    nodes = wanted.nodes or 1
    if wanted.ranks not in {0, nodes}:
        raise UsageError(
            "the ray launcher starts one rank on each node, and distributes the node's cores and GPUs itself",
            evidence=f"--ranks {wanted.ranks} on {count(nodes, 'node')}",
            hint="remove --ranks; --cpus-per-rank sets the cores that Ray gets on each node",
        )
    return replace(wanted, ranks=nodes)


def choose_job_shape(wanted: Wanted, site: Site, why_gpus: str = "") -> tuple[Shape, tuple[Choice, ...]]:
    """Choose the shape of a job: the requested numbers, else a rank per GPU, else one rank per node.

    Parameters
    ----------
    why_gpus
        Why the job has GPUs, if the user gave no number.

    Raises
    ------
    UsageError
        If the numbers contradict each other, cannot be divided by the nodes, or are negative.
    """
    _refuse_negative(wanted)
    nodes = wanted.nodes or 1
    gpus = _gpus_per_node(wanted, site, nodes)
    ranks, why = _ranks_per_node(wanted, site, nodes, gpus)
    cpus, why_cpus = _cpus_per_rank(wanted, site, ranks, gpus)
    why_cpus += _too_many_cores(site, ranks, cpus) if wanted.cpus_per_rank or wanted.ranks else ""
    why_nodes = "requested" if wanted.nodes else "no other number was given"
    rows = (
        Choice(ChoiceKey.NODES, str(nodes), why_nodes, _source(wanted.nodes)),
        _gpus_choice(gpus, why_gpus, site),
        Choice(ChoiceKey.RANKS_PER_NODE, str(ranks), why, _source(wanted.ranks)),
        _cores_choice(cpus, why_cpus, wanted, site),
    )
    return Shape(nodes, ranks, gpus, cpus), rows


def _refuse_negative(wanted: Wanted) -> None:
    for name in ("nodes", "ranks", "gpus", "gpus_per_node", "cpus_per_rank"):
        if getattr(wanted, name) < 0:
            raise UsageError(
                f"{option_name(name)} cannot be negative",
                evidence=f"{option_name(name)} {getattr(wanted, name)}",
                hint=f"use a positive number, or remove {option_name(name)}",
            )


def _gpus_choice(gpus: int, why: str, site: Site) -> Choice:
    if why and gpus:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), why, "default")
    if gpus or why:
        return Choice(ChoiceKey.GPUS_PER_NODE, str(gpus), why or "requested", "option")
    there = site.node.gpus
    why = "no GPU was requested" + (f"; a node has {there}: --gpus-per-node {there}" if there else "")
    return Choice(ChoiceKey.GPUS_PER_NODE, "0", why, "default", mark=Mark.DOUBTFUL if there else Mark.NONE)


def _cores_choice(cpus: int, why: str, wanted: Wanted, site: Site) -> Choice:
    source = _source(wanted.cpus_per_rank) if cpus or site.slurm.cpus_option else f"site {site.name}"
    mark = Mark.DOUBTFUL if why.startswith("requested; ") else Mark.NONE
    return Choice(ChoiceKey.CORES_PER_RANK, str(cpus) if cpus else SHARE, why, source, mark=mark)


def _too_many_cores(site: Site, ranks: int, cpus: int) -> str:
    """Refuse more cores than a node has; return a note if its hardware threads are enough."""
    cores, asked = site.node.cores, ranks * cpus
    reserved = len(parse_ranges(site.node.reserved, "node.reserved"))
    if not cores or asked <= cores - reserved:
        return ""
    if asked <= cores:
        return (
            f"; {asked} cores include {asked - cores + reserved} of the {reserved} reserved ones, which jobs cannot use"
        )
    threads = FEWER_THREADS.get(site.node.arch, THREADS)
    if asked > cores * threads:
        raise UsageError(
            f"a node of {site.name} has {cores} cores, on which {count(ranks, 'rank')} with {count(cpus, 'core')} each "
            "do not fit",
            evidence=f"they need {asked} cores; the node has at most {cores * threads} hardware threads",
            hint="use fewer cores with --cpus-per-rank, fewer ranks, or more nodes",
            key="node.cores",
        )
    return f"; {asked} on a node are more than its {cores} cores, which fits only if Slurm counts hardware threads"


def _refuse_reserved_cores(shape: Shape, site: Site) -> None:
    """Refuse ranks that need the cores which the site keeps from jobs: Slurm rejects such a job.

    Raises
    ------
    UsageError
        If the profile contains the reserved cores of a node, and the ranks need more than the others.
    """
    cores, reserved = site.node.cores, len(parse_ranges(site.node.reserved, "node.reserved"))
    ranks, asked = shape.ranks_per_node, shape.ranks_per_node * shape.cpus_per_rank
    usable = cores - reserved
    if not (cores and reserved) or asked <= usable:
        return
    fewer = f"use --cpus-per-rank {usable // ranks}" if ranks <= usable else f"use at most {usable} ranks on a node"
    raise UsageError(
        f"jobs on a node of {site.name} can use {usable} cores, but {asked} were requested",
        evidence=f"{count(ranks, 'rank')} with {count(shape.cpus_per_rank, 'core')} each; "
        f"{reserved} of the {cores} cores are reserved",
        hint=f"{fewer}; --no-check plans the job anyway",
        key="node.reserved",
    )


def refuse_memory(asked: str, site: Site) -> None:
    """Refuse more memory than jobs get on a node of the site: Slurm rejects such a job, or never starts it.

    Raises
    ------
    UsageError
        If the profile contains the memory of a node, and it is less.
    """
    there = site.node.memory_mb
    if there and parse_megabytes(asked) > there:
        raise UsageError(
            f"a node of {site.name} does not have {asked} of memory for a job",
            evidence=f"--mem {asked}; a node has {there // 1024} GiB for jobs",
            hint=f"use at most --mem {there // 1024}G, or --mem 0 for all of it; --no-check plans the job anyway",
            key="node.memory_mb",
        )


def _source(number: int) -> str:
    return "option" if number else "default"


def _own_cluster(host: Host) -> str:
    """Return the site with Slurm that this machine belongs to; empty if none or several are detected."""
    names = [site.name for site in sites_here(host) if site.has_slurm]
    return names[0] if len(names) == 1 else ""


def _choose_local_shape(wanted: Wanted, host: Host) -> tuple[Shape, tuple[Choice, ...]]:
    """Choose the shape on this machine: the requested ranks, else a rank per GPU, else one rank.

    Raises
    ------
    UsageError
        If several nodes or more GPUs than this machine has were requested.
    """
    _refuse_negative(wanted)
    if wanted.nodes > 1:
        own = _own_cluster(host)
        raise UsageError(
            f"--nodes {wanted.nodes} needs a site with Slurm: this machine is one node",
            evidence=f"--nodes {wanted.nodes} with a site that has no scheduler",
            hint=f"{f'add --site {own}' if own else 'use --site with a site that has Slurm'}, or remove --nodes",
        )
    gpus = wanted.gpus_per_node or wanted.gpus
    if gpus > len(host.gpus):
        raise UsageError(
            f"{gpus} GPUs were requested, but this machine has {len(host.gpus)}",
            hint="request fewer, or launch on a cluster with --site",
        )
    cpus = wanted.cpus_per_rank
    if wanted.ranks:
        return Shape(1, wanted.ranks, gpus, cpus), (Choice(ChoiceKey.RANKS, str(wanted.ranks), "requested", "option"),)
    count = gpus or len(host.gpus)
    if count:
        return Shape(1, count, gpus, cpus), (Choice(ChoiceKey.RANKS, str(count), "one per GPU", "machine"),)
    why = "no GPU is visible here, and no number was given"
    return Shape(1, 1, 0, cpus), (Choice(ChoiceKey.RANKS, "1", why, "machine"),)


def _gpus_per_node(wanted: Wanted, site: Site, nodes: int) -> int:
    if wanted.gpus and wanted.gpus_per_node and wanted.gpus != wanted.gpus_per_node * nodes:
        raise UsageError(
            "--gpus contradicts --gpus-per-node",
            evidence=f"--gpus {wanted.gpus}, --gpus-per-node {wanted.gpus_per_node}, {count(nodes, 'node')}",
            hint="use one of the two options",
        )
    if wanted.gpus % nodes:
        raise UsageError(
            f"cannot distribute {wanted.gpus} GPUs evenly over {nodes} nodes",
            evidence=f"{wanted.gpus} divided by {nodes} leaves a remainder of {wanted.gpus % nodes}",
            hint="use a multiple of the number of nodes",
        )
    gpus = wanted.gpus_per_node or wanted.gpus // nodes
    if site.node.gpus and gpus > site.node.gpus:
        raise UsageError(
            f"a node of {site.name} has {site.node.gpus} GPUs, but {gpus} per node were requested",
            hint=f"use more nodes: --nodes {-(-gpus * nodes // site.node.gpus)} --gpus-per-node {site.node.gpus}",
            key="node.gpus",
        )
    return gpus


def _ranks_per_node(wanted: Wanted, site: Site, nodes: int, gpus: int) -> tuple[int, str]:
    if wanted.ranks % nodes:
        raise UsageError(
            f"cannot distribute {wanted.ranks} ranks evenly over {nodes} nodes",
            evidence=f"{wanted.ranks} divided by {nodes} leaves a remainder of {wanted.ranks % nodes}",
            hint="use a multiple of the number of nodes",
        )
    if wanted.ranks:
        return wanted.ranks // nodes, f"{count(wanted.ranks, 'rank')} requested on {count(nodes, 'node')}"
    devices = site.node.devices_per_gpu
    if gpus and devices > 1:
        return gpus * devices, f"{devices} per GPU: each GPU has {devices} root devices"
    return (gpus, "one per GPU") if gpus else (1, "neither GPUs nor ranks were requested")


def _cpus_per_rank(wanted: Wanted, site: Site, ranks: int, gpus: int) -> tuple[int, str]:
    if wanted.cpus_per_rank:
        return wanted.cpus_per_rank, "requested"
    masks = plan_masks(site.node) if gpus == ranks == site.node.gpus else ()
    if masks:
        return min(mask.bit_count() for mask in masks), "the cores nearest to each GPU, by the site's map"
    if not site.slurm.cpus_option:
        return 0, "counted when the job starts: jobs of this site do not pass a number of cores to Slurm"
    if gpus and site.slurm.cpus_per_gpu:
        share = max(1, site.slurm.cpus_per_gpu * gpus // ranks)
        return share, f"the site's {site.slurm.cpus_per_gpu} cores per GPU"
    usable = site.node.cores - len(parse_ranges(site.node.reserved, "node.reserved"))
    if gpus and site.node.gpus and usable >= site.node.gpus:
        return max(1, usable // site.node.gpus * gpus // ranks), f"an equal share of a node's {usable} cores"
    return _unknown_cores(gpus)


def _unknown_cores(gpus: int) -> tuple[int, str]:
    """Leave the cores of a job with GPUs to Slurm, which knows them (DefCpuPerGPU, or whole nodes)."""
    if gpus:
        return 0, "the profile has no number of cores per GPU: Slurm decides; --cpus-per-rank requests more"
    return 1, "Slurm's default; --cpus-per-rank requests more"
