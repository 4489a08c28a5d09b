"""Growth: from `sbatch` to the first line of the last rank, on 1 to 64 nodes, and an image on the disk of each node.

All nodes of the lab share the processors of this machine.  Containers of 64 nodes therefore start in sequence,
while those of a real cluster start at once.  What counts is the difference between two scripts on the same nodes, and
how it grows.

What a job script itself does is measured for more nodes: the script runs with a real scontrol and without a cluster,
srun only notes the time, and the record of the job contains what the ranks of so many nodes would have written.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from argosy.core.render import count
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.resolve import prepare_launch
from argosy.launch.script.parts import END_FILE, render_end
from bench.cluster import Cluster, lab_cluster
from bench.inputs import Inputs, bench_cache, open_session
from bench.place import open_folder, run_in_lab, why_no_lab
from bench.planning import COMMAND, write_large_site
from bench.records import Budget, Outcome, Row, many, one
from bench.script import job_variables, write_job

NODES, QUICK_NODES = (1, 2, 4, 8, 16, 32, 64), (1, 2)
TIMES, QUICK_TIMES = 5, 1
SHAPE = ("--cpus", "1:2:1", "--gpus", "0")
AS_BY_HAND = Budget(1.1)
"""Argosy's cost of one more node against that of the script by hand."""
MEGA = 1 << 20
FILE_BYTES, QUICK_FILE_BYTES = 16 * MEGA, MEGA

RANK = "date +%s%N"
"""Command of each rank: print when it started, in nanoseconds."""

SLURM_ALONE = f"""\
#!/bin/sh
#SBATCH --ntasks-per-node=1 --cpus-per-task=1
srun --cpus-per-task=1 {RANK}
"""

SUBMIT = """\
set -eu
run() {{
    at=$(date +%s%N)
    job=$(sbatch --parsable --wait --nodes="$2" --output=rank.out "$1.sh")
    echo "$1 $2 $at $(grep -x '[0-9]*' rank.out | sort -n | tail -n 1) $(grep -cx '[0-9]*' rank.out)"
    rm rank.out
}}
for script in slurm hand argosy; do run "$script" 1 > warm; done
for nodes in {nodes}; do
    for time in $(seq {times}); do
        for script in slurm hand argosy; do run "$script" "$nodes"; done
    done
done > starts
"""

STAGE = """\
#!/bin/sh
#SBATCH --ntasks-per-node=1 --output=stage.out
took() {
    name=$1 at=$(date +%s%N)
    shift
    "$@"
    echo "$SLURM_JOB_NUM_NODES $name $(($(date +%s%N) - at))" >> stages
}
took sbcast sbcast --force file /tmp/bench-file
took read srun sh -c 'cat file > /tmp/bench-file'
srun rm /tmp/bench-file
"""

SCRIPT_NODES = (64, 1000, 10_000)

SRUN = """\
#!/bin/sh
date +%s%N > srun-at
"""

MEASURE = """\
set -eu
for nodes in {nodes}; do
    export SLURM_JOB_NUM_NODES="$nodes" SLURM_JOB_NODELIST="node[1-$nodes]"
    for node in $(seq "$nodes"); do
        echo "rank=$node local=0 host=node$node job=1234567 restart=0 cores=0-7 devices=0" > "record/ranks-node$node"
    done
    for time in $(seq {times}); do
        at=$(date +%s%N)
        sh job.sh > job.out 2>&1
        echo "$nodes $at $(cat srun-at) $(date +%s%N)"
        grep -q "ranks: $nodes of" job.out
    done
done > times
"""


class Start(msgspec.Struct, frozen=True):
    """One job: the script, its nodes, and the seconds from `sbatch` to the first line of its last rank."""

    script: str
    nodes: int
    seconds: float


def run_growth(inputs: Inputs, *, quick: bool) -> Outcome:
    """Submit three scripts of the same job to a cluster of the lab, on more and more nodes."""
    missing = why_no_lab()
    if missing:
        return Outcome((), (f"growth: {missing}",))
    counts, times = (QUICK_NODES, QUICK_TIMES) if quick else (NODES, TIMES)
    with open_folder() as folder, lab_cluster(folder / "cluster", *SHAPE, nodes=max(counts)) as cluster:
        write_scripts(cluster, folder, inputs.flat)
        starts = measure_starts(cluster, folder, counts, times)
        stages = measure_staging(cluster, folder, counts, QUICK_FILE_BYTES if quick else FILE_BYTES)
    remark = (
        "growth: a rank on each node, Apptainer as an ordinary user, all nodes on this machine: containers start in "
        "sequence; the three scripts in turns; a node more: slope of the line through the medians"
    )
    script = growing_script_rows(times=times)
    return Outcome((*start_rows(starts), *script, *stage_rows(stages)), (remark,))


def write_scripts(cluster: Cluster, folder: Path, image: Path) -> None:
    """Write the three scripts: `slurm.sh`, `hand.sh`, and `argosy.sh` as a real submission has it."""
    (folder / "slurm.sh").write_text(SLURM_ALONE)
    shape = ("--nodes", "1", "--ranks", "1", "--cpus-per-rank", "1")
    script = cluster.write_scripts(folder, image, RANK, *shape, cores=2)
    (folder / "argosy.sh").write_text(script.read_text().replace("#SBATCH --hold\n", ""))


