"""Compute pi as the integral of 4 / (1 + x²) from 0 to 1 with mpi4py, its steps split over the ranks, and check it.

It needs neither torch nor numpy, and shows that every rank started, where, by which MPI, and that the ranks reach each
other.  It never reads or writes a file.
"""

from __future__ import annotations

import math
import os
import sys

from mpi4py import MPI

STEPS = 1_000_000
BOUND = 1e-9
"""The midpoint rule errs by at most h²/3 here, which is far less; the rest is rounding of a plain sum."""


def main() -> int:
    """Integrate, add up, compare; return 0 when the sum is pi to within the bound."""
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    first, end = rank * STEPS // ranks, (rank + 1) * STEPS // ranks
    share = math.fsum(4.0 / (1.0 + ((step + 0.5) / STEPS) ** 2) for step in range(first, end)) / STEPS
    told = "/".join(os.environ.get(name, "?") for name in ("RANK", "WORLD_SIZE"))
    say(f"rank {rank} of {ranks} on {MPI.Get_processor_name()} (RANK/WORLD_SIZE {told}): {end - first} steps")
    result = world.reduce(share, root=0)
    if rank != 0:
        return 0
    library = MPI.Get_library_version().replace(":", " ").split(",")[0].split("\n")[0]
    error = abs(result - math.pi)
    say(f"pi = {result:.12f} · off by {error:.1e}, allowed {BOUND:.0e} · {ranks} ranks ({' '.join(library.split())})")
    return 0 if error <= BOUND else 1


def say(text: str) -> None:
    """Print a line in one piece and at once: ranks share one pipe."""
    print(f"{text}\n", end="", flush=True)


if __name__ == "__main__":
    sys.exit(main())
