"""Add up the ranks of an MPI job, by the C library alone: python3 allreduce.py LIBRARY openmpi|mpich."""

import ctypes
import sys

library = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)


def handle(symbol: str, number: int) -> object:
    """Open MPI's handles are addresses of its own symbols, MPICH's are numbers of its ABI (mpi.h)."""
    if sys.argv[2] == "openmpi":
        return ctypes.byref(ctypes.c_char.in_dll(library, symbol))
    return number


world = handle("ompi_mpi_comm_world", 0x44000000)
rank, size, total = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
library.MPI_Init(None, None)
library.MPI_Comm_rank(world, ctypes.byref(rank))
library.MPI_Comm_size(world, ctypes.byref(size))
integer, add = handle("ompi_mpi_int", 0x4C000405), handle("ompi_mpi_op_sum", 0x58000003)
library.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, integer, add, world)
sys.stdout.write(f"rank {rank.value} of {size.value}, sum {total.value}\n")
library.MPI_Finalize()
