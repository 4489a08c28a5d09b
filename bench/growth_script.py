"""What a job script itself does on many nodes: until it starts the ranks, and after they have ended.

The script runs in the lab with a real scontrol and without a cluster: srun only notes the time.  The record of the job
contains what the ranks of so many nodes would have written.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from argosy.launch.model import LaunchRequest, Purpose, Wanted
from argosy.launch.resolve import prepare_launch
from argosy.launch.script.parts import END_FILE, render_end
from bench.inputs import bench_cache, open_session
from bench.place import REPO, open_folder
from bench.planning import COMMAND, write_large_site
from bench.records import Row, many
from bench.script import SLURM_CONF

NODES = (64, 1000, 10_000)

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

JOB = {
    "HOME": "/home/alice",
    "USER": "alice",
    "SLURM_JOB_ID": "1234567",
    "SLURMD_NODENAME": "node1",
    "SLURM_GPUS_ON_NODE": "8",
}


def growing_script_rows(*, times: int) -> Iterator[Row]:
    """Run the script of a job on more and more nodes, and give the seconds before and after the ranks."""
    with open_folder() as folder:
        taken = _measure(folder, times)
    for nodes in NODES:
        before = [(srun - start) / 1e9 for count, start, srun, _ in taken if count == nodes]
        after = [(end - srun) / 1e9 for count, _, srun, end in taken if count == nodes]
        yield many(f"growth.before.{nodes}", f"the script of {nodes:,} nodes: until srun", before, "s")
        yield many(f"growth.after.{nodes}", f"the script of {nodes:,} nodes: record and verdict", after, "s")


def _measure(folder: Path, times: int) -> Sequence[tuple[int, ...]]:
    """Return for each run: nodes, start of the script, start of srun, end of the script, in nanoseconds."""
    record = folder / "record"
    record.mkdir(mode=0o777)
    record.chmod(0o777)
    (record / END_FILE).write_text(render_end(()))
    wanted = Wanted(nodes=2, gpus_per_node=8)
    request = LaunchRequest("/images/train.sif", COMMAND, str(write_large_site()), wanted)
    script = prepare_launch(request, open_session(bench_cache()), purpose=Purpose.SHOW, record=str(record)).script
    (folder / "job.sh").write_text(script)
    (folder / "slurm.conf").write_text(SLURM_CONF)
    (folder / "srun").write_text(SRUN)
    (folder / "srun").chmod(0o755)
    (folder / "measure.sh").write_text(MEASURE.format(nodes=" ".join(map(str, NODES)), times=times))
    variables = {**JOB, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder}:/usr/bin:/bin"}
    there = (str(REPO / "lab/in"), "-u", "alice", "-w", str(folder), "-b", str(folder), "--")
    words = (*there, "env", "-i", *(f"{name}={value}" for name, value in variables.items()), "sh", "measure.sh")
    subprocess.run(words, stdin=subprocess.DEVNULL, check=True)
    return [tuple(map(int, line.split())) for line in (folder / "times").read_text().splitlines()]
