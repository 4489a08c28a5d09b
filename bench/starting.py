"""Time starts of containers, natively, by the bare runtime and by Argosy's own words, interleaved in one process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from argosy.core.model import ContainerRequest
from argosy.core.records import replace
from argosy.core.session import Session
from argosy.runtimes.run import RunRequest, prepare_run
from bench.inputs import open_session
from bench.meter import run_timed
from bench.rank_command import TASK, rank_command, shell_command
from bench.tasks import RANK, Series, StartAnswer, StartTask

COMMANDS: Mapping[str, tuple[str, ...]] = {"true": ("true",), "python": ("python3", "-c", "pass")}
SKIPPED_LAYER = "APPTAINER_UNDERLAY"
"""With it Apptainer skips the layer's partition, so that Argosy attaches it by a bind mount."""


@dataclass(frozen=True, slots=True)
class Case:
    """One command line to be timed."""

    name: str
    command: str
    words: tuple[str, ...]
    env: Mapping[str, str]


def run_start_task(task: StartTask) -> StartAnswer:
    """Time each case, then ranks; each case is started once before, so that files and trees are there."""
    cases = list(_cases(task))
    for case in cases:
        run_timed(case.words, case.env)
    series: list[Series] = []
    for batch in task.batches:
        chosen = [case for case in cases if batch.at_once == 1 or (case.command == "python" and case.name != "bare")]
        taken: dict[str, list[float]] = {f"{case.name} {case.command}": [] for case in chosen}
        for _ in range(batch.times):
            for case in chosen:
                taken[f"{case.name} {case.command}"].append(run_timed(case.words, case.env, copies=batch.at_once))
        series += [Series(c.name, c.command, batch.at_once, tuple(taken[f"{c.name} {c.command}"])) for c in chosen]
    return StartAnswer((*series, *_rank_series(task)))


def _rank_series(task: StartTask) -> Iterator[Series]:
    """Time one rank, all ranks of a node in one container, by Argosy and by a shell, and in a container each."""
    session, program = open_session(Path(task.cache)), COMMANDS["python"]
    shapes = {
        "one": (1, rank_command(program, 1)),
        "together": (1, rank_command(program, task.ranks)),
        "shell": (1, shell_command(program, task.ranks)),
        "apart": (task.ranks, rank_command(program, 1)),
    }
    taken: dict[str, list[float]] = {case: [] for case in shapes}
    for _ in range(task.batches[0].times):
        for case, (containers, words) in shapes.items():
            _, command = prepare_run(RunRequest(task.flat, words, ContainerRequest(runtime=task.runtime)), session)
            taken[case].append(run_timed(command.argv, {**(command.env or {}), **TASK}, copies=containers))
    for case, (containers, _) in shapes.items():
        yield Series(case, RANK, containers, tuple(taken[case]))


def _cases(task: StartTask) -> Iterator[Case]:
    session = open_session(Path(task.cache))
    skipping = replace(session.host, environment={**session.host.environment, SKIPPED_LAYER: "1"})
    for name, command in COMMANDS.items():
        yield Case("native", name, _native(command), dict(os.environ))
        for kind, image in (("plain", task.plain), ("delta", task.delta), ("flat", task.flat)):
            yield _ours(kind, name, image, task.runtime, session)
        if task.runtime != "bwrap":
            yield _ours("bind", name, task.delta, task.runtime, replace(session, host=skipping))
            yield Case("bare", name, (task.runtime, "--quiet", "exec", task.delta, *command), dict(os.environ))
        else:
            yield _bare_bwrap(name, task, session)


def _ours(case: str, name: str, image: str, runtime: str, session: Session) -> Case:
    """Take the very words and variables with which `argosy run` starts a command."""
    request = RunRequest(image, COMMANDS[name], ContainerRequest(runtime=runtime))
    _, command = prepare_run(request, session)
    return Case(case, name, command.argv, dict(command.env or {}))


def _bare_bwrap(name: str, task: StartTask, session: Session) -> Case:
    """Give the least that bubblewrap needs to start something in an unpacked tree: no join, no home, no identity.

    The image without a layer is one tree; the layers of the others are joined with it when they start.
    """
    plan, _ = prepare_run(RunRequest(task.plain, ("true",), ContainerRequest(runtime="bwrap")), session)
    words = ("bwrap", "--bind", plan.entry.trees[0], "/", "--dev", "/dev", "--proc", "/proc", *COMMANDS[name])
    return Case("bare", name, words, dict(os.environ))


def _native(command: tuple[str, ...]) -> tuple[str, ...]:
    """Find the system's own program: an interpreter from elsewhere on PATH may be a wrapper."""
    found = shutil.which(command[0], path="/usr/bin:/bin:/usr/local/bin")
    return (found or command[0], *command[1:])
