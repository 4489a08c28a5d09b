"""Complete a request from the site and the current allocation, before the image is opened; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX, Choice, ChoiceKey, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.core.render import count
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.launch.option_checks import SHELL_INSTEAD, UNUSED, given_options, refuse_options, unused_rows
from argosy.launch.script.parts import plan_resume
from argosy.launch.shape import choose_job_shape, fewest_cores, refuse_impossible_numbers
from argosy.recipes.option_row import option_name
from argosy.sites.job_settings import at_partition, choose_mode, evident_choice
from argosy.sites.load import advise_on_site
from argosy.sites.profile import Site
from argosy.slurm.option_checks import refuse_invalid_options
from argosy.slurm.sbatch import JobOptions


def complete_request(request: LaunchRequest, site: Site, host: Host) -> tuple[LaunchRequest, Site]:
    """Apply the options that change a whole request: ``--mode``, ``--in-allocation``, ``--elastic``, ``--smoke``.

    Returns
    -------
    tuple
        The request, with the name of the chosen mode, and the site in that mode.

    Raises
    ------
    UsageError
        If a value is not valid, two of these options contradict each other, or one of them needs a site with Slurm.
    SiteError
        If the site does not have this mode.
    """
    refuse_invalid_options(request.options, request.extra, request.sources)
    if request.image.startswith(BARE_PREFIX) and not request.container.runtime:
        request = replace(request, container=replace(request.container, runtime="bare"))
    if not site.has_slurm:
        request = _complete_local(request, site, host)
    site, mode = choose_mode(site, request.mode, request.image)
    request = replace(request, mode=mode)
    return _complete_job(request, site, host) if site.has_slurm else request, site


HINT_WITHOUT_SLURM: Mapping[str, str] = {
    "smoke": "remove it: a launch on this machine starts at once",
    "gpu_type": "remove it",
    "elastic": "remove it",
    "stage_to": "remove it: the image is on this machine",
}
"""Option that needs a site with Slurm -> hint; one of the project file is only listed as not used."""


def _complete_local(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Refuse the options that need Slurm; list those of the project file as not used."""
    if request.in_allocation:
        raise _no_allocation(site, host)
    given = {name: getattr(request, name) for name in (*HINT_WITHOUT_SLURM, "mode") if name in request.sources}
    rows = tuple(unused_rows({name: value for name, value in given.items() if value}, UNUSED))
    request = replace(request, choices=(*request.choices, *rows), **dict.fromkeys(given, ""))  # type: ignore[arg-type]  # text fields
    for name, hint in HINT_WITHOUT_SLURM.items():
        if getattr(request, name):
            there = "; or ".join(filter(None, (advise_on_site(host), hint)))
            raise UsageError(f"{option_name(name)} needs a site with Slurm", hint=there)
    return request


