"""Sum the ranks over gloo, and say in one line of JSON what this rank was given."""

import json
import os
import socket
import sys

import torch
import torch.distributed as dist


def main() -> None:
    """Take part in one all-reduce."""
    dist.init_process_group("gloo")
    total = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(total)
    row = {
        "rank": dist.get_rank(),
        "world": dist.get_world_size(),
        "local": int(os.environ["LOCAL_RANK"]),
        "host": socket.gethostname(),
        "sum": total.item(),
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": os.environ.get("ZE_AFFINITY_MASK") or os.environ.get("CUDA_VISIBLE_DEVICES", ""),
    }
    dist.destroy_process_group()
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
