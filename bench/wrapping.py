"""Wrapping: what it takes to wrap an image and to update an environment, and what a start of a command costs then.

Under Apptainer all of it is done by an ordinary user in the lab, under bubblewrap by this user here.  Starts are timed
by `argosy bench startup`, which takes turns between the ways to start.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from argosy.bench.startup import BARE, LINE, RUNTIME, WRAPPER, Calls, StartupReport
from argosy.builder.build import build_image
from argosy.builder.records import BuildRequest
from argosy.core.layout import ROOT
from argosy.images.flat import base_source, layer_source
from argosy.images.open import open_image
from argosy.images.rootfs_cache import unpack_cached
from bench.building import ONE_MORE, PACKAGES, QUICK_PACKAGES, fetched_wheels
from bench.inputs import QUICK, Inputs, bench_cache, made_base, open_session, tree_bytes
from bench.meter import Usage, run_command
from bench.place import HERE, Place, call_apart, lab, open_folder, why_no_lab
from bench.records import Budget, Outcome, Row, many, one
from bench.script import FORK
from bench.start import pairwise

COMMANDS = 1000
MANY_INSIDE = "/opt/argosy/many"
MANY = f"""\
mkdir {MANY_INSIDE}
for n in $(seq {COMMANDS}); do printf '#!/bin/sh\\n' > {MANY_INSIDE}/c$n; done
chmod 755 {MANY_INSIDE}/*
"""
IMPORT, QUICK_IMPORT = "import networkx, pandas, sqlalchemy, sympy", "import httpx, rich.console"
"""What needs nothing of the base: the program alone runs on the packages alone."""
TIMES = 40
MEGA = 1e6

WRAPPED = Budget(3)
UPDATED = Budget(10)
NO_FORK, FEW_EXECS = Budget(0), Budget(2)
AS_THE_LINE = Budget(1.05)
ABOVE_BARE = Budget(15)
ABOVE_RUNTIME = Budget(8)
OF_THE_TREE = Budget(0.01)

EXEC = re.compile(r'^\d+ +(\d+\.\d+) execve\("([^"]+)", (.*)$', re.MULTILINE)
BIND = re.compile(r'"--(?:dev-|ro-)?bind(?:-try|-data)?"')
PHASES = {
    "shell": "the wrapper, until bubblewrap starts",
    "mounts": "bubblewrap, until its mounts are complete",
    "enter": "enter the container, until the program starts",
}


@dataclass(frozen=True, slots=True)
class BenchTarget:
    """A runtime and the place where the bench wraps an environment."""

    runtime: str
    place: Place
    folder: Path
    """Of this runtime's own: prefixes, the cache, logs."""
    wheels: Path
    base: Path
    """A small one: all packages are the environment's own."""
    argosy: str
    """The program, there."""

    def run(self, *words: str) -> Usage:
        """Run a command there, with a cache and an index of its own."""
        variables = (f"ARGOSY_CACHE={self.folder}/cache", f"PIP_CONFIG_FILE={os.devnull}", "PIP_NO_INDEX=1")
        dropped = [word for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") for word in ("-u", name)]
        settings = ("env", *dropped, *variables, f"PIP_FIND_LINKS={self.wheels}")
        return call_apart(self.place, run_command, (*settings, *words))

    def argosy_run(self, *words: str) -> Usage:
        """Run argosy there."""
        return self.run(self.argosy, *words)

    def measured_starts(self, *words: str) -> StartupReport:
        """Have `argosy bench startup` measure the starts of the environment's Python."""
        out = self.folder / "startup.json"
        asked = (self.argosy, "bench", "startup", str(self.prefix), "--json", "--quiet", *words)
        self.run("sh", "-c", 'exec "$@" > "$0"', str(out), *asked)
        return msgspec.json.decode(out.read_bytes(), type=StartupReport)

    @property
    def prefix(self) -> Path:
        """The prefix of the environment."""
        return self.folder / "env"


def run_wrapping(inputs: Inputs, *, quick: bool) -> Outcome:
    """Wrap many commands, wrap an environment and update it, and start its Python."""
    wheels = fetched_wheels(QUICK_PACKAGES if quick else PACKAGES, inputs)
    missing = why_no_lab()
    with open_folder() as folder:
        (folder / "many.txt").write_text("".join(f"{name}\n" for name in (QUICK_PACKAGES if quick else PACKAGES)))
        many = _image_of_many(inputs, folder)
        here = str(Path(sys.executable).with_name("argosy"))
        base = made_base(QUICK, open_session(bench_cache()))
        context = [BenchTarget("bwrap", HERE, folder / "bwrap", wheels, base, here)]
        if not missing:
            context.append(BenchTarget("apptainer", lab(), folder / "apptainer", wheels, base, "argosy"))
        rows: list[Row] = []
        calls: dict[str, tuple[Calls, ...]] = {}
        for target in context:
            target.folder.mkdir()
            target.folder.chmod(0o777)
            rows += [*_wrap_rows(target, many, folder / "many.txt"), *_count_rows(target), *_start_rows(target, quick)]
            rows += _phase_rows(target) if target.place is HERE else ()
            code = QUICK_IMPORT if quick else IMPORT
            only = f"{BARE},{WRAPPER}" if target.place is HERE else WRAPPER
            calls[target.runtime] = target.measured_starts("--quick", "--code", code, "--only", only).calls
        rows += _call_rows(calls)
    remarks = [
        "wrapping: an update adds one package; bwrap unpacks each image into the prefix, that of 1,000 commands too",
        f"wrapping: nothing of Apptainer: {missing}"
        if missing
        else "wrapping: apptainer as an ordinary user in the lab",
    ]
    return Outcome(tuple(rows), tuple(remarks))


def _image_of_many(inputs: Inputs, folder: Path) -> Path:
    """Make an image with so many commands."""
    (folder / "none.txt").write_text("")
    (folder / "many.sh").write_text(MANY)
    request = BuildRequest((folder / "none.txt",), str(inputs.base), folder / "many.sif", after=(folder / "many.sh",))
    build_image(request, open_session(bench_cache()))
    return folder / "many.sif"


def _wrap_rows(target: BenchTarget, many: Path, requirements: Path) -> Iterator[Row]:
    key, who = f"wrapping.{target.runtime}", target.runtime
    by = ("--runtime", target.runtime)
    wrapped = target.argosy_run("wrap", str(many), "-w", MANY_INSIDE, "--prefix", f"{target.folder}/many", *by)
    budget = None if target.place is HERE else WRAPPED
    yield one(f"{key}.many", f"{who}: wrap an image, {COMMANDS:,} commands: wall", wrapped.wall, "s", budget=budget)
    yield one(f"{key}.many.cpu", f"{who}: the same: CPU", wrapped.cpu, "s")
    new = target.argosy_run("wrap", str(requirements), "--base", str(target.base), "--prefix", str(target.prefix), *by)
    yield one(f"{key}.new", f"{who}: a new environment: wall", new.wall, "s")
    updated = target.argosy_run("wrap", "update", str(target.prefix), ONE_MORE)
    yield one(f"{key}.size", f"{who}: its packages, unpacked", _layer_bytes(target) / MEGA, "MB")
    yield one(f"{key}.update", f"{who}: update with one package: wall", updated.wall, "s", budget=UPDATED)
    yield one(f"{key}.update.cpu", f"{who}: the same: CPU", updated.cpu, "s")


def _layer_bytes(target: BenchTarget) -> int:
    image = target.prefix / "versions/2/image.sif"
    session = open_session(target.folder / "unpacked")
    found = open_image(image).image
    layer = layer_source(found) or base_source(found)
    return tree_bytes(unpack_cached(session, layer, key="layer") / ROOT.lstrip("/"))


def _count_rows(target: BenchTarget) -> Iterator[Row]:
    log = target.folder / "trace"
    traced = ("strace", "-f", "-qq", "-e", "trace=process", "-e", "signal=none", "-o", str(log))
    target.run(*traced, str(target.prefix / "bin/python"), "-c", "pass")
    forks, execs = count_until(log.read_text(errors="replace"), target.runtime)
    budgets = (None, None) if target.place is HERE else (NO_FORK, FEW_EXECS)
    key, who = f"wrapping.{target.runtime}", f"{target.runtime}: a wrapped command before the runtime's own execve"
    yield one(f"{key}.forks", f"{who}: forks", forks, "", budget=budgets[0])
    yield one(f"{key}.execs", f"{who}: execve", execs, "", budget=budgets[1])


def _phase_rows(target: BenchTarget) -> Iterator[Row]:
    log = target.folder / "phases"
    traced = "strace --seccomp-bpf -f -ttt -s 64 -v -e trace=execve -e signal=none"
    starts = f'for n in $(seq {TIMES}); do {traced} -o "$0.$n" "$@"; done'
    target.run("sh", "-c", starts, str(log), str(target.prefix / "bin/python"), "-c", "pass")
    return phase_rows([file.read_text(errors="replace") for file in target.folder.glob("phases.*")])


def phase_rows(logs: Sequence[str]) -> Iterator[Row]:
    """Give the milliseconds of each phase, and the number of mounts.

    Parameters
    ----------
    logs
        One log for each start of a wrapped command.
    """
    starts = [read_phases(log) for log in logs]
    for number, (phase, what) in enumerate(PHASES.items()):
        yield many(f"wrapping.bwrap.phase.{phase}", f"bwrap: {what}", [start[number] for start in starts], "ms")
    mounts = [len(BIND.findall(words)) for log in logs for _, program, words in _executed(log) if _is_bwrap(program)]
    yield many("wrapping.bwrap.binds", "bwrap: bind mounts of a wrapped command", mounts, "")


def read_phases(log: str) -> tuple[float, float, float]:
    """Return the milliseconds of the phases of one start."""
    started = _executed(log)
    first = started[0][0]
    bwrap = next((at for at, program, _ in started if _is_bwrap(program)), 0.0)
    hold = next((at for at, _, words in started if '"argosy-hold"' in words and at > bwrap), 0.0)
    program = started[-1][0]
    if not first < bwrap < hold < program:
        raise RuntimeError(f"bwrap did not start the command: {log[-600:]}")
    return (bwrap - first) * 1000, (hold - bwrap) * 1000, (program - hold) * 1000


def _executed(log: str) -> list[tuple[float, str, str]]:
    """Return time, path and arguments of each program that was executed."""
    return [(float(at), program, words) for at, program, words in EXEC.findall(log) if "ENOENT" not in words]


def _is_bwrap(program: str) -> bool:
    return program.endswith("/bwrap")


def count_until(trace: str, program: str) -> tuple[int, int]:
    """Count forks and programs started in a log of ``strace -f``, until `program` takes its process."""
    found = re.search(rf'^\d+ +execve\("[^"]*/{program}".* = 0$', trace, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"{program} was never started: {trace[-600:]}")
    before = trace[: found.start()]
    return len(FORK.findall(before)), len(re.findall(r"^\d+ +execve\(.* = 0$", before, re.MULTILINE))


