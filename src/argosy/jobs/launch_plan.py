"""The plan of a launch: a dry run prints it, a real run starts it, and the record of a job contains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from argosy.core.model import NO_VALUES, Choice

SHARE = "cores of the node / ranks"
"""Value of the choice "cores per rank" if the ranks share what Slurm gives."""


class JobShape(msgspec.Struct, frozen=True):
    """Numbers of nodes, ranks, GPUs and cores."""

    nodes: int
    ranks_per_node: int
    """Ranks on each node."""
    gpus_per_node: int = 0
    """Requested GPUs on each node."""
    cpus_per_rank: int = 0
    """Cores of each rank; 0 if the scheduler decides."""

    @property
    def ranks(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.ranks_per_node


class LaunchPlan(msgspec.Struct, frozen=True):
    """A complete launch: a dry run prints this value, and a real run starts it."""

    name: str
    site: str
    scheduler: str
    image: str
    digest: str
    shape: JobShape
    script: str
    """Text of the job script."""
    submit: tuple[str, ...]
    """Command that starts the script; ``{script}`` is replaced by its path."""
    choices: tuple[Choice, ...]
    command: tuple[str, ...] = ()
    """The program of each rank with its arguments."""
    attach: str = ""
    """Script that runs another command in the container of this job; empty without Slurm."""
    cores: tuple[str, ...] = ()
    """Cores that each local rank is bound to; empty if ranks are not bound."""
    logs: str = ""
    """Folder with an output file per rank; empty if the job has one output."""
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_VALUES)
    """Known versions of Argosy, and of torch, ROCm, CUDA and NCCL in the image."""
    output: str = ""
    """Output file with Slurm's patterns; empty if the job writes to this terminal."""
    directives: tuple[str, ...] = ()
    """Options of sbatch in the script."""
    polling_seconds: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """Seconds between two queries to Slurm."""
    private: tuple[str, ...] = ()
    """Names of the variables whose values the script has from the caller's environment."""
    step_options: tuple[str, ...] = ()
    """Options that the site needs with every srun."""

    @property
    def is_job(self) -> bool:
        """Whether the script is a job of Slurm; otherwise it runs on this machine."""
        return self.scheduler == "slurm"


NO_PLAN = LaunchPlan(
    name="", site="", scheduler="", image="", digest="", shape=JobShape(0, 0), script="", submit=(), choices=()
)
"""The plan of a record that has none, or whose plan is damaged."""
