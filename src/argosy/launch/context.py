"""Choose where a job runs, with the defaults of user and site, and refuse what jobs cannot have there; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.core.errors import SiteError, UsageError
from argosy.core.model import NO_VALUES, Choice, ChoiceKey, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.core.render import count
from argosy.host.gpus import VENDOR_MODES
from argosy.jobs.launch_plan import JobShape
from argosy.launch.launchers.launcher import NEED_SLURM, ONE_PER_NODE, refuse_without_slurm, suggest_mpirun
from argosy.launch.model import LaunchRequest, ProgramImports, ResourceRequest
from argosy.launch.option_checks import list_unqueued
from argosy.launch.shape import (
    BY_ALLOCATION,
    BY_WHOLE_NODES,
    binding_needs_whole_nodes,
    choose_job_shape,
    choose_local_shape,
    without_core_map,
)
from argosy.recipes.option_row import option_name
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.binding import usable_cores
from argosy.sites.conditions import Facts, evaluate_condition
from argosy.sites.job_settings import at_gpu_type, at_partition, evident_choice, gpus_of
from argosy.sites.load import advise_on_site
from argosy.sites.partitions import PartitionNeeds, choose_partition, is_whole
from argosy.sites.profile import Partition, Site
from argosy.slurm.option_checks import parse_megabytes, refuse_invalid_options
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions, choose_defaults, unread_defaults
from argosy.slurm.times import describe_short_time


class LaunchTarget(msgspec.Struct, frozen=True):
    """The site in the mode and partition of a job, and the job's shape there."""

    site: Site
    """The profile with the settings of the mode and the partition applied."""
    shape: JobShape
    is_job: bool
    """Whether the launch is a job of Slurm; else it runs on this machine."""
    mode: str = ""
    partition: str = ""
    """Its name; empty if Slurm decides."""
    whole_nodes: bool = False
    """Whether the job gets whole nodes, as far as the profile shows."""
    why_unbound: str = ""
    """Why the site is without the map of cores of its profile, if the map would need whole nodes; else empty."""
    options: JobOptions = msgspec.field(default_factory=JobOptions)
    """Options of the job, completed by the defaults of the user and of the site."""
    choices: tuple[Choice, ...] = ()


class LaunchContext(msgspec.Struct, frozen=True):
    """Everything that a launch is planned from; `plan_launch` needs nothing else."""

    request: LaunchRequest
    """The user's request, completed by the project file, the allocation and the site."""
    target: LaunchTarget
    container: ContainerPlan
    host: Host
    """The machine that the job runs on, as far as it is known here."""
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    """Known versions of torch, ROCm, CUDA and NCCL in the image."""
    record: str = ""
    """Folder of the job's record; empty for a script without a record."""
    program: ProgramImports = msgspec.field(default_factory=ProgramImports)
    """The modules of the program, if it is on this machine and the user chose no launcher."""


def choose_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    """Choose the partition of a launch, its shape there, and the options of its job.

    The user's options limit the partition, the partition decides the GPUs of a node, and the shape decides the memory.
    In an allocation, the options are those of the allocation; the variables of sbatch do not count.

    Parameters
    ----------
    request, site
        As `complete_request` returns them: the site in the mode of the request.

    Raises
    ------
    UsageError
        If an option of the job is not valid, two options contradict each other, or the shape does not fit.
    SiteError
        If no partition allows the job.
    """
    mode = request.mode
    rows = (evident_choice(site, site.modes[mode], ChoiceKey.MODE, mode),) if mode else ()
    target = _choose_job_target(request, site, host) if site.has_slurm else _choose_local_target(request, site, host)
    return replace(target, mode=mode, choices=(*rows, *target.choices))


def facts_of(target: LaunchTarget, *, launcher: str, runtime: str, versions: Mapping[str, str]) -> Facts:
    """Return the facts about a job that conditions of a profile refer to."""
    site, shape, validated = target.site, target.shape, target.site.validated.versions
    documented = site.runtime.version if runtime == site.runtime.name else ""
    return Facts(
        nodes=str(shape.nodes),
        ranks=str(shape.ranks),
        ranks_per_node=str(shape.ranks_per_node),
        gpus_per_node=str(shape.gpus_per_node),
        whole_nodes="yes" if target.whole_nodes else "no",
        partition=target.partition,
        launcher=launcher,
        mode=target.mode,
        vendor=site.node.gpu_vendor if shape.gpus_per_node else "none",
        runtime=runtime,
        runtime_version=validated.get(runtime, documented),
        slurm=validated.get("slurm", site.slurm.version),
        rocm=versions.get("rocm", ""),
        cuda=versions.get("cuda", ""),
        torch=versions.get("torch", ""),
        nccl=versions.get("nccl", ""),
    )


