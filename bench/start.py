"""Start: how long until a program runs in a container, for each kind of image and each runtime."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile

import msgspec

from argosy.bench.startup_program import measure, start
from argosy.core.model import ContainerRequest
from argosy.core.records import asdict, replace
from argosy.core.session import Session
from argosy.launch.launchers.launcher import Counts, LauncherSpec, find_launcher
from argosy.runtimes.run import RunRequest, prepare_run
from bench.inputs import Inputs, bench_cache, open_session
from bench.place import HERE, Place, call_apart, lab, open_folder, why_no_lab
from bench.records import Budget, Outcome, Row, many

MILLI = 1000
DELTA_TO_FLAT = Budget(1.1)
LINE_TO_BARE = Budget(1.05)
RANKS = 8
RANKS_TO_SHELL = Budget(1.3)
"""Not to one rank: that grows with the ranks for each core of the machine, whoever starts them."""

Batches = tuple[tuple[int, int], ...]
"""Pairs of simultaneous starts and the number of repetitions; the first one is for single starts and for ranks."""

FULL_BATCHES: Batches = ((1, 30), (8, 7), (64, 3))
QUICK_BATCHES: Batches = ((1, 3), (8, 1))

KINDS = {
    "native": "no container",
    "bare": "the bare runtime",
    "plain": "plain image",
    "delta": "delta image",
    "bind": "delta, layer bound",
    "flat": "flat image",
}

COMMANDS: Mapping[str, tuple[str, ...]] = {"true": ("true",), "python": ("python3", "-c", "pass")}
SKIPPED_LAYER = "APPTAINER_UNDERLAY"
"""With it Apptainer skips the layer's partition, so that Argosy attaches it by a bind mount."""

TASK: Mapping[str, str] = {
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "20000",
}
"""Variables of the only task of a step of srun."""


class Images(msgspec.Struct, frozen=True):
    """The images whose starts are timed."""

    plain: str
    delta: str
    flat: str


class Case(msgspec.Struct, frozen=True):
    """One command line to be timed."""

    name: str
    words: tuple[str, ...]
    env: Mapping[str, str]


def run_start(inputs: Inputs, *, quick: bool) -> Outcome:
    """Time starts under bubblewrap here, and under Apptainer in the lab where there is one."""
    missing = why_no_lab()
    batches = QUICK_BATCHES if quick else FULL_BATCHES
    rows = _measured("bwrap", HERE, inputs, batches)
    if missing:
        return Outcome(tuple(rows), (f"start: nothing of Apptainer: {missing}",))
    rows += _measured("apptainer", lab(), inputs, batches)
    remark = (
        "start: bwrap as this user over unpacked trees, apptainer as an ordinary user over SIF files (squashfuse); "
        "cases interleaved, proportions taken round by round; apptainer's bare line starts the delta image, bwrap's an "
        "unpacked tree without joining a layer or mounting a home"
    )
    ranks = (
        "start: each rank is python -c pass. More ranks than cores take turns, whoever starts them, so the budget "
        "compares ranks in one container with the same programs, started in one container by a shell"
    )
    return Outcome(tuple(rows), (remark, ranks))


def _measured(runtime: str, place: Place, inputs: Inputs, batches: Batches) -> list[Row]:
    images = Images(str(inputs.base), str(inputs.delta), str(inputs.flat))
    ranks = 2 if batches is QUICK_BATCHES else RANKS
    with open_folder() as folder:
        cache = bench_cache() if place is HERE else folder / "cache"
        series = {
            command: call_apart(place, time_starts, runtime, images, cache, command, batches) for command in COMMANDS
        }
        started = call_apart(place, time_ranks, runtime, images.flat, cache, ranks, batches[0][1])
    taken = {
        (command, at_once, case): found[str(at_once)]
        for command, cases in series.items()
        for at_once, _ in batches
        for case, found in cases.items()
        if str(at_once) in found
    }
    return [*_series_rows(runtime, taken), *_proportions(runtime, taken), *_rank_rows(runtime, ranks, started)]


def time_starts(
    runtime: str, images: Images, cache: Path, command: str, batches: Batches
) -> dict[str, dict[str, list[float]]]:
    """Return for each case and number of simultaneous starts the seconds of a command, in turns."""
    cases = [asdict(case) for case in _cases(runtime, images, open_session(cache), COMMANDS[command])]
    with NamedTemporaryFile() as said:
        taken = measure(cases, {"at_once": batches[:1], "cold": 0}, said.name)
        if command == "python":
            others = [case for case in cases if case["name"] != "bare"]
            for name, seconds in measure(others, {"at_once": batches[1:], "cold": 0}, said.name).items():
                taken[name] |= seconds
    return taken


def _cases(runtime: str, images: Images, session: Session, command: tuple[str, ...]) -> Iterator[Case]:
    # An interpreter from elsewhere on PATH may be a wrapper.
    native = shutil.which(command[0], path="/usr/bin:/bin:/usr/local/bin") or command[0]
    yield Case("native", (native, *command[1:]), dict(os.environ))
    for kind, image in (("plain", images.plain), ("delta", images.delta), ("flat", images.flat)):
        yield _ours(kind, command, image, runtime, session)
    if runtime == "bwrap":
        # The least that bubblewrap needs for an unpacked tree. An image with a layer has two trees to join.
        plan, _ = prepare_run(RunRequest(images.plain, ("true",), ContainerRequest(runtime="bwrap")), session)
        bare: tuple[str, ...] = ("bwrap", "--bind", plan.entry.trees[0], "/", "--dev", "/dev", "--proc", "/proc")
    else:
        skipping = replace(session.host, environment={**session.host.environment, SKIPPED_LAYER: "1"})
        yield _ours("bind", command, images.delta, runtime, replace(session, host=skipping))
        bare = (runtime, "--quiet", "exec", images.delta)
    yield Case("bare", (*bare, *command), dict(os.environ))


