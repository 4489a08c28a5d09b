"""The commands that start ranks in a container, those of `--launcher srun` and of a shell; the variables of srun."""

from __future__ import annotations

from collections.abc import Mapping

from argosy.launch.launchers.launcher import Counts, LauncherSpec, srun

TASK: Mapping[str, str] = {
    "SLURM_NODEID": "0",
    "SLURM_STEP_NUM_NODES": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "1",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "20000",
}
"""Variables of the only task of a step."""


def rank_command(program: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the command of a container with one rank, which is a task of Slurm, or of one that starts its ranks."""
    python = "python3" if ranks > 1 else ""
    return tuple(map(str, srun(LauncherSpec(program, Counts("1", str(ranks)), python=python)).command))


def shell_command(program: tuple[str, ...], ranks: int) -> tuple[str, ...]:
    """Return the least that starts several ranks in a container: a shell that starts them at once, and waits."""
    start = 'left=$1; shift; while [ "$left" -gt 0 ]; do "$@" & left=$((left - 1)); done; wait'
    return ("/bin/sh", "-c", start, "sh", str(ranks), *program)