def _choose_local_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    if request.launcher in NEED_SLURM:
        instead = suggest_mpirun(request.command, request.resources.ranks) if request.launcher == "mpi" else ""
        refuse_without_slurm(request.launcher, advise_on_site(host), instead)
    _refuse_several_nodes(request, site, host)
    here = replace(host, gpus=()) if request.container.gpu is GpuMode.NONE else host
    shape, why_shape = choose_local_shape(_with_ranks_of_launcher(request.resources, request.launcher), here)
    rows = (*list_unqueued(request, site, host), *why_shape)
    return LaunchTarget(site, shape, is_job=False, options=request.options, choices=rows)


def _choose_job_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    options, why_options = request.options, tuple[Choice, ...]()
    if not request.in_allocation:
        options, why_options = _with_user_defaults(request.options, host)
    refuse_invalid_options(options, request.extra, request.sources)
    resources, why_gpus = _with_default_gpus(request, site, options)
    needs = _needs_of(resources, options)
    partition, why_partition = choose_partition(site, options.partition, needs)
    job_site = _site_of_job(request, site, partition, needs, host)
    share = BY_ALLOCATION if request.in_allocation else BY_WHOLE_NODES if options.exclusive else ""
    shape, why_shape = choose_job_shape(
        _with_ranks_of_launcher(resources, request.launcher), job_site, why_gpus, share=share
    )
    if not request.no_check:
        refuse_memory(options, shape, job_site)
        _refuse_other_vendor(request.container.gpu, job_site)
        _refuse_reserved_cores(shape, job_site)
    name = partition.name if partition else options.partition
    target = LaunchTarget(
        site=job_site,
        shape=shape,
        is_job=True,
        partition=name,
        whole_nodes=is_whole(site, partition, needs),
        options=options,
        choices=(*why_partition, *why_shape, *_idle_gpus(request, shape, job_site, by_default=bool(why_gpus))),
    )
    return target if request.in_allocation else _with_defaults(target, request, why_options)


def _needs_of(resources: ResourceRequest, options: JobOptions) -> PartitionNeeds:
    """Return what a job with these resources needs of its partition."""
    nodes = resources.nodes or 1
    gpus = resources.gpus_per_node or resources.gpus // nodes
    cores = resources.ranks // nodes * max(1, resources.cpus_per_rank)
    return PartitionNeeds(nodes, gpus, options.time, exclusive=options.exclusive, cores_per_node=cores)


