"""Test the GPUs of one node, or its CPU if it has none: speed and correct results. It needs PyTorch.

Usage: python -c PROGRAM

It prints a line for each device. Rates are medians over about a second: TFLOP/s (1e12) of a matrix product, GB/s (1e9)
of copies; a copy within a memory counts both the bytes read and the bytes written.
"""

from __future__ import annotations

import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

try:
    import torch
except ImportError as missing:
    sys.exit(f"argosy bench: the image does not contain PyTorch: {missing}")

SECONDS, LEAST_ROUNDS, SAMPLES = 1.0, 3, 9
GPU_SIDE, CPU_SIDE = 8192, 1024
GPU_BYTES, CPU_BYTES = 1 << 30, 1 << 26
PATIENCE = 180  # seconds for one device
FAULTS = ("failed: ", "wrong: ")
PERIOD = 64  # rows of the product that must be the same


def find_devices() -> list[Any]:
    """Return the devices that are visible on this node."""
    for kind in ("cuda", "xpu"):
        module = getattr(torch, kind, None)
        if module is not None and module.is_available():
            return [torch.device(kind, number) for number in range(module.device_count())]
    return [torch.device("cpu")]


def wait_for(device: Any) -> None:
    """Wait until the device has finished its work."""
    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)


def seconds_of(run: Callable[[], Any], device: Any) -> float:
    """Return the seconds of one round: the median of samples that take about a second in total."""

    def timed(rounds: int) -> float:
        wait_for(device)
        start = time.perf_counter()
        for _ in range(rounds):
            run()
        wait_for(device)
        return (time.perf_counter() - start) / rounds

    run()
    once = max(timed(LEAST_ROUNDS), 1e-9)
    rounds = max(1, int(SECONDS / SAMPLES / once))
    return statistics.median(timed(rounds) for _ in range(SAMPLES))


def product_is_right(device: Any, kind: Any, side: int) -> bool:
    """Multiply small integers, whose sums are exact, and compare the result with that of the CPU."""
    head = ((torch.arange(PERIOD)[:, None] + torch.arange(side)) % PERIOD == 0).float()
    thirds = (torch.arange(side) % 3).to(torch.int8)  # small, because a job may have little memory
    right = ((thirds[:, None] + thirds) % 3 - 1).float()
    wanted = head @ right
    found = head.repeat(side // PERIOD, 1).to(device, kind) @ right.to(device, kind)
    return bool((found.view(-1, PERIOD, side) == wanted.to(device, kind)).all().item())


def try_device(device: Any, peers: int) -> Iterator[str]:
    """Yield each measured value of a device, and each fault, as text."""
    is_cpu = device.type == "cpu"
    side, size, kind = (CPU_SIDE, CPU_BYTES, torch.float32) if is_cpu else (GPU_SIDE, GPU_BYTES, torch.bfloat16)
    if not product_is_right(device, kind, side):
        yield "wrong: a matrix product differs from the exact one"
    left, right = (torch.randn(side, side, device=device, dtype=kind) for _ in range(2))
    out = torch.empty_like(left)
    speed = 2 * side**3 / seconds_of(lambda: torch.mm(left, right, out=out), device) / 1e12
    yield f"matmul {speed:.3f} TFLOP/s"
    source = torch.arange(size // 4, dtype=torch.int32, device=device)
    copy = torch.empty_like(source)
    yield f"memory {2 * size / seconds_of(lambda: copy.copy_(source), device) / 1e9:.1f} GB/s"
    if not torch.equal(source, copy):
        yield "wrong: a copy in its memory differs"
    if is_cpu:
        return
    part = torch.ones(size // 16, dtype=torch.int32).pin_memory(device.type)
    there = copy[: len(part)]
    rate = 4 * len(part) / seconds_of(lambda: there.copy_(part, non_blocking=True), device) / 1e9
    yield f"from host {rate:.1f} GB/s"
    if peers > 1:
        number = (device.index + 1) % peers
        other = torch.empty_like(there, device=torch.device(device.type, number))
        rate = 4 * len(part) / seconds_of(lambda: other.copy_(there, non_blocking=True), device) / 1e9
        yield f"to the next {rate:.1f} GB/s"
        if not torch.equal(other.cpu(), there.cpu()):
            yield f"wrong: a copy to gpu {number} differs"


def name_of(device: Any) -> str:
    """Return the model of a device."""
    return "processor" if device.type == "cpu" else str(getattr(torch, device.type).get_device_name(device))


def test_device(device: Any, peers: int) -> bool:
    """Test a device, print its line, and return whether it has no fault."""
    name = ""
    words: list[str] = []
    watch = threading.Timer(PATIENCE, give_up, (device,))
    watch.daemon = True
    watch.start()
    try:
        name = name_of(device)
        words.extend(try_device(device, peers))
    except (RuntimeError, MemoryError) as error:
        words.append(f"failed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"[:300])
    watch.cancel()
    write_line(device, name, words)
    return not any(word.startswith(FAULTS) for word in words)


def write_line(device: Any, name: str, words: list[str]) -> None:
    """Print the line of a device in one write, because several nodes write to one output."""
    where = "cpu" if device.type == "cpu" else f"gpu {device.index}"
    host = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    figures = [word for word in words if not word.startswith(FAULTS)]
    faults = [word for word in words if word.startswith(FAULTS)]
    sys.stdout.write(f"# node {host} {where} ({name}): {' | '.join([', '.join(figures), *faults])}\n")
    sys.stdout.flush()


def give_up(device: Any) -> None:
    """Exit if a device does not answer: an exception cannot reach a call that hangs."""
    write_line(device, "", [f"failed: no answer within {PATIENCE} s"])
    os._exit(1)


def main() -> int:
    """Test each device, even after a fault, and return the exit code."""
    devices = find_devices()
    results = [test_device(device, len(devices)) for device in devices]
    return 0 if all(results) else 1


sys.exit(main())
