"""Test the visible GPUs: ``python3 -m gpu.probe [--vendor nvidia|amd|intel] [--rank]``.

It prints a line of JSON (see `gpu.probe.result`), and exits with 1 if a GPU failed.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from typing import Any

from gpu.probe.result import ProbeError, render_line

MODULES = {"nvidia": "gpu.probe.cuda", "amd": "gpu.probe.hip", "intel": "gpu.probe.level_zero"}

VISIBLE = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")


def main() -> int:
    """Test the GPUs and print the report."""
    parser = argparse.ArgumentParser(prog="python3 -m gpu.probe", description=__doc__)
    parser.add_argument("--vendor", choices=sorted(MODULES), default="nvidia")
    parser.add_argument("--rank", action="store_true", help="test only the GPU of this rank, by LOCAL_RANK")
    options = parser.parse_args()
    report = probe(options.vendor, dict(os.environ), own=options.rank)
    sys.stdout.write(render_line(report) + "\n")
    return 0 if report["error"] is None else 1


def probe(vendor: str, environment: dict[str, str], *, own: bool) -> dict[str, Any]:
    """Return the report of this process.

    Parameters
    ----------
    environment
        Variables that a launcher set: ``RANK``, ``LOCAL_RANK``, and which GPUs are visible.
    own
        Test only the GPU of this rank. With several visible GPUs it is that of ``LOCAL_RANK``, as in PyTorch programs.
    """
    module = import_module(MODULES[vendor])
    report: dict[str, Any] = {
        "vendor": vendor,
        "library": module.LIBRARY,
        "never_ran_before": module.NEVER_RAN,
        "rank": _number(environment, "RANK", "SLURM_PROCID"),
        "local_rank": _number(environment, "LOCAL_RANK", "SLURM_LOCALID"),
        "visible": {name: environment[name] for name in VISIBLE if name in environment},
        "devices": [],
        "error": None,
    }
    try:
        driver = module.Driver()
        report["devices"] = driver.devices()
        chosen = range(len(report["devices"]))
        if own:
            index = (report["local_rank"] or 0) % len(chosen)
            chosen = range(index, index + 1)
        for index in chosen:
            report["devices"][index].update(driver.test(index))
    except ProbeError as error:
        report["error"] = {"kind": error.kind, "text": str(error)}
    return report


def _number(environment: dict[str, str], *names: str) -> int | None:
    return next((int(environment[name]) for name in names if environment.get(name, "").isdigit()), None)


if __name__ == "__main__":
    sys.exit(main())
