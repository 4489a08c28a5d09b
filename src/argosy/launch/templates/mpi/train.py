"""Compute pi with mpi4py: each rank integrates its part, and rank 0 adds them up."""

from mpi4py import MPI

STEPS = 1_000_000

world = MPI.COMM_WORLD
rank, ranks = world.Get_rank(), world.Get_size()
part = sum(4.0 / (1.0 + ((step + 0.5) / STEPS) ** 2) for step in range(rank, STEPS, ranks)) / STEPS
total = world.reduce(part, root=0)
print(f"rank {rank} of {ranks} on {MPI.Get_processor_name()}", flush=True)
if rank == 0:
    print(f"pi = {total:.10f} with {ranks} rank(s)", flush=True)
