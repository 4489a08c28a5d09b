"""Train a linear model with Lightning; Argosy starts the ranks, and Lightning finds them."""

import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 1)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=False)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main() -> None:
    """Train for five epochs on all ranks."""
    lightning.seed_everything(0)
    inputs = torch.randn(4096, 16)
    loader = DataLoader(TensorDataset(inputs, inputs.sum(dim=1, keepdim=True)), batch_size=64)
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    trainer = lightning.Trainer(
        max_epochs=5,
        devices=local_ranks,
        num_nodes=int(os.environ.get("WORLD_SIZE", "1")) // local_ranks,
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
    )
    trainer.fit(Model(), loader)
    if trainer.is_global_zero:
        print(f"loss {trainer.callback_metrics['loss']:.5f} on {trainer.world_size} rank(s)", flush=True)
    # Without this, torch 2.13 with gloo may abort while Python ends: https://github.com/pytorch/pytorch/issues/190489
    os._exit(0)


if __name__ == "__main__":
    main()
