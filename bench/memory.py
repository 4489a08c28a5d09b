"""Memory: what the ranks of one node hold of the libraries that they all map, in one container and in one each."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from argosy.core.model import Bind, ContainerRequest
from argosy.runtimes.run import RunRequest, prepare_run
from bench.inputs import Inputs, bench_cache, open_session
from bench.place import HERE, Place, call_apart, lab, open_folder, why_no_lab
from bench.records import Budget, Outcome, Row, one
from bench.start import RANKS, TASK, rank_command

MEGA = 1e6
ALL_TO_ONE = Budget(1.1)
PROGRAM = Path(__file__).with_name("ranks.py")
LONGEST_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Mapping:
    """What the ranks of a node held together."""

    file_bytes: int
    """Sum of ``Pss_File`` of smaps_rollup: pages of files, each counted once however many ranks share it."""
    mapped_bytes: int
    """Bytes of the files that each rank mapped."""


def run_memory(inputs: Inputs, *, quick: bool) -> Outcome:
    """Measure under bubblewrap here, and under Apptainer in the lab where there is one."""
    ranks = 2 if quick else RANKS
    missing = why_no_lab()
    rows = _measured("bwrap", HERE, inputs, ranks)
    remarks = ["memory: pages of mapped files, each counted once however many ranks share it (Pss_File)"]
    if missing:
        remarks.append(f"memory: nothing of Apptainer: {missing}")
    else:
        rows += _measured("apptainer", lab(), inputs, ranks)
    return Outcome(tuple(rows), tuple(remarks))


def _measured(runtime: str, place: Place, inputs: Inputs, ranks: int) -> list[Row]:
    with open_folder() as folder:
        cache = bench_cache() if place is HERE else folder / "cache"
        shapes = ((1, 1), (1, ranks), (ranks, 1))
        single, together, apart = (
            call_apart(place, map_libraries, runtime, inputs.delta, cache, folder, *shape) for shape in shapes
        )
    key, against = f"memory.{runtime}", f"memory.{runtime}.single"
    held = [each.file_bytes / MEGA for each in (single, together, apart)]
    ratio, one_container = together.file_bytes / single.file_bytes, f"{ranks} ranks, one container (launcher srun)"
    what = f"{runtime}: {ranks} ranks in one container to 1 rank"
    return [
        one(f"{key}.mapped", f"{runtime}: libraries mapped by a rank", single.mapped_bytes / MEGA, "MB"),
        one(f"{key}.single", f"{runtime}: 1 rank", held[0], "MB"),
        one(f"{key}.together", f"{runtime}: {one_container}", held[1], "MB", against=against),
        one(f"{key}.apart", f"{runtime}: {ranks} ranks, {ranks} containers", held[2], "MB", against=against),
        one(f"{key}.together_to_one", what, ratio, "x", budget=ALL_TO_ONE),
    ]


def map_libraries(runtime: str, image: Path, cache: Path, work: Path, containers: int, ranks: int) -> Mapping:
    """Start ranks that map the libraries of an image, `ranks` in each container, and add up what they share."""
    folder = work / f"{containers}-{ranks}"
    folder.mkdir()
    every = containers * ranks
    words = rank_command(("python3", str(PROGRAM), str(every), str(folder)), ranks)
    request = ContainerRequest(runtime=runtime, binds=(Bind(str(folder), str(folder)),))
    _, command = prepare_run(RunRequest(str(image), words, request), open_session(cache))
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
    return Mapping(sum(int(share) for share, _ in shares), max(int(size) for _, size in shares))
