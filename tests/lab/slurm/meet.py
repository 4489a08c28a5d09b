"""Sum the ranks at MASTER_ADDR:MASTER_PORT, and print the line of train.py: eight ranks without eight torches."""

import json
import os
import socket
import sys
import time
from contextlib import suppress


def total_of(rank: int, world: int, place: tuple[str, int]) -> int:
    """Give the sum of all ranks: the first one adds up and answers."""
    if rank:
        with reach(place) as asked, asked.makefile("rw") as lines:
            lines.write(f"{rank}\n")
            lines.flush()
            return int(lines.readline())
    with socket.create_server(place) as server:
        told = [server.accept()[0].makefile("rw") for _ in range(world - 1)]
    total = sum(int(lines.readline()) for lines in told)
    for lines in told:
        lines.write(f"{total}\n")
        lines.close()
    return total


def reach(place: tuple[str, int]) -> socket.socket:
    """Connect to the first rank, which may begin later; the job's time limit ends a try that has no end."""
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection(place)
        time.sleep(0.05)


def main() -> None:
    """Meet, and print what this rank was given."""
    environment = os.environ
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    row = {
        "rank": rank,
        "world": world,
        "local": int(environment["LOCAL_RANK"]),
        "host": socket.gethostname(),
        "sum": total_of(rank, world, (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))),
        "cores": sorted(os.sched_getaffinity(0)),
        "gpus": environment.get("ZE_AFFINITY_MASK") or environment.get("CUDA_VISIBLE_DEVICES", ""),
    }
    sys.stdout.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
