"""Memory: what the ranks of one node hold of the libraries that they all map, in one container and in one each."""

from __future__ import annotations

from bench.inputs import Inputs, bench_cache
from bench.place import HERE, Place, lab, open_folder, run_task, why_no_lab
from bench.records import Budget, Outcome, Row, one
from bench.tasks import Mapping, MemoryAnswer, MemoryTask

MEGA = 1e6
RANKS = 8
ALL_TO_ONE = Budget(1.1)


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
        task = MemoryTask(runtime, str(inputs.delta), ranks, str(cache), str(folder))
        single, together, apart = run_task(place, task, MemoryAnswer).mappings
    return [
        one(f"memory.{runtime}.mapped", f"{runtime}: libraries mapped by a rank", single.mapped_bytes / MEGA, "MB"),
        _row(runtime, "single", "1 rank", single),
        _row(runtime, "together", f"{ranks} ranks, one container (launcher srun)", together),
        _row(runtime, "apart", f"{ranks} ranks, {ranks} containers", apart),
        one(
            f"memory.{runtime}.together_to_one", f"{runtime}: {ranks} ranks in one container to 1 rank",
            together.file_bytes / single.file_bytes, "x", budget=ALL_TO_ONE,
        ),
    ]  # fmt: skip


def _row(runtime: str, key: str, what: str, mapping: Mapping) -> Row:
    against = "" if key == "single" else f"memory.{runtime}.single"
    return one(f"memory.{runtime}.{key}", f"{runtime}: {what}", mapping.file_bytes / MEGA, "MB", against=against)
