"""Complete a request by the allocation, the project file and the site's GPUs, before anything is looked up; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX, Choice, ChoiceKey, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.launch.context import choose_shape, with_user_defaults
from argosy.launch.model import LaunchRequest, Wanted, option
from argosy.launch.option_checks import SHELL_INSTEAD, given_options, refuse_options, unused_rows, without_slurm
from argosy.sites.partitions import Demand, choose_partition, is_whole
from argosy.sites.profile import Site
from argosy.sites.resolve import at_partition, choose_mode, evident_choice, gpus_of
from argosy.slurm.option_checks import check_options
from argosy.slurm.text import JobOptions


def complete_request(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Apply the options that change a whole request: ``--in-allocation``, ``--smoke``, ``--elastic``; add the GPUs.

    Raises
    ------
    UsageError
        When one of these options contradicts another, or needs a site with Slurm.
    """
    request = _without_container(request)
    if request.in_allocation:
        request = in_allocation(request, site, host)
    if request.given and not site.has_slurm:
        request = without_slurm(request)
    if request.smoke:
        request = as_smoke(request, site)
    if request.elastic:
        request = _with_elastic_nodes(request)
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


def _parse_elastic(text: str) -> tuple[int, int]:
    """Parse ``MIN:MAX`` nodes.

    Raises
    ------
    UsageError
        When the text does not have that form.
    """
    match = re.fullmatch(r"([1-9]\d*):([1-9]\d*)", text)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(f"invalid range of nodes {text!r}", hint="for example: --elastic 2:4 for 2 to 4 nodes")
    return int(match[1]), int(match[2])


def _with_elastic_nodes(request: LaunchRequest) -> LaunchRequest:
    """Set the nodes of an elastic request to the most that it allows.

    Raises
    ------
    UsageError
        When the range is not valid, or ``--nodes`` contradicts it.
    """
    if not request.elastic:
        return request
    _, most = _parse_elastic(request.elastic)
    if request.wanted.nodes not in {0, most}:
        raise UsageError(
            "the numbers of nodes contradict each other",
            evidence=f"--nodes {request.wanted.nodes}, --elastic {request.elastic}",
            hint="remove --nodes: --elastic sets both ends",
        )
    return replace(request, wanted=replace(request.wanted, nodes=most))


SMOKE_NODES, SMOKE_TIME = 2, "00:03:00"
"""Nodes and time limit of a smoke run, and the seconds after which what still runs is ended: torchrun takes 30 more."""


