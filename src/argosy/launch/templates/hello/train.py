"""Print where each rank runs: host, cores, GPUs, and the speed of a matrix product on its cores."""

import os
import socket
import time
from pathlib import Path

import numpy as np

rank, ranks = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
cores = sorted(os.sched_getaffinity(0))
names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
selected = next((os.environ[name] for name in names if os.environ.get(name)), "")
devices = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev/dri").glob("renderD*")]
gpus = selected or ", ".join(sorted(map(str, devices))) or "none"

size = 1500
matrix = np.random.default_rng(0).random((size, size))
start = time.perf_counter()
matrix @ matrix
speed = 2 * size**3 / (time.perf_counter() - start) / 1e9

host = socket.gethostname()
print(f"rank {rank} of {ranks} on {host}: cores {cores}, GPUs: {gpus}, {speed:.0f} GFlop/s", flush=True)
