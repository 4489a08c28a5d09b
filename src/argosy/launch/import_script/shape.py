"""The shape of a job in Slurm's terms, and the keys of ``argosy.toml`` for it; pure."""

from __future__ import annotations

from typing import Any

import msgspec

from argosy.core.records import replace


class SlurmShape(msgspec.Struct, frozen=True):
    """Shape of a job in Slurm's terms; 0 or empty is not given."""

    nodes: int = 0
    ntasks: int = 0
    ntasks_per_node: int = 0
    ntasks_per_gpu: int = 0
    cpus_per_task: int = 0
    cpus_per_gpu: int = 0
    gpus: int = 0
    """Number of GPUs of the whole job."""
    gpus_per_node: int = 0
    gpus_per_task: int = 0
    gpu_bind: str = ""
    gpu_type: str = ""
    """Slurm's name of the GPU in ``--gres=gpu:NAME:N``."""
    is_exclusive: bool = False
    """Whether the job has its nodes for itself, with all their GPUs."""
    computed_ranks: bool = False
    """Whether the script computes the number of ranks, so that it is not known."""


def implied_nodes(shape: SlurmShape) -> int:
    """Return the nodes that Slurm needs for tasks or GPUs of which only so many fit on a node; 0 without such numbers.

    Slurm takes ``--ntasks-per-node`` for the most tasks on a node if ``--ntasks`` is given, too.
    """
    pairs = ((shape.ntasks, shape.ntasks_per_node), (shape.gpus, shape.gpus_per_node))
    return max(-(-number // each) if each else 0 for number, each in pairs)


def with_tasks_of_gpus(shape: SlurmShape) -> SlurmShape:
    """Compute the tasks from the GPUs, or the GPUs from the tasks, as Slurm does for ``--ntasks-per-gpu``."""
    each = shape.ntasks_per_gpu
    if not each or shape.ntasks_per_node:
        return shape
    if shape.ntasks:
        has_gpus = shape.gpus or shape.gpus_per_node
        return shape if has_gpus else replace(shape, gpus=-(-shape.ntasks // each))
    return replace(shape, ntasks=each * shape.gpus, ntasks_per_node=0 if shape.gpus else each * shape.gpus_per_node)


def is_even(shape: SlurmShape) -> bool:
    """Return whether each node has ``--ntasks-per-node`` tasks, and not fewer because of ``--ntasks``."""
    return shape.ntasks in {0, shape.ntasks_per_node * max(1, shape.nodes)}


def shape_keys(shape: SlurmShape, launcher: str, processes: int) -> dict[str, Any]:
    """Return the keys for a shape.

    Parameters
    ----------
    launcher
        The launcher of the job: torchrun starts `processes` ranks in each of Slurm's tasks.
    processes
        Processes of torchrun on each node, or of mpirun in all; 0 if the script leaves them to the launcher.
    """
    keys: dict[str, Any] = {}
    shape = shape if is_even(shape) else replace(shape, ntasks_per_node=0)
    tasks = shape.ntasks_per_node or (-(-shape.ntasks // max(1, shape.nodes)) if shape.ntasks else 0)
    if shape.nodes:
        keys["nodes"] = shape.nodes
    if shape.gpus_per_node or shape.gpus_per_task:
        keys["gpus_per_node"] = shape.gpus_per_node or shape.gpus_per_task * max(1, tasks)
    elif shape.gpus:
        keys["gpus"] = shape.gpus
    if shape.gpu_type:
        keys["gpu_type"] = shape.gpu_type
    return keys | _rank_keys(shape, launcher, processes, tasks, keys.get("gpus_per_node", 0))


def gpu_binding(shape: SlurmShape) -> str:
    """Return the option of sbatch that gives each rank its own GPUs; empty if all ranks of a node see its GPUs."""
    each = shape.gpus_per_task
    of_tasks = "single:1" if each == 1 else f"per_task:{each}" if each else ""
    binding = shape.gpu_bind or of_tasks or (f"single:{shape.ntasks_per_gpu}" if shape.ntasks_per_gpu else "")
    return f"--gpu-bind={binding}" if binding else ""


def has_default_tasks(shape: SlurmShape) -> bool:
    """Return whether the script leaves the number of tasks to Slurm: one on each node."""
    return not (shape.ntasks or shape.ntasks_per_node or shape.gpus_per_task or shape.computed_ranks)


def _rank_keys(shape: SlurmShape, launcher: str, processes: int, tasks: int, gpus_per_node: int) -> dict[str, Any]:
    """Return the keys for ranks and their cores; `tasks` is the number of Slurm's tasks on each node."""
    keys: dict[str, Any] = {}
    gpus = gpus_per_node or shape.gpus // max(1, shape.nodes)
    cores = shape.cpus_per_task or shape.cpus_per_gpu * gpus // max(1, tasks)
    if launcher == "torchrun":
        ranks = processes or gpus
        keys["ranks_per_node"] = processes
        cores = cores * max(1, tasks) // max(1, ranks)
    elif launcher == "none":
        cores = cores * max(1, tasks) or (tasks if tasks > 1 else 0)  # Slurm's default is one core for each task
        keys["ranks_per_node"] = 1 if gpus_per_node or shape.gpus else 0
    elif launcher == "mpi" and processes:
        keys["ranks"] = processes
    else:
        keys["ranks_per_node" if shape.ntasks_per_node else "ranks"] = shape.ntasks_per_node or shape.ntasks
        if has_default_tasks(shape) and (gpus_per_node or shape.gpus or shape.nodes or shape.is_exclusive):
            keys["ranks_per_node"] = 1  # Slurm's default is one task; Argosy's is one rank per GPU
    keys["cpus_per_rank"] = cores
    return {key: value for key, value in keys.items() if value}