def _site_of_job(
    request: LaunchRequest, site: Site, partition: Partition | None, needs: PartitionNeeds, host: Host
) -> Site:
    """Return the site with the nodes of the partition, the type of GPU, or the part of a node that the job has."""
    job_site = at_partition(site, partition)
    all_gpus = job_site.node.gpus
    if job_site.slurm.several_nodes_whole and needs.nodes > 1 and needs.gpus_per_node not in {0, all_gpus}:
        raise SiteError(
            f"{job_site.name} accepts jobs on several nodes only if they use all {all_gpus} GPUs of each node",
            evidence=f"{needs.nodes} nodes with {needs.gpus_per_node} GPUs each were requested",
            hint=f"use --gpus-per-node {all_gpus}, or one node",
            key="slurm.several_nodes_whole",
        )
    job_site = at_gpu_type(job_site, request.gpu_type)
    if request.in_allocation:
        return without_core_map(job_site, host.environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return job_site


def _with_defaults(target: LaunchTarget, request: LaunchRequest, why_options: tuple[Choice, ...]) -> LaunchTarget:
    """Complete the options of a new job: whole nodes if its ranks are bound to cores, then the site's defaults.

    Parameters
    ----------
    why_options
        The reasons of the user's defaults, which the options contain already.
    """
    site, shape, why_exclusive = target.site, target.shape, tuple[Choice, ...]()
    needs_whole_nodes = not target.options.exclusive and binding_needs_whole_nodes(shape, site)
    if needs_whole_nodes and _avoids_whole_nodes(target, request):
        site = replace(site, node=replace(site.node, gpu_cpus=()))
        target = replace(target, site=site, why_unbound="a map needs --exclusive, which the site advises against")
    elif needs_whole_nodes:
        reason = "the site's map of cores is valid on whole nodes, and jobs of this partition may share nodes"
        why_exclusive = (Choice("--exclusive", "yes", reason, f"site {site.name}"),)
        options = replace(target.options, exclusive=True)
        target = replace(target, options=options, whole_nodes=True)
    options, why_site = _with_site_defaults(
        target.options, site, shape, partition=target.partition, whole_nodes=target.whole_nodes
    )
    return replace(target, options=options, choices=(*target.choices, *why_exclusive, *why_options, *why_site))


def _avoids_whole_nodes(target: LaunchTarget, request: LaunchRequest) -> bool:
    """Return whether the site advises such a job against the option with which it gets whole nodes.

    Advice whose condition depends on an unknown fact does not count: such a job uses all GPUs of its nodes anyway.
    """
    launcher, runtime = request.launcher, request.container.runtime
    facts = facts_of(replace(target, whole_nodes=True), launcher=launcher, runtime=runtime, versions=NO_VALUES)
    return any(each.word == "--exclusive" and evaluate_condition(each.condition, facts) for each in target.site.avoid)


def _with_user_defaults(options: JobOptions, host: Host) -> tuple[JobOptions, tuple[Choice, ...]]:
    """Fill the options that were not given from the user's SBATCH_* variables; list those that plans do not apply."""
    by_user = choose_defaults(options, host.environment)
    options = replace(options, **by_user)  # type: ignore[arg-type]  # text fields only
    rows = [
        Choice(option_name(name), value, f"your default, {USER_DEFAULTS[name]}", "environment")
        for name, value in by_user.items()
    ]
    if short := describe_short_time(options.time):
        rows.append(Choice("--time", options.time, short, "option", mark=Mark.DOUBTFUL))
    why = "argosy launch does not read it: use an option, or --sbatch-arg"
    unread = unread_defaults(host.environment)
    rows += [Choice(name, "not used", why, "environment", mark=Mark.UNUSED) for name in unread]
    return options, tuple(rows)


def _with_default_gpus(request: LaunchRequest, site: Site, options: JobOptions) -> tuple[ResourceRequest, str]:
    """Return the requested resources with the GPUs of the nodes, and why, if no option is about GPUs.

    ``--gpu none`` requests a job without GPUs.  A launch in an allocation has the GPUs of the allocation.

    Parameters
    ----------
    site
        The site in the mode of the job.
    options
        The options of the job, with the defaults of the user.
    """
    resources = request.resources
    is_allocated = request.in_allocation and site.slurm.gpu_option != "none"
    if resources.gpus or resources.gpus_per_node or is_allocated:
        return resources, ""
    if request.container.gpu is GpuMode.NONE:
        return resources, "--gpu none: the job requests no GPUs"
    if not gpus_of(site, site.partition(options.partition)):
        return resources, ""
    gpus, why = _gpus_of_nodes(resources, site, options)
    return replace(resources, gpus_per_node=gpus), f"{why}; for a job without GPUs: --gpu none"


def _gpus_of_nodes(resources: ResourceRequest, site: Site, options: JobOptions) -> tuple[int, str]:
    """Return the GPUs of each node: all with ``--nodes`` or on whole nodes, else one per rank, which costs less."""
    of_node = gpus_of(site, site.partition(options.partition))
    if resources.nodes:
        return of_node, "all GPUs of each node, because nodes were requested"
    # The partition depends on the number of GPUs, too: the one for a single GPU shows whether jobs get whole nodes.
    needs = PartitionNeeds(1, 1, options.time, exclusive=options.exclusive)
    partition, _ = choose_partition(site, options.partition, needs)
    if is_whole(site, partition, needs):
        return gpus_of(site, partition), "all GPUs of the node, because jobs get whole nodes there"
    needed = -(-max(1, resources.ranks) // site.node.devices_per_gpu)
    return min(of_node, needed), "one for each rank, because no number was given"


def _with_site_defaults(
    options: JobOptions, site: Site, shape: JobShape, *, partition: str, whole_nodes: bool
) -> tuple[JobOptions, tuple[Choice, ...]]:
    """Add the chosen partition, and the profile's memory if the user did not request any.

    Parameters
    ----------
    options
        The options of the job, with the defaults of the user.
    site
        The site in the mode and partition of the job.
    whole_nodes
        Whether the job gets whole nodes: the memory of a node is not a default for a part of it.
    """
    options = replace(options, partition=options.partition or partition)
    key = "mem_per_gpu" if shape.gpus_per_node and site.slurm.mem_per_gpu else "mem"
    value = getattr(site.slurm, key)
    if not value or options.mem or options.mem_per_gpu or (key == "mem" and not whole_nodes):
        return options, ()
    why = "none was requested; the site's default"
    row = evident_choice(site, site.slurm, option_name(key), value, field=key, why=why)
    return replace(options, **{key: value}), (row,)


def _idle_gpus(request: LaunchRequest, shape: JobShape, site: Site, *, by_default: bool) -> tuple[Choice, ...]:
    """Warn about ranks for another machine, for example of a project file: some GPUs idle, or ranks share one.

    Parameters
    ----------
    by_default
        Whether the user requested no number of GPUs: only then are fewer ranks doubtful.
    """
    ranks, gpus = request.resources.ranks, shape.gpus_per_node
    each = gpus * max(1, site.node.devices_per_gpu)
    meant = request.launcher in ONE_PER_NODE or request.independent_ranks  # such as bench nodes
    is_few, is_many = by_default and shape.ranks_per_node < gpus, shape.ranks_per_node > each
    if meant or not (ranks and gpus and (is_few or is_many)):
        return ()
    unit = "GPU" if each == gpus else "stack of a GPU"
    why = (
        f"{count(shape.ranks_per_node, 'rank')} on a node with {count(gpus, 'GPU')}"
        f"{', so some share one' if is_many else ''}; for a rank per {unit}: --ranks {each * shape.nodes}"
    )
    if {"ranks", "ranks_per_node"} & set(request.sources):
        why = f"{why}, or remove the number of ranks from argosy.toml"
    return (Choice("--ranks", str(ranks), why, "option", mark=Mark.DOUBTFUL),)


def _with_ranks_of_launcher(resources: ResourceRequest, launcher: str) -> ResourceRequest:
    return one_rank_per_node(resources) if launcher in ONE_PER_NODE else resources


def one_rank_per_node(resources: ResourceRequest) -> ResourceRequest:
    """Return the same resources with one rank on each node.

    Raises
    ------
    UsageError
        If another number of ranks was requested.
    """
    nodes = resources.nodes or 1
    if resources.ranks not in {0, nodes}:
        raise UsageError(
            "the ray launcher starts one rank on each node, and distributes the node's cores and GPUs itself",
            evidence=f"--ranks {resources.ranks} on {count(nodes, 'node')}",
            hint="remove --ranks; --cpus-per-rank sets the cores that Ray gets on each node",
        )
    return replace(resources, ranks=nodes)


def _refuse_reserved_cores(shape: JobShape, site: Site) -> None:
    """Refuse ranks that need the cores which the site keeps from jobs: Slurm rejects such a job."""
    cores, usable = site.node.cores, len(usable_cores(site.node))
    ranks, asked = shape.ranks_per_node, shape.ranks_per_node * shape.cpus_per_rank
    if usable == cores or asked <= usable:
        return
    fewer = f"use --cpus-per-rank {usable // ranks}" if ranks <= usable else f"use at most {usable} ranks on a node"
    raise UsageError(
        f"jobs on a node of {site.name} can use {usable} cores, but {asked} were requested",
        evidence=f"{count(ranks, 'rank')} with {count(shape.cpus_per_rank, 'core')} each; "
        f"{cores - usable} of the {cores} cores are reserved",
        hint=f"{fewer}; --no-check plans the job anyway",
        key="node.reserved",
    )


def refuse_memory(options: JobOptions, shape: JobShape, site: Site) -> None:
    """Refuse more memory than jobs get on a node of the site: Slurm rejects such a job, or never starts it."""
    available, gpus = site.node.memory_mb, max(1, shape.gpus_per_node)
    for option, asked, times in (("--mem", options.mem, 1), ("--mem-per-gpu", options.mem_per_gpu, gpus)):
        if available and asked and parse_megabytes(asked) * times > available:
            most = f"use at most {option} {available // 1024 // times}G"
            of_all = f" for each of {count(gpus, 'GPU')}" if times > 1 else ""
            raise UsageError(
                f"a node of {site.name} does not have {asked} of memory{of_all} for a job",
                evidence=f"{option} {asked}; a node has {available // 1024} GiB for jobs",
                hint=f"{most}, or --mem 0 for all memory of a node; --no-check plans the job anyway",
                key="node.memory_mb",
            )


def _refuse_other_vendor(gpu: GpuMode, site: Site) -> None:
    """Refuse GPUs of another vendor than those of the site: each node would stop the job."""
    vendor = next((name for name, mode in VENDOR_MODES.items() if mode is gpu), "")
    if vendor and site.node.gpu_vendor not in {"", vendor}:
        raise UsageError(
            f"--gpu {gpu} is for GPUs that {site.name} does not have",
            evidence=f'its profile: gpu_vendor = "{site.node.gpu_vendor}"',
            hint="omit --gpu; --no-check plans the job anyway",
            key="node.gpu_vendor",
        )


def _refuse_several_nodes(request: LaunchRequest, site: Site, host: Host) -> None:
    """Refuse several nodes at a site that is one machine, for example at `local`, the site of unknown machines."""
    if request.resources.nodes > 1:
        there = advise_on_site(host) or "name your cluster with --site (argosy sites ls), or remove --nodes"
        source = f" ({request.sources['site'][1]})" if "site" in request.sources else ""
        raise UsageError(
            f"--nodes {request.resources.nodes} needs a site with Slurm",
            evidence=f"the site is '{site.name}'{source}, which starts ranks on this machine, without a scheduler",
            hint=there,
        )