def _complete_job(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    if request.in_allocation:
        request = _in_allocation(request, site, host)
    if request.elastic:
        request = _with_elastic_nodes(request)
    if request.smoke:
        request = as_smoke(request, site)
    return request


SMOKE_NODES, SMOKE_TIME = 2, "00:03:00"
"""Most nodes of a smoke run, and its time limit."""


def as_smoke(request: LaunchRequest, site: Site) -> LaunchRequest:
    """Return the request of a smoke run: fewer nodes with as many ranks on each, the debug queue, no restarts.

    Raises
    ------
    UsageError
        If the job itself would be refused for something that its smoke run does not have.
    """
    resources = request.resources
    refuse_impossible_numbers(resources)
    plan_resume(request.restarts, request.checkpoint, request.options)
    asked = resources.nodes or 1
    nodes = min(SMOKE_NODES, asked)
    smaller = replace(
        resources,
        nodes=nodes if resources.nodes else 0,  # a number of nodes would request all their GPUs
        ranks=resources.ranks // asked * nodes,
        gpus=resources.gpus // asked * nodes,
    )
    queue, why = _debug_queue(request, site)
    options = replace(request.options, **queue, time=SMOKE_TIME, array="", dependency="", signal="", requeue=False)  # type: ignore[arg-type]  # text fields
    row = Choice("--time", SMOKE_TIME, "enough to start all ranks", "option --smoke")
    return replace(
        request,
        resources=smaller,
        options=options,
        name=f"{request.name}-smoke" if request.name else "",
        restarts=0,
        elastic="",
        checkpoint="",
        smoke=True,
        choices=(*request.choices, *why, row),
    )


def _debug_queue(request: LaunchRequest, site: Site) -> tuple[dict[str, str], tuple[Choice, ...]]:
    """Return the profile's partition or QOS for short tests, else those of the job, with the reason."""
    debug = next((each for each in site.partitions if each.debug), None)
    if debug:
        why = "the site's partition for short tests"
        return {"partition": debug.name}, (evident_choice(site, debug, ChoiceKey.PARTITION, debug.name, why=why),)
    if site.slurm.debug_qos:
        why = "the site's QOS for short tests"
        row = evident_choice(site, site.slurm, "--qos", site.slurm.debug_qos, field="debug_qos", why=why)
        return {"qos": site.slurm.debug_qos}, (row,)
    queue = request.options.partition or "the usual one"
    why = "the profile names no partition or QOS for short tests"
    return {}, (Choice(ChoiceKey.QUEUE, queue, why, f"site {site.name}"),)


UNUSED_HERE = "not used: the allocation already exists"

INSTEAD: Mapping[str, str] = SHELL_INSTEAD | {
    "signal": "pass --signal to salloc or sbatch",
    "resume": "remove --in-allocation: only a new job can be requeued",
}
"""Option that needs a new job -> hint."""

COUNTS = {
    "nodes": ("SLURM_JOB_NUM_NODES", "SLURM_NNODES"),
    "gpus_per_node": ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"),
}
"""Number of an allocation -> the variables that contain it (sbatch(1), salloc(1), output environment variables)."""


def _no_allocation(site: Site, host: Host) -> UsageError:
    job = host.environment.get("SLURM_JOB_ID", "")
    scheduler = "has Slurm" if site.has_slurm else "does not have Slurm"
    return UsageError(
        "--in-allocation needs a Slurm allocation, and a site with Slurm",
        evidence=f"SLURM_JOB_ID is {job or 'not set'}; the site {site.name} {scheduler}",
        hint="allocate nodes, for example with: salloc --nodes=2; or remove --in-allocation",
    )


def _in_allocation(request: LaunchRequest, site: Site, host: Host) -> LaunchRequest:
    """Return a request for steps of the current allocation: with all its nodes and GPUs, and no options of a job.

    Raises
    ------
    UsageError
        If there is no allocation, it has other numbers than requested, or an option needs a new job.
    """
    environment = host.environment
    job = environment.get("SLURM_JOB_ID", "")
    if not job:
        raise _no_allocation(site, host)
    if environment.get("SLURM_HET_SIZE") and not environment.get("SLURM_JOB_NODELIST"):
        raise UsageError(
            f"cannot launch in job {job}: it has several components",
            evidence=f"SLURM_HET_SIZE is {environment['SLURM_HET_SIZE']}, SLURM_JOB_NODELIST is not set",
            hint="allocate nodes as one component: salloc without ':' between its options",
        )
    late = dict(given_options(request)) | ({"gpu_type": request.gpu_type} if request.gpu_type else {})
    refuse_options(request, late, INSTEAD, needs="a new job", evidence=f"job {job} already exists")
    partition = "partition", environment.get("SLURM_JOB_PARTITION", "")
    resources, counts = _allocated_shape(request, site, environment)
    nodes_there = at_partition(site, site.partition(partition[1]))
    cores = _cores_per_rank(resources, nodes_there, host, typed="cpus_per_rank" not in request.sources)
    if cores:
        resources, counts = replace(resources, cpus_per_rank=cores), counts | {"cpus_per_rank": str(cores)}
    rows = unused_rows({name: value for name, value in late.items() if (name, value) != partition}, UNUSED_HERE)
    found = {name: (value, f"job {job}") for name, value in (*counts.items(), partition) if value}
    return replace(
        request,
        resources=resources,
        options=JobOptions(partition=partition[1]),
        extra=(),
        restarts=0,
        checkpoint="",
        gpu_type="",
        choices=(*request.choices, *rows, *_replaced(request, counts)),
        sources={name: value for name, value in request.sources.items() if name not in _keys_of(counts)} | found,
    )


def _keys_of(counts: Mapping[str, str]) -> set[str]:
    """Return the keys of the project file that numbers of the allocation replace."""
    return {*counts, *(("gpus",) if "gpus_per_node" in counts else ())}


def _replaced(request: LaunchRequest, counts: Mapping[str, str]) -> Iterator[Choice]:
    """Yield the numbers of the project file that the allocation replaces."""
    for name, (value, source) in request.sources.items():
        if name in _keys_of(counts) and value != counts.get(name):
            yield Choice(option_name(name), value, UNUSED_HERE, source, mark=Mark.UNUSED)


def _allocated_shape(
    request: LaunchRequest, site: Site, environment: Mapping[str, str]
) -> tuple[ResourceRequest, dict[str, str]]:
    """Return the shape of the allocation, and its numbers."""
    resources, counts = request.resources, {name: _count(names, environment) for name, names in COUNTS.items()}
    gpu = request.container.gpu
    if gpu is GpuMode.NONE or (gpu is GpuMode.AUTO and not site.node.gpu_vendor):
        del counts["gpus_per_node"]
    if request.elastic:
        del counts["nodes"]
    known = {name: number for name, number in counts.items() if number}
    has = known | {"gpus": known.get("gpus_per_node", 0) * known.get("nodes", 1)}
    for name, number in has.items():
        asked = getattr(resources, name)
        if number and asked and asked != number and name not in request.sources:
            raise UsageError(
                f"{option_name(name)} contradicts the allocation",
                evidence=f"{option_name(name)} {asked}; job {environment['SLURM_JOB_ID']} has {number}",
                hint=f"remove {option_name(name)}: --in-allocation uses the whole allocation; --ranks sets the ranks",
            )
    total = 0 if "gpus_per_node" in known else resources.gpus
    return replace(resources, gpus=total, **known), {name: str(number) for name, number in known.items()}


def _cores_per_rank(resources: ResourceRequest, site: Site, host: Host, *, typed: bool) -> int:
    """Return the cores per rank if the allocation has fewer than the plan needs, else 0.

    Raises
    ------
    UsageError
        If the allocation has fewer cores than requested, or fewer cores than ranks.
    """
    shape, _ = choose_job_shape(resources, site)
    cores = fewest_cores(host.environment.get("SLURM_JOB_CPUS_PER_NODE", ""))
    if not cores or max(1, shape.cpus_per_rank) * shape.ranks_per_node <= cores:
        return 0
    ranks = shape.ranks_per_node
    if cores < ranks:
        raise UsageError(
            "the allocation has fewer cores than ranks",
            evidence=f"{count(cores, 'core')} on a node, and {count(ranks, 'rank')}",
            hint=f"allocate more cores, for example salloc --cpus-per-task={ranks}; or start fewer ranks with --ranks",
        )
    if resources.cpus_per_rank and typed:
        raise UsageError(
            "the allocation has fewer cores than --cpus-per-rank requests",
            evidence=f"{count(ranks, 'rank')} on a node with {shape.cpus_per_rank} each; the node has {cores}",
            hint="remove --cpus-per-rank, or start fewer ranks",
        )
    return max(1, cores // ranks)


def _count(names: tuple[str, ...], environment: Mapping[str, str]) -> int:
    """Return the number in the first of these variables that is set, for example ``2`` or ``a100:4``; else 0."""
    text = next((environment[name] for name in names if environment.get(name)), "")
    match = re.fullmatch(r"(?:[\w.-]+:)?(\d{1,9})", text)
    return int(match[1]) if match else 0


def _with_elastic_nodes(request: LaunchRequest) -> LaunchRequest:
    """Set the nodes of an elastic request to its maximum.

    Raises
    ------
    UsageError
        If the range is not valid, or ``--nodes`` contradicts it.
    """
    match = re.fullmatch(r"([1-9]\d{0,8}):([1-9]\d{0,8})", request.elastic)
    if match is None or int(match[1]) > int(match[2]):
        raise UsageError(
            f"invalid range of nodes {request.elastic!r}", hint="for example: --elastic 2:4 for 2 to 4 nodes"
        )
    most = int(match[2])
    if request.resources.nodes not in {0, most}:
        raise UsageError(
            "--nodes contradicts --elastic",
            evidence=f"--nodes {request.resources.nodes}, --elastic {request.elastic}",
            hint="remove --nodes",
        )
    return replace(request, resources=replace(request.resources, nodes=most))
