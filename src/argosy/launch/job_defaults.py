"""Complete a job by the defaults of the user and of the site, each with its reason; pure.

`choose_target` applies them in this order: the user's options limit the partition, the partition decides the GPUs of a
node, and the shape decides the memory.  A launch in an allocation has the options of the allocation instead.
"""

from __future__ import annotations

from argosy.core.model import Choice, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.jobs.launch_plan import JobShape
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.recipes.option_row import option_name
from argosy.sites.job_settings import evident_choice, gpus_of
from argosy.sites.partitions import PartitionNeeds, choose_partition, is_whole
from argosy.sites.profile import Site
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions, choose_defaults, unread_defaults
from argosy.slurm.times import describe_short_time


def with_user_defaults(options: JobOptions, host: Host) -> tuple[JobOptions, tuple[Choice, ...]]:
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


def with_default_gpus(request: LaunchRequest, site: Site, options: JobOptions) -> tuple[ResourceRequest, str]:
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


def with_site_defaults(
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
