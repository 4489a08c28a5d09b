"""A stand-in for torchrun on one machine: it starts the ranks with torchrun's variables, and ends with their exit code.

The kit's image contains no PyTorch. `argosy launch` starts ``python -m torch.distributed.run`` for local ranks.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys


def main() -> int:
    """Start the ranks, wait for them, and return the first exit code that is not 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nproc-per-node", type=int, required=True)
    parser.add_argument("--log-dir")
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("--no-python", action="store_true")
    parser.add_argument("-m", "--module", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    program = () if options.no_python else (sys.executable, *(("-m",) if options.module else ()))
    count = options.nproc_per_node
    ranks = []
    for rank in range(count):
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
        environment = {**os.environ, **{name: str(value) for name, value in names.items()}}
        ranks.append(subprocess.Popen((*program, *options.command), env=environment))
    return next(filter(None, [rank.wait() for rank in ranks]), 0)


if __name__ == "__main__":
    sys.exit(main())
