"""The facts that the batch script of a job is rendered from."""

from __future__ import annotations

import msgspec

from argosy.launch.cores import spare_cores
from argosy.launch.script.local import ScriptFacts
from argosy.launch.script.parts import Resume
from argosy.sites.job_settings import SiteSettings
from argosy.sites.profile import Site
from argosy.slurm.sbatch import JobOptions


class SlurmFacts(msgspec.Struct, frozen=True):
    """The facts that a batch script is rendered from, in addition to those of a local script.

    Attributes
    ----------
    extra
        Options of sbatch that Argosy does not have.
    masks
        CPU mask of each local rank of a full node; empty if ranks are not bound.
    mpi
        Value of ``srun --mpi`` (``pmix``, ``pmi2``), or ``mpiexec``; empty without MPI.
    record
        Folder of the job's record; empty for a script without a record.
    resume
        How the job is requeued; None if it is not.
    label
        Whether srun begins each line with its rank.
    gpu_type
        Slurm's name for a type of GPU; empty for any.
    least_nodes
        The fewest nodes with which the job may continue; 0 if it needs all.
    stage_to
        Folder on each node's own disk to copy the image to; empty: no copy.
    smoke
        Whether the job is a short test, which a timer ends.
    independent_ranks
        Whether ranks are independent, so that a failed rank or a lost node does not end the others.
    site_settings
        Options of sbatch and srun, folders and paths on each node that the site's profile adds.
    """

    script: ScriptFacts
    site: Site
    options: JobOptions
    extra: tuple[str, ...] = ()
    masks: tuple[int, ...] = ()
    mpi: str = ""
    record: str = ""
    resume: Resume | None = None
    label: bool = False
    gpu_type: str = ""
    least_nodes: int = 0
    stage_to: str = ""
    smoke: bool = False
    independent_ranks: bool = False
    site_settings: SiteSettings = msgspec.field(default_factory=SiteSettings)

    @property
    def cores_per_node(self) -> int:
        """Cores of a node that its ranks and masks need: a smaller step might get other cores."""
        shape = self.script.shape
        return shape.cpus_per_rank * shape.ranks_per_node + (spare_cores(shape, self.site) if self.masks else 0)
