"""Train one linear layer on random samples with PyTorch DDP: the smallest trainer that shows how ranks share the work.

The same program runs alone, on the GPUs of one node, and on several nodes: the steps per epoch divide with the ranks.
It never writes a file but the snapshot, and never leaves a half-written one.
"""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 0
SAMPLES = 2048
FEATURES = 20


class SnapshotError(Exception):
    """The snapshot cannot be read or written, said in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of this process among the ranks, and its device; ``backend`` is empty when it is alone."""

    rank: int
    ranks: int
    device: torch.device
    backend: str

    @property
    def label(self) -> str:
        """Name the rank by what it computes on: GPU2 is the third rank of all nodes, and has a GPU."""
        return f"{'CPU' if self.device.type == 'cpu' else 'GPU'}{self.rank}"


# The other examples pick their device in the same few lines: each folder is meant to be copied alone.
def find_place() -> Place:
    """Take the device that this rank finds, and join the other ranks with the backend that fits it."""
    found = [pair for pair in (("cuda", "nccl"), ("xpu", "xccl")) if getattr(torch, pair[0]).is_available()]
    kind, backend = found[0] if found else ("cpu", "gloo")  # ROCm's torch calls its devices cuda, RCCL nccl
    device = torch.device(kind)
    if found:
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        # Slurm can show each task one GPU of its own, which is number 0 to all of them: hence the remainder.
        device = torch.device(kind, local_rank % getattr(torch, kind).device_count())
        getattr(torch, kind).set_device(device)
    if "RANK" not in os.environ:
        return Place(0, 1, device, "")
    dist.init_process_group(backend, device_id=device if found else None)
    return Place(dist.get_rank(), dist.get_world_size(), device, backend)


class Trainer:
    """A model with its data and optimizer, on one rank's device."""

    def __init__(self, place: Place, snapshot: Path, batch_size: int) -> None:
        self.place = place
        self.snapshot = snapshot
        # One seed for all: ranks must agree on the samples, of which the sampler gives each rank its own part.
        torch.manual_seed(SEED)
        samples = TensorDataset(torch.rand(SAMPLES, FEATURES), torch.rand(SAMPLES, 1))
        sampler = DistributedSampler(samples, num_replicas=place.ranks, rank=place.rank, seed=SEED)
        self.batches = DataLoader(samples, batch_size=batch_size, sampler=sampler)
        self.model = nn.Linear(FEATURES, 1).to(place.device)
        self.next_epoch = self.load_snapshot()
        # Made after loading, since it hands rank 0's weights to all; plain names stay in self.model, for the snapshot.
        self.parallel = DistributedDataParallel(self.model) if place.backend else self.model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

    def train(self, total_epochs: int, save_every: int) -> None:
        """Train the epochs that are missing, with a snapshot after every ``save_every``-th and after the last."""
        for epoch in range(self.next_epoch, total_epochs):
            self.train_epoch(epoch)
            if epoch % save_every == 0 or epoch == total_epochs - 1:
                self.save_snapshot(epoch)

    def train_epoch(self, epoch: int) -> None:
        """Go once through this rank's part of the samples."""
        place, batches = self.place, self.batches
        say(f"[{place.label}] Epoch {epoch} | Batchsize: {batches.batch_size} | Steps: {len(batches)}")
        batches.sampler.set_epoch(epoch)
        for source, target in batches:
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.parallel(source.to(place.device)), target.to(place.device))
            loss.backward()
            self.optimizer.step()

    def load_snapshot(self) -> int:
        """Load what the snapshot holds; return the epoch to train next.

        Rank 0 reads for all: a node that does not see the file must not begin at another epoch than the others.
        """
        epoch, problem = self.share(self.read_snapshot() if self.place.rank == 0 else None)
        if problem:
            raise SnapshotError(f"cannot resume from {self.snapshot}: {problem}; move it away, or name another")
        if epoch and self.place.rank == 0:
            say(f"Resuming at epoch {epoch} from {self.snapshot}")
        return int(epoch)

    def read_snapshot(self) -> tuple[int, str]:
        """Read the file into the model; return the epoch to train next, and what is wrong with the file."""
        try:
            state = torch.load(self.snapshot, map_location="cpu", weights_only=True)
            self.model.load_state_dict(state["model"])
            return int(state["next_epoch"]), ""
        except FileNotFoundError:
            return 0, ""
        except (OSError, EOFError, RuntimeError, ValueError, KeyError, TypeError, pickle.UnpicklingError) as error:
            return 0, f"it is damaged, or another program's ({one_line(error)})"

    def save_snapshot(self, epoch: int) -> None:
        """Let rank 0 write the snapshot; no rank continues before it is on the disk."""
        problem = self.share(self.write_snapshot(epoch) if self.place.rank == 0 else None)
        if problem:
            raise SnapshotError(f"cannot write {self.snapshot}: {problem}")
        if self.place.rank == 0:
            say(f"Epoch {epoch} | Training snapshot saved at {self.snapshot}")

    def write_snapshot(self, epoch: int) -> str:
        """Write a temporary file and rename it, so that a kill leaves the old or the new one; return the problem."""
        part = self.snapshot.with_name(self.snapshot.name + ".part")
        try:
            with part.open("wb") as stream:
                torch.save({"model": self.model.state_dict(), "next_epoch": epoch + 1}, stream)
                stream.flush()
                os.fsync(stream.fileno())
            part.replace(self.snapshot)
        except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError of torch's archive writer
            part.unlink(missing_ok=True)
            return one_line(error)
        return ""

    def share(self, word: Any) -> Any:
        """Give every rank the object that rank 0 holds."""
        words = [word]
        if self.place.backend:
            dist.broadcast_object_list(words, src=0, device=self.place.device)
        return words[0]


