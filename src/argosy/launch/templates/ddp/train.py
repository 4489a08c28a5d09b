"""Train a linear model with PyTorch DDP, on CPUs or on any vendor's GPUs."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def set_up() -> torch.device:
    """Join the other ranks, and return the device of this rank."""
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    for kind, backend in (("cuda", "nccl"), ("xpu", "xccl")):  # ROCm's torch calls its devices cuda
        accelerator = getattr(torch, kind)
        if accelerator.is_available():
            # Slurm can show each rank one GPU only, which is then number 0.
            device = torch.device(kind, local_rank % accelerator.device_count())
            accelerator.set_device(device)
            dist.init_process_group(backend)
            return device
    dist.init_process_group("gloo")
    return torch.device("cpu")


def main() -> None:
    """Train for five epochs, and print the loss of each."""
    device = set_up()
    torch.manual_seed(0)
    inputs = torch.randn(4096, 16)
    data = TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))
    sampler: DistributedSampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=64, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(16, 1).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.zeros(1)
    for epoch in range(5):
        sampler.set_epoch(epoch)
        for batch, target in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(batch.to(device)), target.to(device))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(
                f"epoch {epoch}: loss {loss.item():.5f} on {dist.get_world_size()} rank(s), {device.type}", flush=True
            )
    dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    # Without this, torch 2.13 with gloo may abort while Python ends: https://github.com/pytorch/pytorch/issues/190489
    os._exit(0)


if __name__ == "__main__":
    main()
