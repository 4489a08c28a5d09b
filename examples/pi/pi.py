"""Compute pi as the integral of 4 / (1 + x²) from 0 to 1, its steps split over the ranks, and check it.

A first distributed program: it shows that every rank started, where, and that the ranks reach each other. It never
reads or writes a file.
"""

from __future__ import annotations

import argparse
import math
import os
import socket
import sys
import time
from typing import NoReturn

import torch
import torch.distributed as dist

CHUNK = 1 << 20  # midpoints held in memory at once: 8 MiB of doubles


# The other examples pick their device in the same few lines: each folder is meant to be copied alone.
def find_place() -> tuple[int, int, torch.device, str]:
    """Return this rank, the number of ranks, the device found here and its backend (empty when alone)."""
    found = [pair for pair in (("cuda", "nccl"), ("xpu", "xccl")) if getattr(torch, pair[0]).is_available()]
    kind, backend = found[0] if found else ("cpu", "gloo")  # ROCm's torch calls its devices cuda, RCCL nccl
    device = torch.device(kind)
    if found:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        # Slurm can show each task one GPU of its own, which is number 0 to all of them: hence the remainder.
        device = torch.device(kind, local_rank % getattr(torch, kind).device_count())
        getattr(torch, kind).set_device(device)
    if "RANK" not in os.environ:
        return 0, 1, device, ""
    dist.init_process_group(backend, device_id=device if found else None)
    return dist.get_rank(), dist.get_world_size(), device, backend


def main() -> int:
    """Integrate, add up, compare; return 0 when the sum is pi to within the bound."""
    options = parse_options()
    started = time.perf_counter()
    rank, ranks, device, backend = find_place()
    if rank == 0 and device.type == "cpu":
        say("No GPU found: computing on the CPU.")
    first, end = rank * options.steps // ranks, (rank + 1) * options.steps // ranks
    share = integrate(first, end, options.steps, device)
    where = f"rank {rank} of {ranks} on {socket.gethostname()} ({device})"
    say(f"{where}: {end - first} of {options.steps} steps, share {share.item():.15f}")
    if backend:
        dist.all_reduce(share)
        dist.destroy_process_group()
    if rank != 0:
        return 0
    bound = options.bound if options.bound is not None else error_bound(options.steps)
    code = judge(share.item(), bound, f"{ranks} {'rank' if ranks == 1 else 'ranks'} ({backend or 'alone'})")
    say(f"Time: {time.perf_counter() - started:.2f} seconds")
    return code


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Compute pi, alone or as ranks of torchrun.")
    parser.add_argument("--steps", type=positive, default=10_000_000, metavar="N", help="default: 10 million")
    parser.add_argument("--bound", type=float, metavar="X", help="allowed error (default: what the step size explains)")
    return parser.parse_args()


def positive(word: str) -> int:
    """Parse a number of at least 1."""
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return number


def integrate(first: int, end: int, steps: int, device: torch.device) -> torch.Tensor:
    """Add up the midpoint rule's steps from ``first`` to before ``end``, in double precision."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start in range(first, end, CHUNK):
        numbers = torch.arange(start, min(start + CHUNK, end), dtype=torch.float64, device=device)
        midpoints = (numbers + 0.5) / steps
        total += (4.0 / (1.0 + midpoints * midpoints)).sum()
    return total / steps


def error_bound(steps: int) -> float:
    """Return the largest error that the method explains.

    The midpoint rule errs by at most h²/24 · max|f''|, and |f''| of 4 / (1 + x²) is at most 8 on [0, 1] (at x = 0):
    h²/3. Rounding comes on top: torch adds pairwise, so a few dozen units in the last place of pi are ample.
    """
    return 1.0 / (3.0 * steps * steps) + 64 * math.ulp(math.pi)


def judge(result: float, bound: float, ranks: str) -> int:
    """Print the result next to pi; return 1 when they are farther apart than the bound."""
    error = abs(result - math.pi)
    distance = f"off by {error:.1e}, allowed {bound:.1e}"
    if not error <= bound:  # written so that NaN fails, too
        print(f"pi.py: {result:.15f} is not pi, {math.pi:.15f}: {distance}", file=sys.stderr)
        return 1
    say(f"pi = {result:.15f} · {distance} · {ranks}")
    return 0


def say(text: str) -> None:
    """Print a line in one piece and at once: ranks share one pipe, and print() alone may write the line's end later."""
    print(f"{text}\n", end="", flush=True)


def leave(code: int) -> NoReturn:
    """End the process without Python's own tidying up.

    A gloo thread that drops its last tensor meanwhile aborts the process, and a run that succeeded ends with SIGABRT
    (https://github.com/pytorch/pytorch/issues/190489, seen with torch 2.13 at 4 ranks on 2 busy cores).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
