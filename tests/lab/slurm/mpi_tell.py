"""Add the ranks up by MPI, and tell who each is."""

import json
import os
import sys

from mpi4py import MPI

OF_SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_NODEID")
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", *OF_SLURM)


def main() -> None:
    """Add up, tell."""
    world = MPI.COMM_WORLD
    told = {
        "rank": world.Get_rank(),
        "size": world.Get_size(),
        "sum": world.allreduce(world.Get_rank()),
        "host": MPI.Get_processor_name(),
        "library": "Open MPI" if "Open MPI" in MPI.Get_library_version() else "MPICH",
        "set": {name: os.environ.get(name) for name in NAMES},
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main()
