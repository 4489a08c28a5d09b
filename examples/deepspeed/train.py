"""Fit a linear model with DeepSpeed, ZeRO stage 1, on GPUs or CPUs; each rank draws its own data."""

from __future__ import annotations

import argparse

import deepspeed
import torch

CONFIG = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 2,
    "optimizer": {"type": "Adam", "params": {"lr": 0.1, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


def main() -> None:
    """Train, and print the last loss."""
    parser = argparse.ArgumentParser(description="Fit a linear model with DeepSpeed.")
    parser.add_argument("--steps", type=int, default=200, metavar="N")
    steps = parser.parse_args().steps
    deepspeed.init_distributed()
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    torch.manual_seed(1)
    target = torch.randn(16, 1)
    model = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=CONFIG)
    generator = torch.Generator().manual_seed(rank)
    loss = torch.tensor(0.0)
    for _ in range(steps):
        inputs = torch.randn(32, 16, generator=generator)
        loss = torch.nn.functional.mse_loss(engine(inputs.to(engine.device)), (inputs @ target).to(engine.device))
        engine.backward(loss)
        engine.step()
    if rank == 0:
        state = f"{ranks} ranks on {engine.device.type}, ZeRO stage {engine.zero_optimization_stage()}"
        print(f"{state}: loss {loss.item():.4f} after {steps} steps")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
