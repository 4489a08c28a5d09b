"""The options of a launch: one row for each.

The command line, the keys of ``[job.NAME]`` in ``argosy.toml``, the arguments of `argosy.api.launch`, the hints for
names that other tools use, and the reference pages are made from these rows.  A field's type chooses the form of the
option: a number, a flag, a text, a text that may be left out (``str | bool``), or an option that may be repeated.

Annotations are the table: this module must not have ``from __future__ import annotations``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, TypedDict

from argosy.core.model import RUNTIME_NAMES
from argosy.recipes.option_row import CONTAINER, DEBUGGING, LAUNCHER, OUTPUT, SHAPE, SLURM, OneOrMore, Row, rows

RESTARTS, TOPICS, STAGE = 10, "net,torch", "/tmp"  # noqa: S108 - the usual folder on a node's own disk
"""Values of ``--resume``, ``--debug`` and ``--stage-to`` if the option is given without one."""


_container = partial(Row, CONTAINER, record="container")
_shape = partial(Row, SHAPE, record="shape")
_slurm = partial(Row, SLURM, record="slurm")


class ContainerOptions(TypedDict, total=False):
    """Options of every command that enters a container."""

    # fmt: off
    bind: Annotated[tuple[str, ...], _container("Bind mount; repeatable. [Apptainer: --bind]", "SRC[:DST[:ro]]", "-B")]
    env: Annotated[Mapping[str, str], _container(
        "Set a variable in the container; repeatable. Without =VALUE, pass yours. [Apptainer: --env]", "NAME[=VALUE]")]
    workdir: Annotated[str, _container(
        "Working directory in the container. Default: the current one. [Apptainer: --pwd]",
        "DIR", synonyms=("--pwd", "--cwd"))]
    gpu: Annotated[str, _container(
        "Method to pass GPUs into the container; 'none' passes none. Default: auto. [Apptainer: --nv, --rocm]",
        choices=("auto", "none", "nv", "nvccli", "rocm", "cdi"))]
    contain: Annotated[bool, _container(
        "Show only the folders of --bind in the container. [Apptainer: --containall]", synonyms=("--containall",))]
    runtime: Annotated[str, _container(
        f"Container runtime: {', '.join(RUNTIME_NAMES[:-1])} or {RUNTIME_NAMES[-1]}. "
        "Default: the site's, else one that is installed.", "NAME", choices=RUNTIME_NAMES, config=True)]
    enter: Annotated[str, _container(
        "Start programs directly, by the image's start script (run), or in the conda environment of $WITH_CONDA. "
        "Default: set by the site's profile. [Apptainer: exec, run]", choices=("exec", "run", "with-conda"))]
    signed_by: Annotated[tuple[str, ...], _container(
        "Fingerprint of a key that must have signed the image; repeatable. Default: the site's keys.", "KEY")]
    # fmt: on


class LaunchOptions(ContainerOptions, total=False):
    """Options of `argosy launch` that describe the job."""

    # fmt: off
    site: Annotated[str, Row(SLURM,
        "Site profile: a name from 'argosy sites ls', or a .toml file. Default: local.",
        "NAME", kind="site", config=True)]
    nodes: Annotated[int, _shape(
        "Number of nodes. Default: 1. [Slurm: --nodes; torchrun: --nnodes]", "N", "-N", ("--nnodes",))]
    gpus: Annotated[int, _shape("Number of GPUs of the whole job. [Slurm: --gpus]", "N")]
    gpus_per_node: Annotated[int, _shape(
        "GPUs on each node. Default: all GPUs of a node with --nodes, else one per rank. [Slurm: --gpus-per-node]",
        "N")]
    ranks: Annotated[int, _shape(
        "Number of ranks of the whole job. Default: one per GPU, or one per node. [Slurm: --ntasks]",
        "N", "-n", ("--ntasks",))]
    ranks_per_node: Annotated[int, Row(SHAPE,
        "Ranks on each node, instead of --ranks. [Slurm: --ntasks-per-node; torchrun: --nproc-per-node]",
        "N", synonyms=("--ntasks-per-node", "--nproc-per-node", "--nproc_per_node"), record="call")]
    cpus_per_rank: Annotated[int, _shape(
        "Cores for each rank. [Slurm: --cpus-per-task]", "N", "-c", ("--cpus-per-task",))]
    gpu_type: Annotated[str, Row(SHAPE,
        "Slurm's name of the GPU type, if nodes have several types. [Slurm: --gres=gpu:NAME]", "NAME")]
    elastic: Annotated[str, Row(SHAPE,
        "Continue with MIN to MAX nodes if nodes fail; rank 0 may then run on any node. [torchrun: --nnodes]",
        "MIN:MAX")]
    launcher: Annotated[str, Row(LAUNCHER,
        "Program that starts the ranks: torchrun, srun, mpi, ray or none. Default: depends on image and program.",
        "NAME", choices=("torchrun", "srun", "mpi", "ray", "none"), config=True)]
    torchrun_arg: Annotated[tuple[str, ...], Row(LAUNCHER,
        "Argument to pass to torchrun; repeatable.", "ARG", field="launcher_arguments")]
    mpi: Annotated[str, Row(LAUNCHER,
        "MPI wire-up for --launcher mpi: pmix or pmi2. Default: the site's. [Slurm: srun --mpi]", "NAME", config=True)]
    before: Annotated[OneOrMore, Row(LAUNCHER,
        "Shell command to run once in the image before the ranks start; repeatable.", "CMD")]
    mode: Annotated[str, Row(SLURM,
        "Mode of the site; 'argosy sites show' lists them. Default: the site's.", "NAME", config=True)]
    name: Annotated[str, Row(SLURM,
        "Name of the job. Default: the program's name. [Slurm: --job-name]", "NAME", "-J", ("--job-name",))]
    account: Annotated[str, _slurm("Account to charge. [Slurm: --account]", "NAME", "-A", config=True)]
    partition: Annotated[str, _slurm("Partition. [Slurm: --partition]", "NAME", "-p", config=True)]
    qos: Annotated[str, _slurm("Quality of service. [Slurm: --qos]", "NAME", "-q", config=True)]
    time: Annotated[str, _slurm(
        "Time limit, for example 1:30:00, 90m, 1h or 2-00:00:00. [Slurm: --time]",
        "TIME", "-t", kind="time", config=True)]
    mem: Annotated[str, _slurm("Memory per node, for example 60G. [Slurm: --mem]", "SIZE")]
    mem_per_gpu: Annotated[str, _slurm("Memory per GPU. [Slurm: --mem-per-gpu]", "SIZE")]
    constraint: Annotated[str, _slurm(
        "Features that the nodes must have. [Slurm: --constraint]", "LIST", "-C", config=True)]
    reservation: Annotated[str, _slurm("Reservation. [Slurm: --reservation]", "NAME", config=True)]
    nodelist: Annotated[str, _slurm("Nodes to use. [Slurm: --nodelist]", "NODES", "-w")]
    exclude: Annotated[str, _slurm(
        "Nodes to avoid; @JOB means the nodes that 'argosy bench nodes' found bad. [Slurm: --exclude]", "NODES", "-x")]
    exclusive: Annotated[bool, _slurm("Use whole nodes. [Slurm: --exclusive]")]
    array: Annotated[str, _slurm("Job array, for example 0-9%2. [Slurm: --array]", "LIST", "-a")]
    after: Annotated[str, _slurm(
        "Start after these jobs succeed, for example 123:124. [Slurm: --dependency=afterok]",
        "JOBS", field="dependency")]
    signal: Annotated[str, _slurm(
        "Signal to send before the time limit, for example USR1@60 or B:USR1@60. [Slurm: --signal]", "SPEC")]
    requeue: Annotated[bool, _slurm("Start the job again after a node failure. [Slurm: --requeue]")]
    resume: Annotated[int | bool, Row(SLURM,
        f"Requeue the job at its time limit, at most N times (default {RESTARTS}).",
        "[N]", field="restarts", bare=RESTARTS)]
    checkpoint: Annotated[str, Row(SLURM,
        "File or folder that the program writes; --resume requeues only after a new one. %a is the task of an array.",
        "PATH", path=True)]
    mail_type: Annotated[str, _slurm(
        "Events to send mail for, for example END,FAIL. [Slurm: --mail-type]",
        "LIST", synonyms=("--mail",), config=True)]
    chdir: Annotated[str, _slurm("Folder in which the job runs. [Slurm: --chdir]", "DIR", "-D", path=True)]
    sbatch_arg: Annotated[tuple[str, ...], Row(SLURM, "Any other sbatch option; repeatable.", "ARG", field="extra")]
    stage_to: Annotated[str | bool, Row(CONTAINER,
        f"Copy the image to each node's own disk before the ranks start (default {STAGE}).", "[DIR]", bare=STAGE)]
    container_per: Annotated[str, Row(CONTAINER,
        "With --launcher srun, start one container per node or one per rank. Default: node, unless each rank needs its "
        "own, for example for MPI.", choices=("node", "rank"), config=True)]
    image_has: Annotated[str, Row(CONTAINER,
        "Versions in an image that is not on this machine, for example torch=2.7,rocm=6.2.", "LIST")]
    no_check: Annotated[bool, Row(CONTAINER,
        "Launch even if the image does not fit the program or the GPUs, the job needs more memory or cores than the "
        "site's nodes have, or another job writes its checkpoint.")]
    output: Annotated[str, Row(OUTPUT,
        "File for the output; %j is the job id, %x the job's name. [Slurm: --output]",
        "FILE", "-o", record="slurm", path=True)]
    error: Annotated[str, Row(OUTPUT,
        "File for the error stream. Default: the output file. [Slurm: --error]", "FILE", record="slurm", path=True)]
    log_dir: Annotated[str, Row(OUTPUT,
        "Folder for one log file per rank, below a folder for each job. [torchrun: --log-dir]",
        "DIR", field="logs", path=True)]
    label: Annotated[bool, Row(OUTPUT,
        "Begin each line of the output with its rank. [Slurm: srun --label]", short="-l")]
    debug: Annotated[str | bool, Row(DEBUGGING,
        f"Enable debug output of libraries: net, torch or both (default {TOPICS}).", "[TOPICS]", bare=TOPICS)]
    # fmt: on


class LaunchKeys(LaunchOptions, total=False):
    """A launch: its options, and the arguments of the command line."""

    image: str
    command: tuple[str, ...]


LAUNCH = rows(LaunchOptions)
CONTAINER_ROWS = rows(ContainerOptions)
"""The rows by name."""
