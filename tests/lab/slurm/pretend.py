# ruff: noqa: T201 - its output is what the tests read
"""An example of a training program for the reports of lab jobs. It computes nothing.

NCCL needs GPUs, which the lab does not have, so the module stand_in takes its place.
Usage: pretend.py NETWORK [RANK]   This rank also reads the labels.
"""

from __future__ import annotations

import os
import sys
import time

from stand_in import measure_network, start_network  # type: ignore[import-not-found]  # lies beside it on the node

RANK = int(os.environ["RANK"])
SETTINGS = {"ib": {}, "sockets": {"NCCL_IB_HCA": "mlx4"}}
"""Variables of NCCL for each network."""
BATCHES: list[dict[str, int]] = [{"image": 7, "label": 1}] * 3 + [{"image": 7}]


def load_label(step: int) -> int:
    """Return the label of a batch."""
    return BATCHES[step % len(BATCHES)]["label"]


def train(network: str, labelled: int) -> None:
    """Train: all ranks print their steps."""
    os.environ.update(SETTINGS[network])
    start_network()
    time.sleep(2)
    if labelled < 0:
        measure_network()
    for step in range(8):
        label = load_label(step) if labelled == RANK else 1
        print(f"rank {RANK} step {step} loss {1.9 / (step + 1):.3f} label {label}", flush=True)
        time.sleep(1)


if __name__ == "__main__":
    train(sys.argv[1], labelled=int(sys.argv[2]) if len(sys.argv) > 2 else -1)
