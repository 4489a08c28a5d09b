"""Start ranks that map the same libraries, in one container and in one each, and add up the memory that they share."""

from __future__ import annotations

import subprocess
from pathlib import Path

from argosy.core.model import Bind, ContainerRequest
from argosy.core.session import Session
from argosy.runtimes.run import RunRequest, prepare_run
from bench.inputs import open_session
from bench.rank_command import TASK, rank_command
from bench.tasks import Mapping, MemoryAnswer, MemoryTask

RANKS = Path(__file__).with_name("ranks.py")
LONGEST_SECONDS = 300


def run_memory_task(task: MemoryTask) -> MemoryAnswer:
    """Measure one rank, all ranks in one container, and each rank in a container of its own."""
    session = open_session(Path(task.cache))
    shapes = ((1, 1), (1, task.ranks), (task.ranks, 1))
    return MemoryAnswer(tuple(_mapping(task, session, *shape) for shape in shapes))


def _mapping(task: MemoryTask, session: Session, containers: int, ranks: int) -> Mapping:
    folder = Path(task.work) / f"{containers}-{ranks}"
    folder.mkdir()
    every = containers * ranks
    words = rank_command(("python3", str(RANKS), str(every), str(folder)), ranks)
    request = ContainerRequest(runtime=task.runtime, binds=(Bind(str(folder), str(folder)),))
    _, command = prepare_run(RunRequest(task.image, words, request), session)
    children = [
        subprocess.Popen(
            command.argv, env={**(command.env or {}), **TASK}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )
        for _ in range(containers)
    ]  # fmt: skip
    try:
        said = [child.communicate(timeout=LONGEST_SECONDS)[1] for child in children]
    finally:
        for child in children:
            child.kill()
    if any(child.returncode for child in children):
        raise RuntimeError(f"a container of ranks failed: {' / '.join(text[-500:] for text in said if text)}")
    shares = [path.read_text().split() for path in folder.glob("share-*")]
    return Mapping(containers, every, sum(int(share) for share, _ in shares), max(int(size) for _, size in shares))
