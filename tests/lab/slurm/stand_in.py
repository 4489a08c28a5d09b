# ruff: noqa: T201 - its output is what the tests read
"""Stands in for NCCL in lab jobs: the lab's GPUs are files without a function, so NCCL cannot run there.

It writes the log and the measurement that NCCL and `argosy bench collectives` would write on a site with two cards.
"""

from __future__ import annotations

import os
from pathlib import Path

RANK, LOCAL = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
HOST = os.environ["SLURMD_NODENAME"]
BUS = ("41000", "81000")
NODE = HOST.lstrip("node")
CARDS = (f"NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ib0:10.10.0.{NODE}<0>", "Using network IB")
NO_CARDS = ("NET/IB : No device found.", f"NET/Socket : Using [0]eth0:10.77.0.{NODE}<0>", "Using network Socket")
"""What NCCL logs with and without InfiniBand cards."""
FAST, SLOW = (2.1, 9.4, 23.1), (0.2, 0.8, 1.1)
"""Bus bandwidth in GB/s for each size."""
SIZES = {"64 KiB": 1 << 16, "1 MiB": 1 << 20, "1 GiB": 1 << 30}


def start_network() -> None:
    """Write the lines that NCCL 2.27 writes when it starts (tests/corpus/nccl); no card has the name of a setting."""
    cards, pattern = os.environ.get("NCCL_IB_HCA", ""), os.environ.get("NCCL_DEBUG_FILE", "")
    if not pattern:
        return
    start = f"{HOST}:{os.getpid()}:{os.getpid()} [{LOCAL}] NCCL INFO "
    used = f"ncclCommInitRankConfig comm 0x1 rank {RANK} nranks {os.environ['WORLD_SIZE']} cudaDev {LOCAL}"
    network = (f"NCCL_IB_HCA set to {cards}", *NO_CARDS) if cards else CARDS
    lines = ("NCCL version 2.27.5+cuda12.9", *network, f"{used} busId {BUS[LOCAL]} - Init START")
    file = Path(pattern.replace("%h", HOST).replace("%p", str(os.getpid())))
    file.write_text("".join(f"{start}{line}\n" for line in lines))


def measure_network() -> None:
    """Print the table of `argosy bench collectives` on rank 0."""
    if RANK:
        return
    ranks, speeds = int(os.environ["WORLD_SIZE"]), SLOW if "NCCL_IB_HCA" in os.environ else FAST
    print(f"# all_reduce · {ranks} ranks on {int(os.environ['SLURM_JOB_NUM_NODES'])} nodes · nccl on A100 · torch 2.7")
    for (size, length), bus in zip(SIZES.items(), speeds, strict=True):
        algorithm = bus / (2 * (ranks - 1) / ranks)
        milliseconds = length / algorithm / 1e6
        print(f"  {size:>10} {milliseconds:.3f} ms {algorithm:.3f} {bus:.3f} {bus * 0.97:.3f} {bus * 1.02:.3f}")
    print(f"# Peak bus bandwidth : {speeds[-1]:.3f} GB/s at {[*SIZES][-1]}", flush=True)