def _start_rows(target: BenchTarget, quick: bool) -> Iterator[Row]:  # noqa: FBT001 - as the parts have it
    asked = ("--quick",) if quick else ("--at-once", "1", "--times", str(TIMES))
    report = target.measured_starts(*asked, "--only", f"{BARE},{RUNTIME},{LINE},{WRAPPER}")
    figures = {figure.case: figure for figure in report.figures if figure.at_once == 1}
    key, who = f"wrapping.{target.runtime}.start", f"{target.runtime}: python -c pass"
    for name, figure in figures.items():
        spread = (figure.low, figure.high, figure.runs)
        yield Row(f"{key}.{name}", "wrapping", f"{who}, {name}", figure.median, "ms", *spread)
    wrapper = figures[WRAPPER].each
    to_plain = pairwise(wrapper, figures[RUNTIME].each)
    if target.place is not HERE:
        yield many(f"{key}.plain", f"{who}, wrapper to the plain line", to_plain, "x")
        same = pairwise(wrapper, figures[LINE].each)
        yield many(f"{key}.ratio", f"{who}, wrapper to the same line, bare", same, "x", budget=AS_THE_LINE)
    elif BARE in figures:
        above = [ours - bare for ours, bare in zip(wrapper, figures[BARE].each, strict=True)]
        yield many(f"{key}.above", f"{who}, wrapper above the bare program", above, "ms", budget=ABOVE_BARE)
        entered = [ours - runtime for ours, runtime in zip(wrapper, figures[RUNTIME].each, strict=True)]
        what = f"{who}, wrapper above the bare runtime"
        yield many(f"{key}.above_runtime", what, entered, "ms", budget=ABOVE_RUNTIME)


def _call_rows(calls: dict[str, tuple[Calls, ...]]) -> Iterator[Row]:
    """Set the calls of one import through a wrapper, under Apptainer, against those from unpacked files."""
    shared = {f"{runtime}.{each.case}": each.shared for runtime, found in calls.items() for each in found}
    tree, wrapped = shared.get(f"bwrap.{BARE}"), shared.get(f"apptainer.{WRAPPER}")
    if tree:
        yield one("wrapping.calls.tree", "imports: calls on unpacked files", tree, "")
    if wrapped:
        yield one("wrapping.calls.wrapper", "imports, wrapped: calls on the prefix's files", wrapped, "")
    if tree and wrapped:
        share = "imports, wrapped: its calls / those on unpacked files"
        yield one("wrapping.calls.share", share, wrapped / tree, "", budget=OF_THE_TREE)
