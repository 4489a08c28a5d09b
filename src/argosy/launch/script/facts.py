"""The facts that scripts are rendered from: those of every script, and those of a batch script of Slurm."""

from __future__ import annotations

import msgspec

from argosy.core.model import Choice
from argosy.host.gpus import MODE_VENDOR
from argosy.jobs.launch_plan import JobShape
from argosy.launch.launchers.launcher import LauncherCommand
from argosy.launch.model import LaunchRequest
from argosy.launch.script.parts import Resume
from argosy.launch.shape import spare_cores
from argosy.runtimes.container_plan import ContainerPlan
from argosy.sites.job_settings import SiteSettings
from argosy.sites.profile import Site
from argosy.slurm.sbatch import JobOptions

VENDOR_NODES = {"nvidia": "/dev/nvidiactl", "amd": "/dev/kfd", "intel": "/dev/dri"}
"""Device node of each vendor's GPUs: if it is missing, ``--nv`` and ``--rocm`` fail without an error."""


class ScriptFacts(msgspec.Struct, frozen=True):
    """The facts that a script is rendered from."""

    name: str
    site: str
    container: ContainerPlan
    started: LauncherCommand
    shape: JobShape
    choices: tuple[Choice, ...]
    before: tuple[str, ...] = ()
    """Shell commands to run once in the image before the ranks start."""

    @property
    def gpu_node(self) -> str:
        """The device node that must exist; empty for a launch without GPUs."""
        return VENDOR_NODES.get(MODE_VENDOR.get(self.container.entry.gpu, ""), "")


class SlurmFacts(msgspec.Struct, frozen=True):
    """The facts that a batch script is rendered from, in addition to those of a local script."""

    script: ScriptFacts
    site: Site
    request: LaunchRequest
    """The completed request, of which the script has some options as they are."""
    options: JobOptions
    """Options of the job, completed by the defaults of the user and the site."""
    masks: tuple[int, ...] = ()
    """CPU mask of each local rank of a full node; empty if ranks are not bound."""
    mpi: str = ""
    """Value of ``srun --mpi`` (``pmix``, ``pmi2``), or ``mpiexec``; empty without MPI."""
    record: str = ""
    """Folder of the job's record; empty for a script without a record."""
    resume: Resume | None = None
    """How the job is requeued; None if it is not."""
    least_nodes: int = 0
    """The fewest nodes with which the job may continue; 0 if it needs all."""
    site_settings: SiteSettings = msgspec.field(default_factory=SiteSettings)
    """Options of sbatch and srun, folders and paths on each node that the site's profile adds."""

    @property
    def cores_per_node(self) -> int:
        """Cores of a node that its ranks and masks need: a smaller step might get other cores."""
        shape = self.script.shape
        return shape.cpus_per_rank * shape.ranks_per_node + (spare_cores(shape, self.site) if self.masks else 0)
