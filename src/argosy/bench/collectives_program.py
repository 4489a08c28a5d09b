"""Measure a collective operation over all ranks. It needs PyTorch, and the launcher's RANK and WORLD_SIZE.

Usage: python -c PROGRAM OPERATION MOST_BYTES

Bandwidths are in GB/s (1e9 bytes), medians of several samples; `low` and `high` are the quartiles of the bus bandwidth.
The bus bandwidth is the algorithm bandwidth, multiplied by a factor that makes it
independent of the number of ranks (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    sys.exit(f"argosy bench: the image does not contain PyTorch: {missing}")

LEAST, STEP = 64 << 10, 4
MOST_GPU, MOST_CPU = 1 << 30, 64 << 20
WARM, SAMPLES, ROUNDS_MOST, SECONDS = 3, 7, 200, 0.4


def find_device() -> tuple[Any, str]:
    """Return the device of this rank, and the backend of its vendor's library."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if torch.cuda.is_available():
        torch.cuda.set_device(local % torch.cuda.device_count())
        return torch.device("cuda", torch.cuda.current_device()), "nccl"
    if hasattr(torch, "xpu") and torch.xpu.is_available():
        torch.xpu.set_device(local % torch.xpu.device_count())
        return torch.device("xpu", torch.xpu.current_device()), "xccl"
    return torch.device("cpu"), "gloo"


def wait_for(device: Any) -> None:
    """Wait until the device has finished its work."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize()


def make_operation(name: str, count: int, ranks: int, device: Any) -> tuple[Callable[[], Any], Any, float]:
    """Return the operation on `count` numbers, its buffer, and the expected sum of the buffer afterwards."""
    if name == "all_gather":
        whole = torch.zeros(count - count % ranks, device=device)
        part = torch.ones(len(whole) // ranks, device=device)
        return (lambda: dist.all_gather(list(whole.chunk(ranks)), part)), whole, float(len(whole))
    data = torch.ones(count, device=device)
    if name == "broadcast":
        return (lambda: dist.broadcast(data, 0)), data, float(count)
    return (lambda: dist.all_reduce(data)), data, float(count) * ranks


def measure(name: str, size: int, ranks: int, device: Any) -> tuple[float, float, float]:
    """Return the seconds of one operation on `size` bytes by the slowest rank: quartiles and median of samples."""
    run, data, wanted = make_operation(name, max(size // 4, ranks), ranks, device)
    run()
    if abs(data.double().sum().item() - wanted) > 1e-6 * wanted:
        sys.exit(f"argosy bench: {name} of {size} bytes gave a wrong sum on rank {dist.get_rank()}")
    data.zero_()  # so that the sums of many rounds stay finite

    def timed(rounds: int) -> float:
        wait_for(device)
        dist.barrier()
        start = time.perf_counter()
        for _ in range(rounds):
            run()
        wait_for(device)
        worst = torch.tensor([(time.perf_counter() - start) / rounds], device=device, dtype=torch.float32)
        dist.all_reduce(worst, op=dist.ReduceOp.MAX)
        return float(worst.item())

    rounds = int(SECONDS / SAMPLES / max(timed(WARM), 1e-9))
    rounds = min(max(rounds, 1), ROUNDS_MOST // SAMPLES)
    low, middle, high = statistics.quantiles((timed(rounds) for _ in range(SAMPLES)), n=4)
    return low, middle, high


def label(size: int) -> str:
    """Return a size with its unit."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def main(name: str, most: int) -> None:
    """Measure sizes up to `most` bytes, and print a table."""
    if "RANK" not in os.environ:
        sys.exit("argosy bench: RANK is not set: use --launcher torchrun, srun or mpi")
    device, backend = find_device()
    dist.init_process_group(backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    nodes = max(1, ranks // int(os.environ.get("LOCAL_WORLD_SIZE", ranks)))
    kind = torch.cuda.get_device_name() if device.type == "cuda" else device.type
    say = print if rank == 0 else lambda *_words, **_more: None
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    say(f"# {name} · {ranks} ranks on {where} · {backend} on {kind} · torch {torch.__version__}")
    say(f"# {'size':>10} {'time':>12} {'algbw':>10} {'busbw':>10} {'low':>10} {'high':>10}   (GB/s)")
    factor = {"all_reduce": 2 * (ranks - 1) / ranks, "all_gather": (ranks - 1) / ranks, "broadcast": 1.0}[name]
    most = most or (MOST_CPU if device.type == "cpu" else MOST_GPU)
    sizes = [size for size in (LEAST * STEP**power for power in range(12)) if size < most] + [most]
    best, at = 0.0, most
    for size in sizes:
        fast, seconds, slow = measure(name, size, ranks, device)
        speed, low, high = (size / each / 1e9 for each in (seconds, slow, fast))
        numbers = " ".join(f"{each:>10.3f}" for each in (speed, speed * factor, low * factor, high * factor))
        say(f"  {label(size):>10} {seconds * 1e3:>9.3f} ms {numbers}", flush=True)
        best, at = max((best, at), (speed * factor, size))
    say(f"# Peak bus bandwidth : {best:.3f} GB/s at {label(at)}", flush=True)
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # a gloo thread may abort the process during a normal exit


main(sys.argv[1], int(sys.argv[2]))
