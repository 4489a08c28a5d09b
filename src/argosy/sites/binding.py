"""CPU binding from topology: range lists, masks out of a GPU -> CPU map, and the proof that they fit; pure."""

from __future__ import annotations

import re

from argosy.core.errors import SiteError
from argosy.sites.profile import Node

MOST_CORES = 1 << 16
"""No node has more."""

MAP = "node.gpu_cpus"


def parse_ranges(text: str, key: str = "") -> frozenset[int]:
    """Read a range list such as ``0,8-10`` (the format of Linux' cpulists and of Slurm's CpuSpecList).

    Parameters
    ----------
    key
        The value of a profile that it is.

    Raises
    ------
    SiteError
        When it is not one.
    """
    cores: set[int] = set()
    for part in filter(None, text.replace(" ", "").split(",")):
        found = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
        if not first <= last <= MOST_CORES:
            raise SiteError(
                f"{text!r} is no list of cores", evidence=f"at {part!r}", hint="write it as 0,8-10", key=key
            )
        cores.update(range(first, last + 1))
    return frozenset(cores)


def usable_cores(node: Node) -> frozenset[int]:
    """Give the cores of a node that jobs get."""
    return frozenset(range(node.cores)) - parse_ranges(node.reserved, "node.reserved")


def plan_masks(node: Node) -> tuple[int, ...]:
    """Give the CPU mask of each local rank of a full node, one rank per GPU; empty where no map is known.

    Raises
    ------
    SiteError
        When the map contradicts the node: another number of GPUs, a reserved or missing core, two GPUs on one core.
    """
    if not node.gpu_cpus:
        return ()
    if len(node.gpu_cpus) != node.gpus:
        rows = f"{len(node.gpu_cpus)} rows for {node.gpus} GPUs"
        raise SiteError("the GPU -> CPU map does not fit", evidence=rows, key=MAP)
    usable = usable_cores(node)
    taken: set[int] = set()
    masks: list[int] = []
    for index, text in enumerate(node.gpu_cpus):
        cores = parse_ranges(text, MAP)
        if not cores or cores - usable:
            wrong = f"{sorted(cores - usable)}"
            raise SiteError(f"GPU {index} is bound to cores that jobs do not get", evidence=wrong, key=MAP)
        if cores & taken:
            raise SiteError(f"GPU {index} shares cores with another one", evidence=f"{sorted(cores & taken)}", key=MAP)
        taken |= cores
        masks.append(sum(1 << core for core in cores))
    return tuple(masks)


def render_mask_option(masks: tuple[int, ...]) -> str:
    """Render masks as srun takes them: ``mask_cpu:0xfe,0xfe00``; Slurm gives the n-th to the task of local id n."""
    return "mask_cpu:" + ",".join(f"{mask:#x}" for mask in masks)


def render_core_list(mask: int) -> str:
    """Render one mask as taskset's list of cores: ``1-7``."""
    cores = [core for core in range(mask.bit_length()) if mask >> core & 1]
    runs: list[list[int]] = []
    for core in cores:
        if runs and core == runs[-1][-1] + 1:
            runs[-1].append(core)
        else:
            runs.append([core])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
