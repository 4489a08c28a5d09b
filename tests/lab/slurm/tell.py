"""Say in one line of JSON what this rank is and was given; needs nothing but Python."""

import hashlib
import json
import os
import socket
import sys


def digest(word: str) -> str:
    """Shorten a word to what shows whether it is the same: srun hands on 1,024 bytes at a time, the line must fit."""
    return hashlib.sha256(os.fsencode(word)).hexdigest()[:8]


def main() -> None:
    """Print the line in one piece: ranks share a file."""
    environment = os.environ
    names: tuple[str, ...] = (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "NODE_RANK",
        "GROUP_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
    )
    names += ("MASTER_PORT", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "SLURM_JOB_ID", "SLURM_JOB_NAME")
    names += ("SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID")
    names += ("SLURM_NTASKS_PER_NODE", "SLURM_STEP_NUM_NODES", "JAX_COORDINATOR_ADDRESS")
    told = {
        "rank": int(environment.get("RANK") or environment.get("SLURM_PROCID") or 0),
        "host": socket.gethostname(),
        "cwd": os.getcwd(),  # noqa: PTH109 - as the program sees it
        "cores": sorted(os.sched_getaffinity(0)),
        "words": [digest(word) for word in sys.argv[1:]],
        "set": {name: environment[name] for name in names if name in environment},
        "hostile": {name: digest(value) for name, value in environment.items() if name.startswith("X_")},
    }
    sys.stdout.write(json.dumps(told, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
