"""A job on two nodes: from the script's start to the first rank, Argosy's script against one written by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from argosy.bench.result import sign_interval
from bench.cluster import Cluster, lab_cluster
from bench.inputs import Inputs
from bench.place import open_folder, why_no_lab
from bench.records import Budget, Outcome, Row, many, one

PAIRS, QUICK_PAIRS = 30, 3
NOT_SLOWER = Budget(0)
MILLI = 1e-6
"""Milliseconds in a nanosecond, as date +%N counts."""

RANK = "python3 rank.py"
PROGRAM = "import time\n\nprint(time.time_ns())\n"
"""What each rank does, in Python as most programs: tell when it started."""

COMPARE = """\
#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=2 --cpus-per-task=1 --output=compare.out
# Both scripts in this one allocation, in turns, each first every other time.
once() {{ printf '%s %s' "$1" "$(date +%s%N)"; $2 2>>said | tr '\\n' ' ' | sed 's/^/ /'; echo; }}
argosy() {{ once argosy "sh {script}"; }}
hand() {{ once hand "bash hand.sh"; }}
argosy >warm; hand >>warm
pair=0
while [ "$pair" -lt {pairs} ]; do
    if [ $((pair % 2)) -eq 0 ]; then argosy; hand; else hand; argosy; fi
    pair=$((pair + 1))
done >times
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds from the start of a script to its first and to its last rank, one of each for each pair."""

    first: tuple[float, ...]
    last: tuple[float, ...]


def run_job(inputs: Inputs, *, quick: bool) -> Outcome:
    """Run both scripts in one allocation of a real cluster, pair by pair."""
    missing = why_no_lab()
    if missing:
        return Outcome((), (f"job: {missing}",))
    with open_folder() as folder, lab_cluster(folder / "cluster") as cluster:
        times = measure_pairs(cluster, folder, inputs.delta, QUICK_PAIRS if quick else PAIRS)
    remark = (
        "job: 2 nodes, 2 ranks each, Apptainer as an ordinary user; Argosy's script starts a container per node, the "
        "one by hand a container per rank; both scripts in one allocation, in turns; the interval is that of the "
        "median of the differences, pair by pair. Of four containers, the first is ready earlier than of two, and the "
        "last is ready later. Argosy's first rank also waits for the check that the port of the rendezvous is free "
        "(10 ms: the kernel walks its table of connections) and for the Python program that starts the ranks of a node"
    )
    return Outcome(tuple(job_rows(*times)), (remark,))


def measure_pairs(cluster: Cluster, folder: Path, image: Path, pairs: int) -> tuple[Times, Times]:
    """Give the times of Argosy's script and of the one by hand."""
    (folder / "rank.py").write_text(PROGRAM)
    script = cluster.write_scripts(folder, image, RANK, "--nodes", "2", "--ranks", "4", cores=8)
    (folder / "compare.sh").write_text(COMPARE.format(script=script, pairs=pairs))
    cluster.on_login(folder, "sbatch", "--wait", "compare.sh")
    return read_times((folder / "times").read_text())


def read_times(text: str) -> tuple[Times, Times]:
    """Read lines of a script's name, its start and the start of each of its ranks."""
    taken: dict[str, list[tuple[float, float]]] = {"argosy": [], "hand": []}
    for line in text.splitlines():
        name, start, *ranks = line.split()
        told = [(int(rank) - int(start)) * MILLI for rank in ranks if rank.isdigit()]
        if not told:
            raise RuntimeError(f"the script of {name} started no rank: {line}")
        taken[name].append((min(told), max(told)))
    argosy, hand = (Times(*map(tuple, zip(*found, strict=True))) for found in taken.values())
    return argosy, hand


def job_rows(argosy: Times, hand: Times) -> Iterator[Row]:
    """Give the rows of the first and of the last rank."""
    yield from _pair_rows("job", "first", argosy.first, hand.first)
    yield from _pair_rows("job.last", "last", argosy.last, hand.last)


def _pair_rows(key: str, which: str, argosy: Sequence[float], hand: Sequence[float]) -> Iterator[Row]:
    """Give both medians, their difference, and the least that it is with 95 % certainty."""
    differences = [ours - theirs for ours, theirs in zip(argosy, hand, strict=True)]
    low, _ = median_interval(differences)
    yield many(f"{key}.hand", f"2 nodes, script by hand: to the {which} rank", hand, "ms")
    yield many(f"{key}.argosy", f"2 nodes, Argosy's script: to the {which} rank", argosy, "ms", against=f"{key}.hand")
    yield many(f"{key}.difference", "what Argosy's takes longer, pair by pair", differences, "ms")
    yield one(f"{key}.difference.low", "lower end of its 95 % interval: not above 0", low, "ms", budget=NOT_SLOWER)


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return a confidence interval (95 %) of the median; of too few values, the smallest and the largest."""
    return sign_interval(values) or (min(values), max(values))
