"""Test the GPUs of this machine: ``python3 -m gpu [--torch-image FILE] [--write-docs]`` (`make gpu`).

It needs Python 3.11, the driver and the kit (`make gpu-kit`). It writes build/gpu-report.json, and exits with 1 if a
step failed. On a machine without GPUs, it skips all steps and exits with 0.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from gpu.environment import IMAGE, KIT, REPO, prepare_environment, run
from gpu.report import Report, State, Step, parse_report, render_page, render_report
from gpu.steps import Stage, all_steps

REPORT = REPO / "build" / "gpu-report.json"
PAGE = REPO / "docs" / "reference" / "gpu.md"

LIMIT = 450.0
"""Seconds for all steps; what does not fit is skipped."""

FIND_GPUS = "from argosy.host.gpus import read_gpus; print(*(gpu.vendor for gpu in read_gpus()))"
FIND_VERSION = "from argosy.version import VERSION; print(VERSION)"


def main() -> int:
    """Run the steps, or write the page from the last report."""
    parser = argparse.ArgumentParser(prog="python3 -m gpu", description=__doc__)
    parser.add_argument("--kit", type=Path, default=KIT, help="folder of the kit (default: build/gpu-kit)")
    parser.add_argument("--report", type=Path, default=REPORT, help="the report (default: build/gpu-report.json)")
    parser.add_argument("--torch-image", default="", metavar="FILE", help="image with PyTorch, for NCCL")
    parser.add_argument("--write-docs", action="store_true", help="only write docs/reference/gpu.md from the report")
    options = parser.parse_args()
    if options.write_docs:
        text = options.report.read_text(encoding="utf-8") if options.report.exists() else ""
        PAGE.write_text(render_page(parse_report(text) if text else None), encoding="utf-8")
        return 0
    return test_machine(options.kit, options.report, options.torch_image)


def test_machine(kit: Path, path: Path, torch_image: str) -> int:
    """Run all steps on this machine, write the report, and return the exit code."""
    start = time.monotonic()
    environment = prepare_environment(kit, os.environ)
    found = run((sys.executable, "-c", FIND_GPUS), environment, 60)
    if found.code:
        _say(
            f"Argosy does not start: {found.last_lines}\nhint: make setup, or make gpu-kit on a machine with a network"
        )
        return 1
    vendors = found.stdout.split()
    if not vendors:
        _say("skipped: this machine has no GPU (looked for /dev/nvidia0, /dev/kfd and render nodes in /dev/dri)")
        return 0
    if not (kit / IMAGE).exists():
        _say(f"the kit has no image {kit / IMAGE}\nhint: run make gpu-kit on a machine with a network, and copy build/")
        return 1
    vendor = vendors[0]
    stage = Stage(
        argosy=(sys.executable, "-m", "argosy"),
        environment=environment,
        vendor=vendor,
        gpus=vendors.count(vendor),
        image=kit / IMAGE,
        torch_image=torch_image,
        remaining=lambda: LIMIT - (time.monotonic() - start),
        root=os.geteuid() == 0,
    )
    steps = [_run_step(stage, step) for step in all_steps(stage)]
    version = run((sys.executable, "-c", FIND_VERSION), environment, 60).stdout.strip()
    report = Report(
        date=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d %H:%M}",
        version=version,
        vendor=vendor,
        machine=describe_machine(stage),
        seconds=round(time.monotonic() - start, 1),
        steps=steps,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render_report(report), encoding="utf-8")
    _say(f"wrote {path}" + (f"; failed: {', '.join(report.failed)}" if report.failed else ""))
    return 1 if report.failed else 0


def describe_machine(stage: Stage) -> dict[str, str]:
    """Return facts about the machine, without its name."""
    try:
        driver = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8").splitlines()[0]
    except (OSError, IndexError):
        driver = "unknown"
    return {
        "GPUs": f"{stage.gpus} {stage.vendor}",
        "driver": driver,
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "user": "root" if stage.root else "an ordinary user",
    }


def _run_step(stage: Stage, step: Callable[[], Step]) -> Step:
    done = step() if stage.remaining() > 1 else Step("further step", State.SKIPPED, "the time limit is over")
    _say(f"{done.state:8}{done.name}" + (f": {done.reason}" if done.reason else f" ({done.seconds:.1f} s)"))
    return done


def _say(text: str) -> None:
    sys.stderr.write(f"gpu: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
