"""The plan of a launch: the record that a dry run prints, a run carries out and a job keeps."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.core.model import NO_VALUES, Choice

SHARE = "cores of the node / ranks"
"""Value of the choice "cores per rank" if the ranks share what Slurm gives."""


class Shape(msgspec.Struct, frozen=True):
    """How many of what.

    Attributes
    ----------
    ranks_per_node
        Ranks on each node.
    gpus_per_node
        GPUs asked for on each node; 0 for none.
    cpus_per_rank
        Cores of each rank; 0 leaves it to the scheduler.
    """

    nodes: int
    ranks_per_node: int
    gpus_per_node: int = 0
    cpus_per_rank: int = 0

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.nodes * self.ranks_per_node


class LaunchPlan(msgspec.Struct, frozen=True):
    """A launch, complete: what a dry run prints and what a real run carries out are this one value.

    Attributes
    ----------
    script
        The whole text of the job script.
    submit
        The words that start it, with ``{script}`` for its path.
    attach
        The script that runs a second command in the container of this job; empty where there is no scheduler.
    cores
        The cores that each local rank is bound to; empty where ranks are not bound.
    logs
        Folder in which each rank has a file; empty where there is one output.
    versions
        Of Argosy, and of torch, ROCm, CUDA and NCCL in the image, as far as it tells them.
    output
        Where the job writes, with Slurm's own patterns in it; empty where it writes to this terminal.
    directives
        The options of sbatch, as the script has them.
    polling_seconds
        How often a scheduler may be asked about it.
    private
        Whether the script holds values of the caller's environment.
    """

    name: str
    site: str
    scheduler: str
    image: str
    digest: str
    shape: Shape
    script: str
    submit: tuple[str, ...]
    choices: tuple[Choice, ...]
    attach: str = ""
    cores: tuple[str, ...] = ()
    logs: str = ""
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    output: str = ""
    directives: tuple[str, ...] = ()
    polling_seconds: float = 5.0
    private: bool = False

    @property
    def is_job(self) -> bool:
        """Whether the script is a job of Slurm; otherwise it runs on this machine."""
        return self.scheduler == "slurm"
