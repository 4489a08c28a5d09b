"""Add numbers up over all ranks, step by step, and tell who starts and who is done."""

import datetime as dt
import os
import sys
import time

import torch
import torch.distributed as dist

STEP = 0.25


def say(text: str) -> None:
    """Print a line in one piece."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Take as many steps as the first word says."""
    # A node that loses its power resets no connection: then this is what the others wait before they go on without it.
    dist.init_process_group("gloo", timeout=dt.timedelta(seconds=90))
    rank, ranks = dist.get_rank(), dist.get_world_size()
    say(f"start rank {rank} of {ranks} on {os.uname().nodename}")
    total = torch.zeros(1)
    for _ in range(int(sys.argv[1])):
        dist.all_reduce(total)
        time.sleep(STEP)
    say(f"done rank {rank} of {ranks}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
