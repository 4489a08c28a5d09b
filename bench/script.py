"""The batch script: what it does before its ranks start, and its size, on 2 nodes and on 10,000; counts, no times."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.resolve import prepare_launch
from bench.inputs import Inputs, bench_cache, open_session
from bench.place import open_folder, run_in_lab, why_no_lab
from bench.planning import COMMAND, write_large_site
from bench.records import Budget, Outcome, Row, one

FEW, MANY = 2, 10_000
MOST_FORKS, NO_RPC, MOST_BYTES = Budget(15), Budget(0), Budget(8192)

RECORD = "/home/alice/.local/share/argosy/runs/20260101-120000-abcdef"
"""Where a submitted script tells its ranks and its end; as long as a real one."""

SLURM_CONF = "ClusterName=bench\nSlurmctldHost=nowhere\n"
"""Enough for what asks no controller; what asks one would fail."""

FORK = re.compile(r"^\d+ +(?:v?fork|clone3?)\((?!.*CLONE_THREAD)", re.MULTILINE)
RPC = re.compile(r"^\d+ +connect\(.*sa_family=AF_INET", re.MULTILINE)
STEP = re.compile(r'^\d+ +execve\("[^"]*/srun"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Before:
    """What a script does until its ranks are started."""

    forks: int
    rpcs: int
    """Connections over the network: each question to Slurm's controller is one at least."""


def run_script(_inputs: Inputs, *, quick: bool) -> Outcome:  # noqa: ARG001 - counts are the same for few runs
    """Count forks and questions to Slurm in the lab, with its real scontrol and a controller that does not exist."""
    missing = why_no_lab()
    if missing:
        return Outcome((), (f"script: {missing}",))
    rows = [row for nodes in (FEW, MANY) for row in _counted(nodes)]
    by_srun = len(_script_of(FEW, "srun").encode())
    rows.append(one("script.bytes.srun", f"script of {FEW} nodes with --launcher srun: size", by_srun, "bytes"))
    remark = (
        "script: the submitted form, torchrun on 8 GPUs a node; counted by strace up to the first srun of the ranks. "
        "With --launcher srun, the script also contains the Python program that starts the ranks of a node"
    )
    return Outcome(tuple(rows), (remark,))


def _script_of(nodes: int, launcher: str = "") -> str:
    resources = ResourceRequest(nodes=nodes, gpus_per_node=8)
    request = LaunchRequest("/images/train.sif", COMMAND, str(write_large_site()), resources, launcher=launcher)
    return prepare_launch(request, open_session(bench_cache()), purpose=Purpose.SHOW, record=RECORD).script


def _counted(nodes: int) -> list[Row]:
    text = _script_of(nodes)
    before = run_until_srun(text, nodes)
    what = f"script of {nodes:,} nodes"
    return [
        one(f"script.forks.{nodes}", f"{what}: forks before srun", before.forks, "", budget=MOST_FORKS),
        one(f"script.rpcs.{nodes}", f"{what}: questions to Slurm before srun", before.rpcs, "", budget=NO_RPC),
        one(f"script.bytes.{nodes}", f"{what}: size", len(text.encode()), "bytes", budget=MOST_BYTES),
    ]


def write_job(folder: Path, script: str, *, srun: str) -> None:
    """Write a job script, an srun that takes the place of Slurm's, and a getent that knows all nodes."""
    (folder / "job.sh").write_text(script)
    (folder / "slurm.conf").write_text(SLURM_CONF)
    # The nodes have no addresses here; those of a cluster have, and the script asks for the first one.
    for program, text in (("srun", srun), ("getent", "#!/bin/sh\n")):
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)


def job_variables(folder: Path) -> dict[str, str]:
    """Return the variables of a job's first node, which has 8 GPUs; those of the number of nodes are left out."""
    return {
        "PATH": f"{folder}:/usr/bin:/bin", "HOME": "/home/alice", "USER": "alice",
        "SLURM_CONF": str(folder / "slurm.conf"), "SLURM_JOB_ID": "1234567", "SLURMD_NODENAME": "node1",
        "SLURM_GPUS_ON_NODE": "8",
    }  # fmt: skip


def run_until_srun(script: str, nodes: int) -> Before:
    """Run a script as its batch host would, with an srun that does nothing, under strace."""
    with open_folder() as folder:
        write_job(folder, script, srun="#!/bin/sh\n")
        log = folder / "calls"
        shape = {"SLURM_JOB_NUM_NODES": str(nodes), "SLURM_JOB_NODELIST": f"node[1-{nodes}]"}
        traced = ("strace", "-f", "-e", "trace=process,connect", "-e", "signal=none", "-o", str(log))
        words = ("sh", "-c", '"$@" 2>&1 || :', "sh", *traced, "sh", "job.sh")
        said = run_in_lab(folder, job_variables(folder) | shape, *words)
        return count_before(log.read_text(errors="replace"), said)


def count_before(text: str, said: str = "") -> Before:
    """Count forks and connections in a log of ``strace -f``, up to the start of the ranks."""
    step = STEP.search(text)
    if step is None:
        raise RuntimeError(f"the script never came to srun: {said[-2000:]}")
    before = text[: step.start()]
    return Before(len(FORK.findall(before)), len(RPC.findall(before)))
