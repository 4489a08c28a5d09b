"""Add the ranks up by MPI, called without a compiler: words openmpi or mpich say whose library, and whose handles."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from typing import Any

MPICH_HANDLES = {"world": 0x44000000, "int": 0x4C000405, "sum": 0x58000003}
"""Fixed in the ABI of MPICH and all that keep to it (mpi.h)."""

OPEN_MPI_SYMBOLS = {"world": "ompi_mpi_comm_world", "int": "ompi_mpi_int", "sum": "ompi_mpi_op_sum"}


def load(kind: str) -> tuple[ctypes.CDLL, dict[str, Any]]:
    """Load a library and its handles."""
    if kind == "mpich":
        return ctypes.CDLL("libmpich.so.12", ctypes.RTLD_GLOBAL), dict(MPICH_HANDLES)
    library = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    addresses = {name: ctypes.addressof(ctypes.c_char.in_dll(library, each)) for name, each in OPEN_MPI_SYMBOLS.items()}
    return library, {name: ctypes.c_void_p(address) for name, address in addresses.items()}


def main() -> None:
    """Initialise, add up, tell."""
    mpi, handle = load(sys.argv[1])
    mpi.MPI_Init(None, None)
    rank, size, total = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_int(-1)
    mpi.MPI_Comm_rank(handle["world"], ctypes.byref(rank))
    mpi.MPI_Comm_size(handle["world"], ctypes.byref(size))
    mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, handle["int"], handle["sum"], handle["world"])
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_ADDR")
    told = {"rank": rank.value, "size": size.value, "sum": total.value, "host": socket.gethostname()}
    told["set"] = {name: os.environ.get(name) for name in names}
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
    mpi.MPI_Finalize()


if __name__ == "__main__":
    main()
