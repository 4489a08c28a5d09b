"""Fit a request into an existing allocation: its nodes, GPUs and partition; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from argosy.core.errors import UsageError
from argosy.core.model import Choice, GpuMode, Host, Mark
from argosy.core.records import replace
from argosy.launch.model import LaunchRequest
from argosy.launch.names import option
from argosy.launch.option_checks import SHELL_INSTEAD, given_options, refuse_options, unused_rows
from argosy.launch.shape import Wanted, choose_shape
from argosy.sites.profile import Site
from argosy.sites.resolve import at_partition, choose_mode
from argosy.slurm.option_checks import check_options
from argosy.slurm.text import JobOptions

UNUSED_HERE = "not used: the allocation exists already"

INSTEAD: Mapping[str, str] = SHELL_INSTEAD | MappingProxyType(
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
    refuse_options(request, late, INSTEAD, needs="a job of its own", evidence=f"job {job} is there already")
    there = "partition", environment.get("SLURM_JOB_PARTITION", "")
    wanted, counts = _shape(request, site, environment)
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
        given={name: value for name, value in request.given.items() if name not in _told_by(counts)} | told,
    )


def _told_by(counts: Mapping[str, str]) -> set[str]:
    """Return the keys of a job that these numbers answer."""
    return {*counts, *(("gpus",) if "gpus_per_node" in counts else ())}


def _replaced(request: LaunchRequest, counts: Mapping[str, str]) -> Iterator[Choice]:
    """Yield the numbers of the project file that the allocation replaces."""
    for name, (value, source) in request.given.items():
        if name in _told_by(counts) and value != counts.get(name):
            yield Choice(option(name), value, UNUSED_HERE, source, mark=Mark.UNUSED)


def _shape(request: LaunchRequest, site: Site, environment: Mapping[str, str]) -> tuple[Wanted, dict[str, str]]:
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
