"""Clusters of the lab, and the two scripts of a job that are compared there: Argosy's and one written by hand."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.inputs import bench_folder
from bench.meter import run
from bench.place import REPO

SITE = """\
name = "lab"
title = "nodes of the lab"
scheduler = "slurm"

[node]
cores = {cores}

[runtime]
name = "apptainer"
"""

BY_HAND = """\
#!/bin/bash
#SBATCH --ntasks-per-node=1 --cpus-per-task=1
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export MASTER_PORT=29500
export WORLD_SIZE=$SLURM_NTASKS
srun --cpus-per-task=1 apptainer exec {image} sh -c \\
    'export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID; exec {rank}'
"""
"""What a careful user writes: the rendezvous from Slurm, rank variables in the task, one container per rank."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster of the lab that is up."""

    folder: Path

    def on_login(self, folder: Path, *words: str) -> str:
        """Run a command as an ordinary user on the login node; return what it printed."""
        return run(*_cluster(self.folder), "exec", "-u", "alice", "-w", str(folder), "--", "ctl", *words)

    def write_scripts(self, folder: Path, image: Path, rank: str, *shape: str, cores: int) -> Path:
        """Write the script by hand, ``hand.sh``; return that of Argosy, with its record.

        It is submitted and held, so it is the very script that a job runs.

        Parameters
        ----------
        rank
            Command line of each rank.
        shape
            Options of `argosy launch`.
        """
        (folder / "lab.toml").write_text(SITE.format(cores=cores))
        (folder / "hand.sh").write_text(BY_HAND.format(image=image, rank=rank))
        launch = ("argosy", "launch", str(image), "--site", "lab.toml", *shape, "--launcher", "srun")
        held = (*launch, "--sbatch-arg=--hold", "--", *rank.split())
        self.on_login(folder, "env", f"ARGOSY_STATE={folder / 'state'}", *held)
        (script,) = (folder / "state/runs").glob("*/job.sh")
        return script


def _cluster(folder: Path) -> tuple[str, ...]:
    return (str(REPO / "lab/cluster"), "--run", str(folder))


@contextmanager
def lab_cluster(folder: Path, *options: str, nodes: int = 2) -> Iterator[Cluster]:
    """Bring nodes up, and down again; should this process be killed, they end by themselves."""
    theirs, ours = os.pipe()
    up = ("up", "--lifeline", str(theirs), "--bind", str(bench_folder()), *options, str(nodes))
    try:
        run(*_cluster(folder), *up, pass_fds=(theirs,))
        yield Cluster(folder)
    finally:
        os.close(theirs)
        with suppress(RuntimeError):
            run(*_cluster(folder), "down")
        os.close(ours)
