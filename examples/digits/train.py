"""Train a small network on scikit-learn's handwritten digits with PyTorch DDP, and resume from its snapshot.

Run it alone (``python train.py``) or as several ranks (``torchrun train.py``). It never writes a file but the snapshot,
and never leaves a half-written one.

SIGUSR1 or SIGUSR2 makes it write a snapshot and go on; SIGTERM makes it write a snapshot and leave with code 143.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import sys
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 0
PIXEL_MAX = 16.0  # load_digits: "each feature is an integer in the range 0..16"
GO_ON, SAVE, SAVE_AND_STOP = range(3)
STOPPED = 128 + signal.SIGTERM


class SnapshotError(Exception):
    """The snapshot cannot be read or written, said in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """The position of this process among the ranks, and its device; ``backend`` is empty when it is alone."""

    rank: int
    ranks: int
    device: torch.device
    backend: str

    def say(self, text: str) -> None:
        """Print once for all ranks, at once: a pipe would hold lines back until the program ends."""
        if self.rank == 0:
            print(text, flush=True)

    def add_up(self, *numbers: Any) -> list[float]:
        """Give every rank the sums of the numbers over all ranks."""
        return self._reduced(torch.tensor(numbers, dtype=torch.float32, device=self.device), "SUM")

    def agree(self, wish: int) -> int:
        """Give every rank the greatest wish of any rank."""
        return int(self._reduced(torch.tensor([float(wish)], device=self.device), "MAX")[0])

    def share(self, word: Any) -> Any:
        """Give every rank the object that rank 0 holds."""
        words = [word]
        if self.backend:
            dist.broadcast_object_list(words, src=0, device=self.device)
        return words[0]

    def _reduced(self, tensor: torch.Tensor, operation: str) -> list[float]:
        if self.backend:
            dist.all_reduce(tensor, op=getattr(dist.ReduceOp, operation))
        return [float(number) for number in tensor]


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
    if "OMP_NUM_THREADS" not in os.environ:
        neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // neighbours))
    if "RANK" not in os.environ:
        return Place(0, 1, device, "")
    dist.init_process_group(backend, device_id=device if found else None)
    return Place(dist.get_rank(), dist.get_world_size(), device, backend)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the training came: whole epochs, and samples of the next one, counted over all ranks."""

    epochs: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class Training:
    """Everything that one rank trains with."""

    place: Place
    network: nn.Module
    optimizer: torch.optim.Optimizer
    batches: DataLoader
    test: tuple[torch.Tensor, torch.Tensor]
    snapshot: Path

    @property
    def step_size(self) -> int:
        """Samples that all ranks together take in one step."""
        return int(self.batches.batch_size) * self.place.ranks


def main() -> int:
    """Load, resume, train, judge; return the exit code."""
    options = parse_options()
    wishes = listen_for_signals()
    started = time.perf_counter()
    place = find_place()
    try:
        if place.device.type == "cpu":
            place.say("No GPU found: training on the CPU.")
        training = load_training(place, options)
        progress = resume(training)
        announce(training, progress, options)
        if not train(training, progress, options, wishes):
            return STOPPED
        place.say(f"test accuracy {measure_accuracy(training):.2f} · {describe_ranks(place)}")
        place.say(f"Time for loading data and training: {time.perf_counter() - started:.2f} seconds")
    except SnapshotError as error:
        if place.rank == 0:
            print(f"train.py: {error}", file=sys.stderr, flush=True)
        return 1
    finally:
        if place.backend:
            dist.destroy_process_group()
    return 0


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits, alone or as ranks of torchrun.")
    parser.add_argument("--epochs", type=positive, default=20, metavar="N", help="epochs in all (default: 20)")
    parser.add_argument("--batch-size", type=positive, default=32, metavar="N", help="samples per rank and step (32)")
    parser.add_argument("--save-every", type=positive, default=5, metavar="K", help="epochs between snapshots (5)")
    parser.add_argument("--snapshot", type=Path, default=Path("digits.pt"), metavar="FILE", help="default: digits.pt")
    return parser.parse_args()


def positive(word: str) -> int:
    """Parse a number of at least 1."""
    if (number := int(word)) < 1:
        raise argparse.ArgumentTypeError(f"{word} is less than 1")
    return number


def listen_for_signals() -> list[int]:
    """Turn the scheduler's warnings into wishes; the training loop takes them from the list between two steps."""
    wishes: list[int] = []
    for warning in (signal.SIGUSR1, signal.SIGUSR2):  # Argosy sends USR2 before the time limit
        signal.signal(warning, lambda *_: wishes.append(SAVE))
    signal.signal(signal.SIGTERM, lambda *_: wishes.append(SAVE_AND_STOP))
    return wishes


