"""Add the ranks up by the MPICH of the image, called without a compiler, and tell the cores of this rank."""

import ctypes
import json
import os
import socket
import sys

WORLD, INT, SUM = 0x44000000, 0x4C000405, 0x58000003
"""Handles that are fixed in the ABI of MPICH and all that keep to it (mpi.h)."""


def main() -> None:
    """Initialise, add up, tell in one piece: ranks share a file."""
    mpi = ctypes.CDLL("libmpich.so.12", ctypes.RTLD_GLOBAL)
    rank, size, total = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_int(-1)
    mpi.MPI_Init(None, None)
    mpi.MPI_Comm_rank(WORLD, ctypes.byref(rank))
    mpi.MPI_Comm_size(WORLD, ctypes.byref(size))
    mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, INT, SUM, WORLD)
    told = {"rank": rank.value, "size": size.value, "sum": total.value, "host": socket.gethostname()}
    sys.stdout.write(json.dumps({**told, "cores": sorted(os.sched_getaffinity(0))}) + "\n")
    sys.stdout.flush()
    mpi.MPI_Finalize()


if __name__ == "__main__":
    main()
