"""Complete a request by the allocation, the project file and the site's GPUs, before anything is looked up; pure."""

from __future__ import annotations

from argosy.core.model import BARE_PREFIX, GpuMode, Host
from argosy.core.records import replace
from argosy.launch.context import with_user_defaults
from argosy.launch.model import LaunchRequest
from argosy.sites.profile import Site
from argosy.sites.resolve import choose_mode, gpus_of


def complete_request(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Apply the options that change a whole request: ``--in-allocation``, ``--smoke``, ``--elastic``; add the GPUs.

    Raises
    ------
    UsageError
        When one of these options contradicts another, or needs a site with Slurm.
    """
    request = _without_container(request)
    if request.in_allocation:
        from argosy.launch.allocation import in_allocation  # noqa: PLC0415 - only for --in-allocation

        request = in_allocation(request, site, host)
    if request.given and not site.has_slurm:
        from argosy.launch.option_checks import without_slurm  # noqa: PLC0415 - only with a project file

        request = without_slurm(request)
    if request.smoke:
        from argosy.launch.smoke import as_smoke  # noqa: PLC0415 - only for --smoke

        request = as_smoke(request, site)
    if request.elastic:
        from argosy.launch.option_checks import with_elastic_nodes  # noqa: PLC0415 - only for --elastic

        request = with_elastic_nodes(request)
    return _with_gpus(request, site, host) if site.has_slurm else request


def _without_container(request: LaunchRequest) -> LaunchRequest:
    """Choose the runtime ``bare`` for the machine's own software (``bare:``), whichever runtime the site has."""
    if not request.image.startswith(BARE_PREFIX) or request.container.runtime:
        return request
    return replace(request, container=replace(request.container, runtime="bare"))


def _with_gpus(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Add the GPUs of the nodes if the user says nothing about GPUs.

    A job that names nodes, or gets whole nodes, has all GPUs of each; a job on a part of a node has one for each rank.
    ``--gpu none`` asks for a job without GPUs.  A launch in an allocation has the GPUs of the allocation.
    """
    wanted = request.wanted
    is_allocated = request.in_allocation and site.slurm.gpu_option != "none"
    is_given = wanted.gpus or wanted.gpus_per_node or request.container.gpu is GpuMode.NONE
    if is_given or is_allocated:
        return request
    from argosy.sites.partitions import Demand, choose_partition, is_whole  # noqa: PLC0415 - jobs with GPUs only

    options = request.options if request.in_allocation else with_user_defaults(request.options, host)
    moded, _ = choose_mode(site, request.mode)
    gpus = gpus_of(moded, moded.partition(options.partition))
    if not gpus:
        return request
    if wanted.nodes:
        why = "all of each node: nodes were asked for"
    else:
        demand = Demand(1, 1, options.time, exclusive=options.exclusive)
        partition, _ = choose_partition(moded, options.partition, demand)
        if is_whole(moded, partition, demand):
            gpus, why = gpus_of(moded, partition), "all of the node: jobs have whole nodes there"
        else:
            needed = -(-max(1, wanted.ranks) // moded.node.devices_per_gpu)
            gpus, why = min(gpus, needed), "one for each rank: nobody said how many"
    why += "; --gpu none asks for none"
    return replace(request, wanted=replace(wanted, gpus_per_node=gpus), why_gpus=why)
