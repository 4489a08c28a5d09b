"""Plan CPU masks from the GPU -> CPU map of a node, and check that the map fits the node."""

from __future__ import annotations

import re

from argosy.core.errors import SiteError
from argosy.core.parse import parse_range, render_cpulist
from argosy.sites.profile import Node, Site

ONE_THREAD = re.compile(r"--threads-per-core=1|--hint=nomultithread")
"""Options of sbatch with which Slurm counts cores instead of hardware threads."""

MAP = "node.gpu_cpus"
_CORES = "give each GPU its own cores, without the reserved ones"


def parse_ranges(text: str, key: str = "") -> frozenset[int]:
    """Read a range list such as ``0,8-10`` (the format of Linux' cpulists and of Slurm's CpuSpecList).

    Parameters
    ----------
    key
        Key of the profile that the text comes from, for errors.

    Raises
    ------
    SiteError
        When the text is not a range list.
    """
    cores: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        found = parse_range(part)
        if found is None:
            raise SiteError(
                f"invalid list of cores {text!r}", evidence=f"at {part!r}", hint="for example 0,8-10", key=key
            )
        cores.update(found)
    return frozenset(cores)


def usable_cores(node: Node) -> frozenset[int]:
    """Return the cores of a node that jobs can use."""
    return frozenset(range(node.cores)) - parse_ranges(node.reserved, "node.reserved")


def plan_masks(node: Node) -> tuple[int, ...]:
    """Return the CPU mask of each local rank of a full node, one rank per GPU; empty without a map.

    Raises
    ------
    SiteError
        When the map contradicts the node: wrong number of GPUs, a reserved or missing core, a core of two GPUs.
    """
    if not node.gpu_cpus:
        return ()
    if len(node.gpu_cpus) != node.gpus:
        rows = f"it has {len(node.gpu_cpus)} rows, but the node has {node.gpus} GPUs"
        raise SiteError(
            "the GPU -> CPU map does not fit the node", evidence=rows, hint="write one row per GPU", key=MAP
        )
    usable = usable_cores(node)
    taken: set[int] = set()
    masks: list[int] = []
    for index, text in enumerate(node.gpu_cpus):
        cores = parse_ranges(text, MAP)
        if not cores or cores - usable:
            wrong = f"{sorted(cores - usable)}"
            raise SiteError(
                f"the map binds GPU {index} to cores that jobs cannot use", evidence=wrong, hint=_CORES, key=MAP
            )
        if cores & taken:
            raise SiteError(
                f"the map gives GPU {index} cores of another GPU",
                evidence=f"{sorted(cores & taken)}",
                hint=_CORES,
                key=MAP,
            )
        taken |= cores
        masks.append(sum(1 << core for core in cores))
    return tuple(masks)


def gives_threads(site: Site) -> bool:
    """Return whether Slurm counts the hardware threads of the nodes as cores of jobs."""
    return site.node.threads_per_core > 1 and site.has_slurm and site.slurm.cpus_option and not counts_cores(site)


def counts_cores(site: Site) -> bool:
    """Return whether an option of the profile makes Slurm count cores."""
    return any(option.to == "sbatch" and ONE_THREAD.fullmatch(option.word) for option in site.options)


def render_mask_option(masks: tuple[int, ...]) -> str:
    """Render masks for srun's --cpu-bind: ``mask_cpu:0xfe,0xfe00``; the n-th is for the task with local id n."""
    return "mask_cpu:" + ",".join(f"{mask:#x}" for mask in masks)


def render_core_list(mask: int) -> str:
    """Render a mask as a list of cores for taskset: ``1-7``."""
    return render_cpulist(core for core in range(mask.bit_length()) if mask >> core & 1)
