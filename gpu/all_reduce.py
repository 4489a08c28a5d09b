"""A sum over all ranks with PyTorch: the smallest program that starts NCCL."""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist


def main() -> int:
    """Add the numbers of all ranks on the GPUs."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    total = torch.ones(1, device="cuda")
    dist.all_reduce(total)
    right = int(total.item()) == dist.get_world_size()
    dist.destroy_process_group()
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