def load_training(place: Place, options: argparse.Namespace) -> Training:
    """Load the scans, split them the same way on every rank, and build the network."""
    scans, digits = load_digits(return_X_y=True)
    parts = train_test_split(scans / PIXEL_MAX, digits, test_size=0.25, random_state=SEED, stratify=digits)
    train_scans, test_scans = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    train_digits, test_digits = (torch.tensor(part) for part in parts[2:])
    samples = TensorDataset(train_scans, train_digits)
    sampler = DistributedSampler(samples, num_replicas=place.ranks, rank=place.rank, seed=SEED)
    network = build_network().to(place.device)
    return Training(
        place=place,
        network=network,
        optimizer=torch.optim.Adam(network.parameters(), lr=2e-3),
        batches=DataLoader(samples, batch_size=options.batch_size, sampler=sampler),
        test=(test_scans, test_digits),
        snapshot=options.snapshot,
    )


def build_network() -> nn.Module:
    """Two convolutions and a linear layer; the same weights on every rank."""
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def resume(training: Training) -> Progress:
    """Continue from the snapshot if there is one.

    Rank 0 reads it for all: a node that does not see the file must not start from the beginning.
    """
    file = training.snapshot
    state, problem = training.place.share(read_snapshot(file) if training.place.rank == 0 else None)
    if state and not problem:
        try:
            training.network.load_state_dict(state["network"])
            training.optimizer.load_state_dict(state["optimizer"])
            return Progress(epochs=state["epochs"], samples=state["samples"])
        except (KeyError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            problem = f"it is of another network: {one_line(error)}"
    if problem:
        raise SnapshotError(f"cannot resume from {file}: {problem}; move it away, or name another with --snapshot")
    return Progress()


def read_snapshot(file: Path) -> tuple[dict[str, Any], str]:
    """Return the content of the file (nothing if it does not exist), and the problem with it."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        return {}, ""
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError) as error:
        return {}, f"it is damaged, or no snapshot ({one_line(error)})"
    if not isinstance(state, dict) or state.get("program") != "digits":
        return {}, "another program wrote it"
    return state, ""


def save(training: Training, progress: Progress) -> None:
    """Let rank 0 write the snapshot; no rank continues before it is on the disk."""
    problem = write_snapshot(training, progress) if training.place.rank == 0 else None
    if problem := training.place.share(problem):
        raise SnapshotError(f"cannot write {training.snapshot}: {problem}")
    part = f" and {progress.samples} samples of the next" if progress.samples else ""
    training.place.say(f"snapshot {training.snapshot}: {progress.epochs} epochs{part}")


def write_snapshot(training: Training, progress: Progress) -> str:
    """Write a temporary file and rename it, so that a kill leaves the old or the new one; return the problem."""
    state = {
        "program": "digits",
        "epochs": progress.epochs,
        "samples": progress.samples,
        "network": training.network.state_dict(),
        "optimizer": training.optimizer.state_dict(),
    }
    part = training.snapshot.with_name(training.snapshot.name + ".part")
    try:
        with part.open("wb") as stream:
            torch.save(state, stream)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(training.snapshot)
    except (OSError, RuntimeError) as error:  # a full disk is a RuntimeError of torch's archive writer
        part.unlink(missing_ok=True)
        return one_line(error)
    return ""


def one_line(error: Exception) -> str:
    """Shorten an error to what fits in one line; its kind comes first, as some say no more than a number."""
    first = next(iter(str(error).splitlines()), "").rstrip(".:")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def announce(training: Training, progress: Progress, options: argparse.Namespace) -> None:
    """Say where the training begins."""
    if progress.epochs >= options.epochs:
        training.place.say(f"{training.snapshot} holds {progress.epochs} epochs: nothing is left to train")
    elif progress != Progress():
        part = f", after {progress.samples} of its samples" if progress.samples else ""
        training.place.say(f"resuming at epoch {progress.epochs + 1}{part}")


def train(training: Training, progress: Progress, options: argparse.Namespace, wishes: list[int]) -> bool:
    """Train up to the last epoch; return whether it came that far (else SIGTERM stopped it)."""
    place, network = training.place, training.network
    # Kept apart from the network: a snapshot holds plain names, and is read by one process as well as by many.
    parallel = DistributedDataParallel(network) if place.backend else network
    for epoch in range(progress.epochs, options.epochs):
        began = time.perf_counter()
        loss = train_epoch(training, parallel, Progress(epoch, progress.samples), wishes)
        if loss is None:
            place.say(f"stopped by SIGTERM in epoch {epoch + 1}; the same command continues from there")
            return False
        steps, spent = len(training.batches), time.perf_counter() - began
        place.say(f"epoch {epoch + 1}/{options.epochs} · loss {loss:.4f} · {steps} steps · {spent:.2f} s")
        progress = Progress(epoch + 1)
        if progress.epochs % options.save_every == 0 or progress.epochs == options.epochs:
            save(training, progress)
    return True


def train_epoch(training: Training, parallel: nn.Module, progress: Progress, wishes: list[int]) -> float | None:
    """Train one epoch, or what is left of it; return its mean loss, or None if a rank must stop."""
    place, epoch = training.place, progress.epochs
    training.batches.sampler.set_epoch(epoch)
    # A step takes the next step_size samples of one order that all ranks share, so the count holds for any number of
    # ranks; where it does not divide, a few samples are seen twice.
    done = progress.samples // training.step_size
    total, count = torch.zeros((), device=place.device), 0
    for step, (scans, digits) in enumerate(islice(training.batches, done, None), done + 1):
        training.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(parallel(scans.to(place.device)), digits.to(place.device))
        loss.backward()
        training.optimizer.step()
        total, count = total + loss.detach() * len(digits), count + len(digits)
        # A signal may reach one rank only, or several at different steps; if one left alone, the others would wait for
        # it for ever. A training with a costlier step than this one can afford to ask at each step as well.
        wish = place.agree(wishes.pop() if wishes else GO_ON)
        if wish != GO_ON:
            left = step < len(training.batches)
            save(training, Progress(epoch, step * training.step_size) if left else Progress(epoch + 1))
        if wish == SAVE_AND_STOP:
            return None
    loss_sum, samples = place.add_up(total, count)
    return loss_sum / samples


def measure_accuracy(training: Training) -> float:
    """Return the share of test scans that all ranks together read rightly, each scan counted once.

    Hence no DistributedSampler here: it repeats samples so that the ranks' shares are equal.
    """
    place = training.place
    scans, digits = (part[place.rank :: place.ranks].to(place.device) for part in training.test)
    with torch.no_grad():
        right = (training.network(scans).argmax(dim=1) == digits).sum()
    right_sum, tested = place.add_up(right, len(digits))
    return right_sum / tested


def describe_ranks(place: Place) -> str:
    """Render the ranks and how they talked: ``2 ranks (gloo)``."""
    return f"{place.ranks} {'rank' if place.ranks == 1 else 'ranks'} ({place.backend or 'alone'})"


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
