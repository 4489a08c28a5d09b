"""The command line: CPU and file-system calls of what users wait for at a prompt; on Lustre calls are seconds."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from bench.inputs import Inputs
from bench.meter import run_counted, run_cpu
from bench.records import Budget, Outcome, Row, many, one

MILLI = 1000
BUDGETS = {"help": (Budget(100), Budget(1.1)), "dry_run": (Budget(250), Budget(2.6))}
"""CPU in milliseconds, and file-system calls in proportion to those of Python with click and msgspec alone.

Each module takes Python six calls.  A launch needs a hundred modules of Argosy, so an absolute number would mostly
judge the build of Python and the length of its search path.
"""

LIBRARIES = "import click, msgspec"


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