def _ours(case: str, command: tuple[str, ...], image: str, runtime: str, session: Session) -> Case:
    """Take the very words and variables with which `argosy run` starts a command."""
    _, started = prepare_run(RunRequest(image, command, ContainerRequest(runtime=runtime)), session)
    return Case(case, started.argv, dict(started.env or {}))


def rank_command(program: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the command of a container with one rank, which is a task of Slurm, or of one that starts its ranks."""
    python = "python3" if ranks > 1 else ""
    return tuple(
        map(str, find_launcher("srun").plan(LauncherSpec(program, Counts("1", str(ranks)), python=python)).command)
    )


def _shell_command(program: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the least that starts several ranks in a container: a shell that starts them at once, and waits."""
    line = 'left=$1; shift; while [ "$left" -gt 0 ]; do "$@" & left=$((left - 1)); done; wait'
    return ("/bin/sh", "-c", line, "sh", str(ranks), *program)


def time_ranks(runtime: str, image: str, cache: Path, ranks: int, times: int) -> dict[str, list[float]]:
    """Return the seconds of one rank, and of all ranks: in one container, by Argosy and by a shell, and in one each."""
    session, program = open_session(cache), COMMANDS["python"]
    shapes = {
        "one": (1, rank_command(program, 1)),
        "together": (1, rank_command(program, ranks)),
        "shell": (1, _shell_command(program, ranks)),
        "apart": (ranks, rank_command(program, 1)),
    }
    taken: dict[str, list[float]] = {shape: [] for shape in shapes}
    with NamedTemporaryFile() as said:
        for _ in range(times):
            for shape, (containers, words) in shapes.items():
                case = _ours(shape, words, image, runtime, session)
                case = replace(case, env={**case.env, **TASK})
                taken[shape].append(start(asdict(case), containers, said.name))
    return taken


Taken = Mapping[tuple[str, int, str], Sequence[float]]
"""Command, simultaneous starts and case -> seconds."""


def _series_rows(runtime: str, taken: Taken) -> Iterator[Row]:
    for (command, at_once, case), seconds in taken.items():
        key = f"start.{runtime}.{command}.{at_once}"
        what = f"{runtime}: {command}, {KINDS[case]}" + (f", {at_once} at once" * (at_once > 1))
        values = [each * MILLI for each in seconds]
        yield many(f"{key}.{case}", what, values, "ms", against="" if case == "flat" else f"{key}.flat")


def _rank_rows(runtime: str, ranks: int, taken: Mapping[str, Sequence[float]]) -> Iterator[Row]:
    """Give the rows of a node's ranks, until all have ended: in one container, by Argosy and by a shell, and apart."""
    key, one_rank = f"start.{runtime}.ranks", f"start.{runtime}.ranks.one"
    for case, what in (
        ("one", "1 rank"),
        ("together", f"{ranks} ranks, one container"),
        ("shell", f"{ranks} ranks by a shell, one container"),
        ("apart", f"{ranks} ranks, {ranks} containers"),
    ):
        values = [seconds * MILLI for seconds in taken[case]]
        yield many(f"{key}.{case}", f"{runtime}: {what}", values, "ms", against="" if case == "one" else one_rank)
    what = f"{runtime}: {ranks} ranks in one container to 1 rank"
    yield many(f"{key}.together_to_one", what, pairwise(taken["together"], taken["one"]), "x")
    what = f"{runtime}: {ranks} ranks in one container to {ranks} by a shell"
    # A start of bubblewrap takes less time than Python, which starts the ranks.
    budget = None if runtime == "bwrap" else RANKS_TO_SHELL
    yield many(f"{key}.together_to_shell", what, pairwise(taken["together"], taken["shell"]), "x", budget=budget)


def _proportions(runtime: str, taken: Taken) -> Iterator[Row]:
    """Set cases in proportion round by round: what else ran then slowed both of a pair."""
    for command, at_once in dict.fromkeys(key[:2] for key in taken):
        what = f"{runtime}: {command}" + (f", {at_once} at once" * (at_once > 1))
        delta = taken[command, at_once, "delta"]
        key = f"start.{runtime}.{command}.{at_once}"
        to_flat = pairwise(delta, taken[command, at_once, "flat"])
        yield many(f"{key}.delta_flat", f"{what}: delta to flat", to_flat, "x", budget=DELTA_TO_FLAT)
        if at_once == 1 and runtime != "bwrap":
            to_bare = pairwise(delta, taken[command, at_once, "bare"])
            yield many(f"{key}.line_bare", f"{what}: Argosy's line to the bare one", to_bare, "x", budget=LINE_TO_BARE)


def pairwise(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Divide the figures of two series that were taken in turns."""
    return [value / other for value, other in zip(values, others, strict=True)]
