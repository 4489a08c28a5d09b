"""Choose where a job runs: the site's mode and partition, and the job's shape there; pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.core.errors import SiteError
from argosy.core.model import NO_VALUES, Choice, ChoiceKey, GpuMode, Host
from argosy.core.records import replace
from argosy.jobs.launch_plan import Shape
from argosy.launch.launchers.launcher import ONE_PER_NODE
from argosy.launch.model import LaunchRequest
from argosy.launch.shape import Wanted, choose_shape, one_rank_per_node
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.profile import Partition, Site
from argosy.sites.resolve import at_partition, choose_mode, evident_choice
from argosy.slurm.text import JobOptions, choose_defaults


class LaunchTarget(msgspec.Struct, frozen=True):
    """The site in the mode and partition of a job, and the job's shape there.

    Attributes
    ----------
    site
        The profile with the settings of the mode and the partition applied.
    partition
        Its name; empty if Slurm decides.
    whole_nodes
        Whether the job has its nodes for itself, as far as the profile tells.
    exclusive
        Whether the job must ask for whole nodes (``--exclusive``), because its ranks are bound to cores.
    """

    site: Site
    shape: Shape
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
        As the user wrote it, completed by the project file, the allocation and the site.
    host
        The machine that the job runs on, as far as it is known here.
    versions
        Of torch, ROCm, CUDA and NCCL in the image, as far as they are known.
    record
        Folder in which the job's script notes its end; empty for none.
    """

    request: LaunchRequest
    target: LaunchTarget
    container: ContainerPlan
    host: Host
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    record: str = ""


def choose_target(request: LaunchRequest, site: Site, host: Host) -> LaunchTarget:
    """Choose the mode and partition of a job, and its shape there.

    Raises
    ------
    UsageError
        When an option of the job is not valid, two options contradict each other, or the shape does not fit.
    SiteError
        When the site has no such mode, or none of its partitions allows the job.
    """
    site, mode = choose_mode(site, request.mode)
    rows = (evident_choice(site, site.modes[mode], ChoiceKey.MODE, mode),) if mode else ()
    if not site.has_slurm:
        rows = (*rows, *_unused_options(request, site))
        here = replace(host, gpus=()) if request.container.gpu is GpuMode.NONE else host
        shape, why_shape = choose_shape(_wanted(request), site, here)
        return LaunchTarget(site, shape, mode, choices=(*rows, *why_shape))
    return _choose_job_target(request, site, mode, rows, host)


def _choose_job_target(
    request: LaunchRequest, site: Site, mode: str, rows: tuple[Choice, ...], host: Host
) -> LaunchTarget:
    from argosy.launch.cores import binding_needs_whole_nodes, plan_binding, without_core_map  # noqa: PLC0415 - Slurm
    from argosy.sites.partitions import Demand, choose_partition, is_whole  # noqa: PLC0415 - likewise
    from argosy.slurm.option_checks import check_options  # noqa: PLC0415 - likewise

    options = request.options if request.in_allocation else with_user_defaults(request.options, host)
    check_options(options, request.extra)
    wanted, nodes = request.wanted, request.wanted.nodes or 1
    gpus = wanted.gpus_per_node or wanted.gpus // max(1, nodes)
    demand = Demand(nodes, gpus, options.time, exclusive=options.exclusive)
    partition, why = choose_partition(site, options.partition, demand)
    whole = is_whole(site, partition, demand)
    there = _site_at_partition(site, partition, nodes, gpus)
    if request.in_allocation:
        there = without_core_map(there, host.environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    shape, why_shape = choose_shape(_wanted(request), there, host, request.why_gpus)
    exclusive = not (request.options.exclusive or request.in_allocation) and binding_needs_whole_nodes(shape, there)
    if exclusive:
        reason = "the site's map of cores holds on whole nodes, and jobs of this partition may share them"
        why = (*why, Choice("--exclusive", "yes", reason, f"site {there.name}"))
    return LaunchTarget(
        site=there,
        shape=shape,
        mode=mode,
        partition=partition.name if partition else options.partition,
        whole_nodes=whole or exclusive,
        exclusive=exclusive,
        choices=(*rows, *why, *why_shape, *plan_binding(shape, there)),
    )


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
            f"on several nodes {there.name} takes only jobs that use all {all_gpus} GPUs of each",
            evidence=f"{nodes} nodes with {gpus} GPUs each were asked for",
            hint=f"say --gpus-per-node {all_gpus}, or use one node",
            key="slurm.several_nodes_whole",
        )
    return there


def _unused_options(request: LaunchRequest, site: Site) -> tuple[Choice, ...]:
    if request.options == JobOptions() and not (request.extra or request.restarts or request.checkpoint or request.mpi):
        return ()
    from argosy.launch.option_checks import judge_unqueued  # noqa: PLC0415 - only if there is something to check

    return judge_unqueued(request, site)