def as_smoke(request: LaunchRequest, site: Site) -> LaunchRequest:
    """Return the request of a smoke run: fewer nodes with as many ranks on each, the debug queue, no restarts.

    Raises
    ------
    UsageError
        Where there is no queue.
    """
    if not site.has_slurm:
        raise UsageError("--smoke needs a site with Slurm", hint="here, launch it as it is: there is no queue")
    wanted = request.wanted
    nodes = min(SMOKE_NODES, wanted.nodes or 1)
    asked = wanted.nodes or 1
    smaller = replace(wanted, nodes=nodes, ranks=wanted.ranks // asked * nodes, gpus=wanted.gpus // asked * nodes)
    queue, why = _debug_queue(request, site)
    options = replace(request.options, **queue, time=SMOKE_TIME, array="", dependency="", signal="", requeue=False)  # type: ignore[arg-type]  # the names are those of text fields
    return replace(
        request,
        wanted=smaller,
        options=options,
        name=f"{request.name}-smoke" if request.name else "",
        restarts=0,
        elastic="",
        checkpoint="",
        smoke=True,
        choices=(
            *request.choices,
            *why,
            Choice("--time", SMOKE_TIME, "long enough to start and to meet", "option --smoke"),
        ),
    )


def _debug_queue(request: LaunchRequest, site: Site) -> tuple[dict[str, str], tuple[Choice, ...]]:
    """Return partition or QOS for short tests: the profile's; where it names none, the job's own, and it is said."""
    debug = next((each for each in site.partitions if each.debug), None)
    if debug:
        why = "the site's partition for short tests"
        return {"partition": debug.name}, (evident_choice(site, debug, ChoiceKey.PARTITION, debug.name, why=why),)
    if site.slurm.debug_qos:
        why = "the site's QOS for short tests"
        row = evident_choice(site, site.slurm, "--qos", site.slurm.debug_qos, field="debug_qos", why=why)
        return {"qos": site.slurm.debug_qos}, (row,)
    queue = request.options.partition or "the usual one"
    return {}, (
        Choice(ChoiceKey.QUEUE, queue, "the profile names no partition or QOS for short tests", f"site {site.name}"),
    )


UNUSED_HERE = "not used: the allocation exists already"

INSTEAD_IN_ALLOCATION: Mapping[str, str] = SHELL_INSTEAD | MappingProxyType(
    {
        "signal": "give --signal to salloc or sbatch",
        "resume": "remove --in-allocation: only a job of its own goes back into the queue",
    }
)

COUNTS = MappingProxyType(
    {
        "nodes": ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
        "gpus_per_node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
    }
)
"""Number of an allocation -> the variables that hold it (sbatch(1), salloc(1), output environment variables)."""


def in_allocation(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Return a request as steps of the present allocation: on all its nodes and GPUs, without the options that made it.

    Raises
    ------
    UsageError
        When there is no allocation, it has other numbers than were asked for, or an option needs a job of its own.
    """
    environment = host.environment
    job = environment.get("SLURM_JOB_ID", "")
    if not job or not site.has_slurm:
        raise UsageError(
            "--in-allocation needs an allocation of Slurm, and a site with Slurm",
            evidence=f"SLURM_JOB_ID is {job or 'not set'}; {site.name} starts jobs by {site.scheduler}",
            hint="start one with: salloc --nodes=2; or remove --in-allocation",
        )
    if environment.get("SLURM_HET_SIZE") and not environment.get("SLURM_JOB_NODELIST"):
        raise UsageError(
            f"job {job} has several components, each with nodes of its own",
            evidence=f"SLURM_HET_SIZE is {environment['SLURM_HET_SIZE']}, SLURM_JOB_NODELIST is not set",
            hint="start an allocation of one component: salloc without ':' between its options",
        )
    check_options(request.options, request.extra)
    late = dict(given_options(request)) | ({"gpu_type": request.gpu_type} if request.gpu_type else {})
    refuse_options(
        request, late, INSTEAD_IN_ALLOCATION, needs="a job of its own", evidence=f"job {job} is there already"
    )
    there = "partition", environment.get("SLURM_JOB_PARTITION", "")
    wanted, counts = _allocated_shape(request, site, environment)
    nodes_there = at_partition(choose_mode(site, request.mode)[0], site.partition(there[1]))
    cores = _cores_per_rank(wanted, nodes_there, host, typed="cpus_per_rank" not in request.given)
    if cores:
        wanted, counts = replace(wanted, cpus_per_rank=cores), counts | {"cpus_per_rank": str(cores)}
    rows = unused_rows({name: value for name, value in late.items() if (name, value) != there}, UNUSED_HERE)
    told = {name: (value, f"job {job}") for name, value in (*counts.items(), there) if value}
    return replace(
        request,
        wanted=wanted,
        options=JobOptions(partition=there[1]),
        extra=(),
        restarts=0,
        checkpoint="",
        gpu_type="",
        choices=(*request.choices, *rows, *_replaced(request, counts)),
        given={name: value for name, value in request.given.items() if name not in _answered_by(counts)} | told,
    )


def _answered_by(counts: Mapping[str, str]) -> set[str]:
    """Return the keys of a job that these numbers answer."""
    return {*counts, *(("gpus",) if "gpus_per_node" in counts else ())}


def _replaced(request: LaunchRequest, counts: Mapping[str, str]) -> Iterator[Choice]:
    """Yield the numbers of the project file that the allocation replaces."""
    for name, (value, source) in request.given.items():
        if name in _answered_by(counts) and value != counts.get(name):
            yield Choice(option(name), value, UNUSED_HERE, source, mark=Mark.UNUSED)


def _allocated_shape(
    request: LaunchRequest, site: Site, environment: Mapping[str, str]
) -> tuple[Wanted, dict[str, str]]:
    """Return the shape of the allocation, and its numbers."""
    wanted, counts = request.wanted, {name: _count(names, environment) for name, names in COUNTS.items()}
    way = request.container.gpu
    if way is GpuMode.NONE or (way is GpuMode.AUTO and not site.node.gpu_vendor):
        del counts["gpus_per_node"]
    if request.elastic:
        del counts["nodes"]
    known = {name: count for name, count in counts.items() if count}
    has = known | {"gpus": known.get("gpus_per_node", 0) * known.get("nodes", 1)}
    for name, count in has.items():
        asked = getattr(wanted, name)
        if count and asked and asked != count and name not in request.given:
            raise UsageError(
                f"the allocation has other numbers than {option(name)}",
                evidence=f"{option(name)} {asked}; job {environment['SLURM_JOB_ID']} has {count}",
                hint=f"remove {option(name)}: --in-allocation uses the whole allocation; --ranks sets the ranks",
            )
    total = 0 if "gpus_per_node" in known else wanted.gpus
    return replace(wanted, gpus=total, **known), {name: str(count) for name, count in known.items()}


def _cores_per_rank(wanted: Wanted, site: Site, host: Host, *, typed: bool) -> int:
    """Return the cores that the allocation has for each rank where it has fewer than a plan takes; else 0.

    Raises
    ------
    UsageError
        When more were asked for, or there is not one for each rank.
    """
    shape, _ = choose_shape(wanted, site, host)
    cores = [int(number) for number in re.findall(r"(?:^|,)(\d+)", host.environment.get("SLURM_JOB_CPUS_PER_NODE", ""))]
    if not cores or shape.cpus_per_rank * shape.ranks_per_node <= min(cores):
        return 0
    if min(cores) < shape.ranks_per_node:
        raise UsageError(
            "the allocation has fewer cores than ranks",
            evidence=f"{min(cores)} core(s) on a node, and {shape.ranks_per_node} ranks",
            hint=f"allocate more, as with salloc --cpus-per-task={shape.ranks_per_node}; or start fewer with --ranks",
        )
    if wanted.cpus_per_rank and typed:
        raise UsageError(
            "the allocation has fewer cores than that",
            evidence=f"{shape.ranks_per_node} rank(s) on a node with {shape.cpus_per_rank} each; it has {min(cores)}",
            hint="leave --cpus-per-rank out, or start fewer ranks",
        )
    return max(1, min(cores) // shape.ranks_per_node)


def _count(names: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Read a number such as ``2``, or ``a100:4`` for GPUs; 0 if it is not set."""
    text = next((environment[name] for name in names if environment.get(name)), "")
    match = re.fullmatch(r"(?:[\w.-]+:)?(\d+)", text)
    return int(match[1]) if match else 0