def main() -> int:
    """Load, train, tell the time; return the exit code."""
    options = parse_options()
    started = time.perf_counter()
    place = find_place()
    if place.rank == 0 and place.device.type == "cpu":
        say("No GPU found: training on the CPU.")
    try:
        Trainer(place, options.snapshot, options.batch_size).train(options.total_epochs, options.save_every)
    except SnapshotError as error:
        if place.rank == 0:
            print(f"train.py: {error}", file=sys.stderr)
        return 1
    finally:
        if place.backend:
            dist.destroy_process_group()
    if place.rank == 0:
        say(f"Time for loading data and training: {time.perf_counter() - started:.2f} seconds")
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train one linear layer, alone or as ranks of torchrun.")
    parser.add_argument("total_epochs", type=positive, metavar="TOTAL_EPOCHS", help="epochs in all")
    parser.add_argument("save_every", type=positive, metavar="SAVE_EVERY", help="epochs between two snapshots")
    parser.add_argument("--batch-size", type=positive, default=32, metavar="N", help="samples per rank and step (32)")
    parser.add_argument("--snapshot", type=Path, default=Path("snapshot.pt"), metavar="FILE", help="snapshot.pt")
    return parser.parse_args()


def positive(word: str) -> int:
    """Parse a number of at least 1."""
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return number


def one_line(error: Exception) -> str:
    """Shorten an error to what fits in one line; its kind comes first, as some say no more than a number."""
    first = next(iter(str(error).splitlines()), "").rstrip(".:")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def say(text: str) -> None:
    """Print a line in one piece and at once: ranks share one pipe, and print() alone may write the line's end later."""
    print(f"{text}\n", end="", flush=True)


def leave(code: int) -> NoReturn:
    """End the process without Python's own tidying up.

    A gloo thread that drops its last tensor meanwhile aborts the process, and a training that succeeded ends with
    SIGABRT (https://github.com/pytorch/pytorch/issues/190489, seen with torch 2.13 at 4 ranks on 2 busy cores).
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
