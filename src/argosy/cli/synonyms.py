"""Answers to commands and options of other tools: one line with Argosy's own; loaded only after such an error."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

COMMAND_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "exec": "argosy run IMAGE -- COMMAND; in a running job: argosy attach JOB -- COMMAND",
        "pull": "argosy images pull docker://NAME",
        "push": "argosy images push IMAGE oras://REGISTRY/NAME",
        "inspect": "argosy images info IMAGE",
        "info": "argosy images info IMAGE",
        "status": "argosy jobs",
        "ps": "argosy jobs",
        "squeue": "argosy jobs",
        "list": "argosy images ls, argosy jobs or argosy sites ls",
        "ls": "argosy images ls, argosy jobs or argosy sites ls",
        "submit": "argosy launch IMAGE -- COMMAND",
        "sbatch": "argosy launch IMAGE -- COMMAND",
        "srun": "argosy launch IMAGE -- COMMAND; in an allocation, add --in-allocation",
        "torchrun": "argosy launch IMAGE --launcher torchrun -- COMMAND",
        "mpirun": "argosy launch IMAGE --launcher mpi -- COMMAND",
        "salloc": "argosy launch IMAGE --interactive",
        "scancel": "argosy cancel JOB",
        "kill": "argosy cancel JOB",
        "sinfo": "argosy queues",
        "partitions": "argosy queues",
        "init": "write argosy.toml with [image] and [job.NAME]; for a site profile: argosy sites new NAME",
        "new": "argosy wrap new for a wrapped environment, argosy sites new for a site profile",
        "install": "argosy wrap environment.yml --prefix DIR",
        "clean": "argosy cache gc",
        "freeze": "argosy images freeze IMAGE",
        "export": "argosy images export IMAGE --format FORMAT -o FILE",
        "diff": "argosy images diff ONE OTHER",
        "docker": "argosy run IMAGE -- COMMAND; docker starts it with --runtime docker",
        "podman": "argosy run IMAGE -- COMMAND; podman starts it with --runtime podman",
        "podman-hpc": "argosy run IMAGE -- COMMAND; podman-hpc starts it with --runtime podman-hpc",
        "apptainer": "argosy run IMAGE -- COMMAND; argosy shell IMAGE",
        "singularity": "argosy run IMAGE -- COMMAND; argosy shell IMAGE",
        "enroot": "argosy run IMAGE -- COMMAND; enroot starts it with --runtime enroot",
        "migrate": "argosy images pull docker://NAME",
        "convert": "argosy images export IMAGE --format FORMAT -o FILE",
        "diagnose": "argosy why JOB",
        "preflight": "argosy check IMAGE --site NAME",
        "version": "argosy --version",
        "docs": "argosy COMMAND --help",
    }
)
"""Command of another tool -> what to type."""

GPU_HINT = "GPUs are available in the container without an option; --gpu {} forces this method"
TERMINAL_HINT = "no option is needed: the container uses your terminal"
SITE_FLAGS_HINT = "the site's profile adds the flags of podman-hpc: argosy launch IMAGE --site NAME -- COMMAND"
ENV_HINT = "use --env NAME=VALUE for a variable, or --error FILE for Slurm's error stream"

OPTION_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "--nv": GPU_HINT.format("nv"),
        "--rocm": GPU_HINT.format("rocm"),
        "--nvccli": GPU_HINT.format("nvccli"),
        "--device": GPU_HINT.format("cdi"),
        "-i": TERMINAL_HINT,
        "-it": TERMINAL_HINT,
        "-t": TERMINAL_HINT,
        "--tty": TERMINAL_HINT,
        "-e": ENV_HINT,
        "--volume": "use --bind SRC:DST",
        "--mount": "use --bind SRC:DST",
        "--cleanenv": "software variables of the host do not enter the container; use --contain to hide its folders",
        "--containall": "use --contain",
        "--overlay": "use --dev to make the image writable",
        "--writable": "use --dev to make the image writable",
        "--writable-tmpfs": "use --dev to make the image writable",
        "--fakeroot": "use --dev: inside, you are root",
        "--mpich": SITE_FLAGS_HINT,
        "--cuda-mpi": SITE_FLAGS_HINT,
        "--nccl": SITE_FLAGS_HINT,
        "--cvmfs": SITE_FLAGS_HINT,
        "--rm": "no option is needed: nothing remains of the container",
        "--entrypoint": "give the command after --: argosy run IMAGE -- COMMAND",
        "--gpus-per-task": "use --gpus N for the job, or --gpus-per-node N; each rank gets its share",
        "--ntasks-per-gpu": "use --ranks N; the default is one rank per GPU",
        "--mem-per-cpu": "use --mem SIZE per node, or --mem-per-gpu SIZE",
        "--dependency": "use --after JOBS, or --sbatch-arg=--dependency=…",
        "--wrap": "give the command after --: argosy launch IMAGE -- COMMAND",
        "--wait": "use --follow",
        "--export": "use --env NAME=VALUE",
        "--container-image": "give the image as the first argument: argosy launch IMAGE -- COMMAND",
        "--container-mounts": "use --bind SRC:DST",
        "--cpu-bind": "Argosy binds ranks to cores by the site's profile; 'argosy explain' shows how",
        "--gpu-bind": "Argosy binds ranks to GPUs by the site's profile; 'argosy explain' shows how",
        "--standalone": "no option is needed: Argosy sets up the rendezvous",
        "--rdzv-endpoint": "no option is needed: Argosy sets up the rendezvous",
        "--rdzv-backend": "no option is needed: Argosy sets up the rendezvous",
        "--rdzv-id": "no option is needed: Argosy sets up the rendezvous",
        "--master-addr": "no option is needed: Argosy sets MASTER_ADDR",
        "--master-port": "no option is needed: Argosy sets MASTER_PORT",
        "--node-rank": "no option is needed: Argosy sets the rank of each node",
        "--max-restarts": "use --torchrun-arg=--max-restarts=N",
        "--tee": "use --torchrun-arg=--tee=3, or --log-dir DIR",
        "--tag": "use -o FILE; 'argosy images pull FILE NAME:TAG' adds it to the catalog",
        "--prefix": "argosy wrap FILE --prefix DIR installs into a folder",
    }
)
"""Option of another tool that Argosy does not have -> what to do."""


def answer_command(name: str) -> str:
    """Return the hint for a command of another tool; empty if it is unknown."""
    return COMMAND_HINTS.get(name, "")


def answer_option(name: str, arguments: Sequence[str]) -> str:
    """Return the hint for an option of another tool; empty if it is unknown.

    Parameters
    ----------
    arguments
        The command line: the hint for ``--gres`` repeats its value.
    """
    if name in {"--gres", "-G"}:
        return _answer_gres(_value(name, arguments))
    return OPTION_HINTS.get(name.replace("_", "-"), "")


def _value(name: str, arguments: Sequence[str]) -> str:
    for at, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == name:
            return value if equals else next(iter(arguments[at + 1 : at + 2]), "")
    return ""


def _answer_gres(value: str) -> str:
    """Return the options that ask for the same as ``gpu:4`` or ``gpu:a100:4``."""
    match = re.fullmatch(r"(?:gpu:)?(?:([A-Za-z]\w*):)?(\d+)", value)
    if match is None:
        return "use --gpus-per-node N, and --gpu-type NAME for a type; anything else: --sbatch-arg=--gres=…"
    kind = f" --gpu-type {match[1]}" if match[1] else ""
    return f"use --gpus-per-node {match[2]}{kind}"
