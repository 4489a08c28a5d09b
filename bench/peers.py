"""Peers from the package index: the start of a command, and the job script of a small job, in CPU time."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from argosy.core.store import work_folder
from bench.inputs import Inputs, bench_folder
from bench.meter import run_cpu
from bench.records import Outcome, Row, many

MILLI = 1000
PACKAGES = ("cotainr", "reframe-hpc", "submitit", "torchx")
SUBMITIT = """\
from submitit.slurm.slurm import _make_sbatch_string as render
render(command="python train.py", folder="runs", nodes=2, ntasks_per_node=2)
"""

Commands = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name in the key -> text in the table, and the command."""


def run_peers(_inputs: Inputs, *, quick: bool) -> Outcome:
    """Install the peers in an environment of their own, and measure them and Argosy alternately."""
    argosy = str(Path(sys.executable).with_name("argosy"))
    with work_folder(bench_folder() / "work") as work:
        python = _install(work / "peers")
        script = work / "train.py"
        script.write_text("pass\n")
        programs = python.parent
        starts: Commands = {
            "argosy": ("argosy", (argosy, "--version")),
            "cotainr": ("cotainr", (str(programs / "cotainr"), "--version")),
            "reframe": ("ReFrame", (str(programs / "reframe"), "--version")),
        }
        plans: Commands = {
            "argosy": ("argosy launch --dry-run", _argosy_plan(argosy)),
            "torchx": ("torchx run --dryrun", _torchx_plan(programs / "torchx", script)),
            "submitit": ("submitit", (str(python), "-c", SUBMITIT)),
        }
        times = 3 if quick else 20
        rows = (
            *_measure("start", "start of {}: CPU", starts, times),
            *_measure("script", "job script for 2 nodes by {}: CPU", plans, times),
        )
        return Outcome(rows, (f"peers: {_versions(python)}, from the package index, each alternately with Argosy",))


def _argosy_plan(argosy: str) -> tuple[str, ...]:
    options = ("--site", "lumi-g", "--account", "project_1", "--nodes", "2", "--ranks-per-node", "2", "--time", "10:00")
    return (argosy, "launch", "/images/train.sif", *options, "--dry-run", "--", "python", "train.py")


def _torchx_plan(torchx: Path, script: Path) -> tuple[str, ...]:
    job = ("dist.ddp", "-j", "2x2", "--script", str(script))
    return (str(torchx), "--log_level", "WARNING", "run", "--dryrun", "-s", "slurm", "-cfg", "partition=standard", *job)


def _measure(kind: str, text: str, commands: Commands, times: int) -> list[Row]:
    """Measure commands in turns; one start of each comes before, and does not count."""
    for _, words in commands.values():
        run_cpu(words)
    rounds = [{key: run_cpu(words) * MILLI for key, (_, words) in commands.items()} for _ in range(times)]
    return [
        many(
            f"peers.{kind}.{key}",
            text.format(name),
            [each[key] for each in rounds],
            "ms",
            against="" if key == "argosy" else f"peers.{kind}.argosy",
        )
        for key, (name, _) in commands.items()
    ]


def _install(folder: Path) -> Path:
    """Install the peers; return their Python."""
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    python = folder / "bin/python"
    for words in (
        (uv, "venv", "-q", "--python", sys.executable, str(folder)),
        (uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), *PACKAGES),
    ):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} failed: {done.stderr[-2000:]}")
    return python


def _versions(python: Path) -> str:
    program = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(n, m.version(n))"
    done = subprocess.run((str(python), "-c", program, *PACKAGES), capture_output=True, text=True, check=True)
    return re.sub(r"\n", ", ", done.stdout.strip())
