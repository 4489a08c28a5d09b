"""Run the bench: ``python -m bench [--only packing,start] [--quick] [--compare [FILE]] [--write-docs]``.

A complete run replaces ``bench/result.json``, and writes docs/reference/figures.md with its plots from it.
"""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import argosy
from argosy.core.mounts import file_system_type
from argosy.version import VERSION
from bench.building import run_building
from bench.commands import run_commands, run_peers
from bench.growth import run_growth
from bench.inputs import FULL, QUICK, Inputs, bench_folder, make_inputs
from bench.job import run_job
from bench.memory import run_memory
from bench.packing import run_packing
from bench.page import RESULT, read_result, render_result, write_pages, write_result
from bench.place import REPO, why_no_lab
from bench.planning import run_planning
from bench.records import Outcome, Result
from bench.script import run_script
from bench.start import run_start
from bench.table import render_result_page
from bench.training import run_training
from bench.wrapping import run_wrapping

GIBI = 1 << 30

QUIET_LOAD = 1.0
"""Above this load average, other programs take time from what is measured."""

TOOLS: Mapping[str, tuple[str, ...]] = {
    "mksquashfs": ("mksquashfs", "-version"),
    "bwrap": ("bwrap", "--version"),
    "strace": ("strace", "--version"),
}
LAB_TOOLS: Mapping[str, tuple[str, ...]] = {
    "apptainer": ("apptainer", "--version"),
    "mksquashfs (lab)": ("mksquashfs", "-version"),
}
VERSION_NUMBER = re.compile(r"\d+(\.\d+)+")

PARTS: Mapping[str, Callable[..., Outcome]] = {
    "packing": run_packing,
    "building": run_building,
    "wrapping": run_wrapping,
    "start": run_start,
    "memory": run_memory,
    "commands": run_commands,
    "planning": run_planning,
    "peers": run_peers,
    "script": run_script,
    "job": run_job,
    "growth": run_growth,
    "training": run_training,
}
"""In this order: the longest first, the ones that need quiet last."""


def main() -> None:
    """Measure, print, keep."""
    asked = parse_arguments(sys.argv[1:])
    if asked.write_docs:
        write_pages(read_result(RESULT))
        return
    is_kept = asked.only == tuple(PARTS) and not asked.quick and not asked.read
    if is_kept and read_load() > QUIET_LOAD:
        raise SystemExit(
            f"bench: the load average is {read_load():.1f}: other programs run, and the result would be kept; "
            f"wait until it is below {QUIET_LOAD:g}, or measure single parts with --only"
        )
    before = read_result(asked.compare) if asked.compare else None
    result = read_result(asked.read) if asked.read else run_bench(asked.only, quick=asked.quick)
    sys.stdout.write(render_result_page(result, before))
    if asked.json:
        asked.json.write_text(render_result(result))
    if is_kept:
        write_result(result)
        write_pages(result)
        tell(f"kept as {RESULT.name}; docs/reference/figures.md is written")


def run_bench(only: tuple[str, ...], *, quick: bool) -> Result:
    """Make the images, run the parts asked for, and describe where."""
    begin = read_load()
    use_byte_code()
    recipe = QUICK if quick else FULL
    inputs = make_inputs(recipe)
    outcomes = [_run_part(part, inputs, quick=quick) for part in PARTS if part in only]
    loads = f"{begin:.1f} and {read_load():.1f}"
    contents = [
        f"images: Debian with {', '.join(recipe.base)} as the base, {', '.join(recipe.layer)} as the layer",
        f"load average at the begin and the end: {loads} (the bench itself included)",
    ]
    if begin > QUIET_LOAD:
        contents.append("the machine was loaded at the begin: the figures in seconds are too large")
    if quick:
        contents.append("a quick run over small images: the budgets are not meant for it")
    return Result(
        date=f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d %H:%M}",
        command=" ".join(("python -m bench", *sys.argv[1:])),
        machine=read_machine(),
        tools=read_tools(),
        rows=tuple(row for outcome in outcomes for row in outcome.rows),
        remarks=(*contents, *(remark for outcome in outcomes for remark in outcome.remarks)),
    )


def use_byte_code() -> None:
    """Compile Argosy's modules, as pip does when it installs them; a checkout may have no byte code."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(argosy.__file__).parent, quiet=2)


def _run_part(part: str, inputs: Inputs, *, quick: bool) -> Outcome:
    tell(f"measuring {part} …")
    return PARTS[part](inputs, quick=quick)


def read_machine() -> tuple[tuple[str, str], ...]:
    """Give CPU, cores, memory, kernel, file system and load, as pairs of name and fact."""
    information = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*:\s*(.*)$", information, re.MULTILINE)
    virtual = " (virtual machine)" if re.search(r"^flags\s*:.*\bhypervisor\b", information, re.MULTILINE) else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIBI
    kernel = VERSION_NUMBER.match(platform.release())
    return (
        ("CPU", (model[1] if model else platform.machine()) + virtual),
        ("cores", str(len(os.sched_getaffinity(0)))),
        ("memory", f"{memory:.0f} GiB"),
        ("Linux", kernel[0] if kernel else platform.release()),
        ("files on", file_system_type(bench_folder())),
    )


def read_load() -> float:
    """Give the load average of the last minute: what else ran."""
    return os.getloadavg()[0]


def read_tools() -> tuple[tuple[str, str], ...]:
    """Give the versions of what was measured and of what measured it; those of the lab where there is one."""
    return (("argosy", VERSION), ("Python", platform.python_version()), *_versions())


def _versions() -> Iterator[tuple[str, str]]:
    asked = dict(TOOLS)
    if not why_no_lab():
        asked |= {name: (str(REPO / "lab/in"), "-u", "alice", "--", *words) for name, words in LAB_TOOLS.items()}
    for name, words in asked.items():
        try:
            done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        found = VERSION_NUMBER.search(done.stdout)
        yield name, found[0] if found else "unknown"


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", type=_parts, default=tuple(PARTS), metavar="PART,…", help=f"keep nothing; {', '.join(PARTS)}"
    )
    parser.add_argument("--quick", action="store_true", help="small images and few runs; nothing is kept")
    parser.add_argument(
        "--compare", type=Path, nargs="?", const=RESULT, metavar="FILE", help="compare with FILE, or the kept result"
    )
    parser.add_argument("--from", dest="read", type=Path, metavar="FILE", help="show a kept result, measure nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there too")
    parser.add_argument(
        "--write-docs", action="store_true", help="measure nothing; write the page again from the kept result"
    )
    return parser.parse_args(words)


def _parts(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no part is called {unknown[0]!r}; there are {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in names)


def tell(text: str) -> None:
    """Say on standard error what goes on."""
    sys.stderr.write(f"bench: {text}\n")


if __name__ == "__main__":
    main()