def measure_starts(cluster: Cluster, folder: Path, counts: Sequence[int], times: int) -> list[Start]:
    """Run the scripts in turns on each number of nodes."""
    (folder / "submit.sh").write_text(SUBMIT.format(nodes=" ".join(map(str, counts)), times=times))
    cluster.on_login(folder, "sh", "submit.sh")
    return read_starts((folder / "starts").read_text())


def read_starts(text: str) -> list[Start]:
    """Read lines of script, nodes, submission, start of the last rank, and number of ranks."""
    starts = []
    for line in text.splitlines():
        script, nodes, submitted, last, ranks = line.split()
        if nodes != ranks:
            raise RuntimeError(f"{ranks} of {nodes} ranks of the script {script} started")
        starts.append(Start(script, int(nodes), (int(last) - int(submitted)) / 1e9))
    return starts


def measure_staging(cluster: Cluster, folder: Path, counts: Sequence[int], size: int) -> list[Start]:
    """Copy a file to every node by sbcast, and by each node from the shared folder."""
    (folder / "file").write_bytes(bytes(size))
    (folder / "stage.sh").write_text(STAGE)
    for nodes in counts:
        cluster.on_login(folder, "sbatch", "--wait", f"--nodes={nodes}", "stage.sh")
    lines = (line.split() for line in (folder / "stages").read_text().splitlines())
    return [Start(name, int(nodes), int(taken) / 1e9) for nodes, name, taken in lines]


SCRIPTS: Mapping[str, str] = {"slurm": "Slurm alone", "hand": "script by hand", "argosy": "Argosy's script"}


def start_rows(starts: Sequence[Start]) -> Iterator[Row]:
    """Give the rows of each script and number of nodes, and what a node more costs."""
    slopes = {}
    for script, what in SCRIPTS.items():
        rows = [
            many(f"growth.{script}.{nodes}", f"{what}: {count(nodes, 'node')}: sbatch to the last rank", seconds, "s")
            for nodes, seconds in _by_nodes(starts, script).items()
        ]
        yield from rows
        nodes = [float(row.key.rpartition(".")[2]) for row in rows]
        slopes[script] = statistics.linear_regression(nodes, [row.value for row in rows]).slope * 1000
    for script, what in SCRIPTS.items():
        yield one(f"growth.{script}.node", f"{what}: a node more", slopes[script], "ms")
    ratio = slopes["argosy"] / slopes["hand"] if slopes["hand"] > 0 else 1.0
    yield one("growth.argosy_hand", "a node more: Argosy's script to the one by hand", ratio, "x", budget=AS_BY_HAND)


def _by_nodes(starts: Sequence[Start], script: str) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for start in starts:
        if start.script == script:
            found.setdefault(start.nodes, []).append(start.seconds)
    return found


def stage_rows(stages: Sequence[Start]) -> Iterator[Row]:
    """Give the rows of a file that reaches the disk of every node."""
    for name, what in (("sbcast", "sbcast"), ("read", "each node reads the shared file")):
        for nodes, seconds in _by_nodes(stages, name).items():
            yield many(f"growth.{name}.{nodes}", f"16 MiB to {count(nodes, 'node')}: {what}", seconds, "s")


def growing_script_rows(*, times: int) -> Iterator[Row]:
    """Run the script of a job on more and more nodes, and give the seconds before and after the ranks."""
    with open_folder() as folder:
        taken = _measure_script(folder, times)
    for nodes in SCRIPT_NODES:
        before = [(srun - start) / 1e9 for size, start, srun, _ in taken if size == nodes]
        after = [(end - srun) / 1e9 for size, _, srun, end in taken if size == nodes]
        yield many(f"growth.before.{nodes}", f"the script of {nodes:,} nodes: until srun", before, "s")
        yield many(f"growth.after.{nodes}", f"the script of {nodes:,} nodes: record and verdict", after, "s")


def _measure_script(folder: Path, times: int) -> Sequence[tuple[int, ...]]:
    """Return for each run: nodes, start of the script, start of srun, end of the script, in nanoseconds."""
    record = folder / "record"
    record.mkdir(mode=0o777)
    record.chmod(0o777)
    (record / END_FILE).write_text(render_end((), gpus=8))
    resources = ResourceRequest(nodes=2, gpus_per_node=8)
    request = LaunchRequest("/images/train.sif", COMMAND, str(write_large_site()), resources)
    script = prepare_launch(request, open_session(bench_cache()), purpose=Purpose.SHOW, record=str(record)).script
    write_job(folder, script, srun=SRUN)
    (folder / "measure.sh").write_text(MEASURE.format(nodes=" ".join(map(str, SCRIPT_NODES)), times=times))
    run_in_lab(folder, job_variables(folder), "sh", "measure.sh")
    return [tuple(map(int, line.split())) for line in (folder / "times").read_text().splitlines()]
