"""Commands: CPU and file-system calls of what users wait for at a prompt; on Lustre calls are seconds.

Peers from the package index do the same work: the start of a command, and the job script of a small job.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from argosy.core.store import work_folder
from bench.inputs import Inputs, bench_folder
from bench.meter import run, run_counted, run_cpu
from bench.records import Budget, Outcome, Row, many, one

MILLI = 1000
BUDGETS = {"help": (Budget(100), Budget(1.1)), "dry_run": (Budget(250), Budget(2.6))}
"""CPU in milliseconds, and file-system calls in proportion to those of Python with click and msgspec alone.

Each module takes Python six calls.  A launch needs a hundred modules of Argosy, so an absolute number would mostly
judge the build of Python and the length of its search path.
"""

LIBRARIES = "import click, msgspec"

PACKAGES = ("cotainr", "reframe-hpc", "submitit", "torchx")
SUBMITIT = """\
from submitit.slurm.slurm import _make_sbatch_string as render
render(command="python train.py", folder="runs", nodes=2, ntasks_per_node=2)
"""

Commands = Mapping[str, tuple[str, tuple[str, ...]]]
"""Name in the key -> text in the table, and the command."""


def run_commands(inputs: Inputs, *, quick: bool) -> Outcome:
    """Measure `argosy --help` and a dry run."""
    program = (str(Path(sys.executable).with_name("argosy")),)
    launch = ("launch", str(inputs.delta), "--ranks", "2", "--site", "local", "--dry-run", "--", "python", "train.py")
    asked = {"help": ("--help",), "dry_run": launch}
    names = {"help": "argosy --help", "dry_run": "argosy launch --dry-run"}
    libraries = run_counted((sys.executable, "-c", LIBRARIES)).every if shutil.which("strace") else 0
    rows = [
        row
        for key, words in asked.items()
        for row in _rows(key, names[key], (*program, *words), libraries, quick=quick)
    ]
    nothing = [run_cpu((sys.executable, "-c", "pass")) * MILLI for _ in range(3 if quick else 20)]
    rows.append(many("commands.nothing.cpu", "python -c pass, for comparison: CPU", nothing, "ms"))
    if libraries:
        what = f"python -c '{LIBRARIES}', for comparison: file-system calls"
        rows.append(one("commands.libraries.calls", what, libraries, ""))
    return Outcome(tuple(rows))


def _rows(key: str, name: str, words: tuple[str, ...], libraries: int, *, quick: bool) -> list[Row]:
    cpu, calls = BUDGETS[key]
    seconds = [run_cpu(words) for _ in range(3 if quick else 20)]
    rows = [
        many(
            f"commands.{key}.cpu", f"{name}: CPU", [s * MILLI for s in seconds], "ms",
            against="commands.nothing.cpu", budget=cpu,
        ),
    ]  # fmt: skip
    if libraries:
        counted = run_counted(words)
        share = "file-system calls to those of Python with click and msgspec"
        rows += [
            one(f"commands.{key}.calls", f"{name}: file-system calls", counted.every, ""),
            one(f"commands.{key}.share", f"{name}: {share}", counted.every / libraries, "x", budget=calls),
            one(f"commands.{key}.named", f"{name}: of them, that name a path", counted.named, ""),
        ]
    return rows


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
    run(uv, "venv", "-q", "--python", sys.executable, str(folder))
    run(uv, "pip", "install", "-q", "--compile-bytecode", "--python", str(python), *PACKAGES)
    return python


def _versions(python: Path) -> str:
    program = "import importlib.metadata as m, sys\nfor n in sys.argv[1:]: print(n, m.version(n))"
    return run(str(python), "-c", program, *PACKAGES).strip().replace("\n", ", ")
