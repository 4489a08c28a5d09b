"""Train a small network on scikit-learn's handwritten digits with Lightning, alone or as ranks on several nodes.

Lightning finds its ranks by itself: torchrun's variables under the launcher torchrun, Slurm's under srun. It
cannot find the shape of the job, so nodes and ranks per node are taken from the variables that every launcher sets.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys

import lightning
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 0
PIXEL_MAX = 16.0  # load_digits: "each feature is an integer in the range 0..16"
TRAINED = 1347
"""Scans to train with, three quarters of them."""


class Digits(lightning.LightningModule):  # type: ignore[misc]  # Lightning is not installed for the checker
    """A network of two layers, which counts its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        """Give the loss of one batch."""
        scans, digits = batch
        return nn.functional.cross_entropy(self.network(scans), digits)

    def validation_step(self, batch: list[torch.Tensor], _index: int) -> None:
        """Log the share of scans that are read rightly, over all ranks."""
        scans, digits = batch
        right = (self.network(scans).argmax(dim=1) == digits).float().mean()
        self.log("accuracy", right, sync_dist=True, batch_size=len(digits))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Choose how weights change."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Train, judge, tell."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Lightning.")
    parser.add_argument("--epochs", type=int, default=10, metavar="N")
    epochs = parser.parse_args().epochs
    lightning.seed_everything(SEED, verbose=False)
    # Alone there are no such variables; --nodes 2 --ranks 4 sets them to 4 and 2.
    ranks, per_node = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
    trainer = lightning.Trainer(
        accelerator="auto",
        num_nodes=ranks // per_node,
        devices=per_node,
        strategy="ddp" if ranks > 1 else "auto",
        max_epochs=epochs,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Digits()
    trainer.fit(model, train_dataloaders=load(trained=True))
    (found,) = trainer.validate(model, dataloaders=load(trained=False), verbose=False)
    where = f"rank {trainer.global_rank} of {trainer.world_size} on {socket.gethostname()}"
    say(f"{where}: {trainer.global_step // epochs} steps an epoch")
    if trainer.is_global_zero:
        say(f"test accuracy {found['accuracy']:.2f} · {trainer.world_size} ranks")


def load(*, trained: bool) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Load the part to train with, or the part to judge by; Lightning gives each rank its own share."""
    scans, digits = load_digits(return_X_y=True)
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(SEED))
    chosen = order[:TRAINED] if trained else order[TRAINED:]
    inputs = torch.tensor(scans, dtype=torch.float32)[chosen] / PIXEL_MAX
    return DataLoader(TensorDataset(inputs, torch.tensor(digits)[chosen]), batch_size=32, shuffle=trained)


def say(text: str) -> None:
    """Print a line in one piece and at once: ranks share one pipe."""
    print(f"{text}\n", end="", flush=True)


def leave() -> None:
    """End the process without Python's own tidying up.

    A gloo thread that drops its last tensor meanwhile aborts the process, and a training that succeeded ends with
    SIGABRT (https://github.com/pytorch/pytorch/issues/190489).
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
    leave()
