"""The options of a launch: one row for each.

The command line, the keys of ``[job.NAME]`` in ``argosy.toml``, the arguments of `argosy.api.launch`, the hints for
names that other tools use, and the reference pages are made from these rows.  A field's type chooses the form of the
option: a number, a flag, a text, a text that may be left out (``str | bool``), or an option that may be repeated.

Annotations are the table: this module must not have ``from __future__ import annotations``.
"""

from collections.abc import Mapping
from typing import Annotated, TypedDict

from argosy.recipes.option_row import CONTAINER, DEBUGGING, LAUNCHER, OUTPUT, SHAPE, SLURM, OneOrMore, Row, rows

RESTARTS, TOPICS, STAGE = 10, "net,torch", "/tmp"  # noqa: S108 - the usual folder on a node's own disk
"""Values of ``--resume``, ``--debug`` and ``--stage-to`` if the option is given without one."""


class ContainerOptions(TypedDict, total=False):
    """Options of every command that enters a container."""

    bind: Annotated[
        tuple[str, ...],
        Row(CONTAINER, "Bind mount; repeatable. [Apptainer: --bind]", "SRC[:DST[:ro]]", "-B", record="container"),
    ]
    env: Annotated[
        Mapping[str, str],
        Row(
            CONTAINER,
            "Set a variable in the container; repeatable. Without =VALUE, pass yours. [Apptainer: --env]",
            "NAME[=VALUE]",
            record="container",
        ),
    ]
    workdir: Annotated[
        str,
        Row(
            CONTAINER,
            "Working directory in the container. Default: the current one. [Apptainer: --pwd]",
            "DIR",
            synonyms=("--pwd", "--cwd"),
            record="container",
        ),
    ]
    gpu: Annotated[
        str,
        Row(
            CONTAINER,
            "Method to pass GPUs into the container; 'none' passes none. Default: auto. [Apptainer: --nv, --rocm]",
            record="container",
            choices=("auto", "none", "nv", "nvccli", "rocm", "cdi"),
        ),
    ]
    contain: Annotated[
        bool,
        Row(
            CONTAINER,
            "Show only the folders of --bind in the container. [Apptainer: --containall]",
            synonyms=("--containall",),
            record="container",
        ),
    ]
    runtime: Annotated[
        str,
        Row(
            CONTAINER,
            "Container runtime. Default: the site's, else one that is installed.",
            "NAME",
            record="container",
            config=True,
        ),
    ]
    enter: Annotated[
        str,
        Row(
            CONTAINER,
            "Start programs directly, by the image's start script (run), or in the conda environment of $WITH_CONDA. "
            "Default: set by the site's profile. [Apptainer: exec, run]",
            record="container",
            choices=("exec", "run", "with-conda"),
        ),
    ]
    signed_by: Annotated[
        tuple[str, ...],
        Row(
            CONTAINER,
            "Fingerprint of a key that must have signed the image; repeatable. Default: the site's keys.",
            "KEY",
            record="container",
        ),
    ]


class LaunchOptions(ContainerOptions, total=False):
    """Options of `argosy launch` that describe the job."""

    site: Annotated[
        str,
        Row(
            SLURM,
            "Site profile: a name from 'argosy sites ls', or a .toml file. Default: local.",
            "NAME",
            kind="site",
            config=True,
        ),
    ]
    nodes: Annotated[
        int,
        Row(
            SHAPE,
            "Number of nodes. Default: 1. [Slurm: --nodes; torchrun: --nnodes]",
            "N",
            "-N",
            ("--nnodes",),
            "shape",
        ),
    ]
    gpus: Annotated[int, Row(SHAPE, "Number of GPUs of the whole job. [Slurm: --gpus]", "N", record="shape")]
    gpus_per_node: Annotated[
        int,
        Row(
            SHAPE,
            "GPUs on each node. Default: all GPUs of a node with --nodes, else one per rank. [Slurm: --gpus-per-node]",
            "N",
            record="shape",
        ),
    ]
    ranks: Annotated[
        int,
        Row(
            SHAPE,
            "Number of ranks of the whole job. Default: one per GPU, or one per node. [Slurm: --ntasks]",
            "N",
            "-n",
            ("--ntasks",),
            "shape",
        ),
    ]
    ranks_per_node: Annotated[
        int,
        Row(
            SHAPE,
            "Ranks on each node, instead of --ranks. [Slurm: --ntasks-per-node; torchrun: --nproc-per-node]",
            "N",
            synonyms=("--ntasks-per-node", "--nproc-per-node", "--nproc_per_node"),
            record="call",
        ),
    ]
    cpus_per_rank: Annotated[
        int, Row(SHAPE, "Cores for each rank. [Slurm: --cpus-per-task]", "N", "-c", ("--cpus-per-task",), "shape")
    ]
    gpu_type: Annotated[
        str, Row(SHAPE, "Slurm's name of the GPU type, if nodes have several types. [Slurm: --gres=gpu:NAME]", "NAME")
    ]
    elastic: Annotated[
        str,
        Row(
            SHAPE,
            "Continue with MIN to MAX nodes if nodes fail; rank 0 may then run on any node. [torchrun: --nnodes]",
            "MIN:MAX",
        ),
    ]
    launcher: Annotated[
        str,
        Row(
            LAUNCHER,
            "Program that starts the ranks: torchrun, srun, mpi, ray or none. Default: depends on the image.",
            "NAME",
            config=True,
        ),
    ]
    torchrun_arg: Annotated[
        tuple[str, ...], Row(LAUNCHER, "Argument to pass to torchrun; repeatable.", "ARG", field="launcher_arguments")
    ]
    mpi: Annotated[
        str,
        Row(
            LAUNCHER,
            "MPI wire-up for --launcher mpi: pmix or pmi2. Default: the site's. [Slurm: srun --mpi]",
            "NAME",
            config=True,
        ),
    ]
    before: Annotated[
        OneOrMore, Row(LAUNCHER, "Shell command to run once in the image before the ranks start; repeatable.", "CMD")
    ]
    mode: Annotated[
        str, Row(SLURM, "Mode of the site; 'argosy sites show' lists them. Default: the site's.", "NAME", config=True)
    ]
    name: Annotated[
        str,
        Row(SLURM, "Name of the job. Default: the program's name. [Slurm: --job-name]", "NAME", "-J", ("--job-name",)),
    ]
    account: Annotated[
        str, Row(SLURM, "Account to charge. [Slurm: --account]", "NAME", "-A", record="slurm", config=True)
    ]
    partition: Annotated[str, Row(SLURM, "Partition. [Slurm: --partition]", "NAME", "-p", record="slurm", config=True)]
    qos: Annotated[str, Row(SLURM, "Quality of service. [Slurm: --qos]", "NAME", "-q", record="slurm", config=True)]
    time: Annotated[
        str,
        Row(
            SLURM,
            "Time limit, for example 1:30:00, 90m, 1h or 2-00:00:00. [Slurm: --time]",
            "TIME",
            "-t",
            record="slurm",
            kind="time",
            config=True,
        ),
    ]
    mem: Annotated[str, Row(SLURM, "Memory per node, for example 60G. [Slurm: --mem]", "SIZE", record="slurm")]
    mem_per_gpu: Annotated[str, Row(SLURM, "Memory per GPU. [Slurm: --mem-per-gpu]", "SIZE", record="slurm")]
    constraint: Annotated[
        str,
        Row(
            SLURM, "Features that the nodes must have. [Slurm: --constraint]", "LIST", "-C", record="slurm", config=True
        ),
    ]
    reservation: Annotated[str, Row(SLURM, "Reservation. [Slurm: --reservation]", "NAME", record="slurm", config=True)]
    nodelist: Annotated[str, Row(SLURM, "Nodes to use. [Slurm: --nodelist]", "NODES", "-w", record="slurm")]
    exclude: Annotated[
        str,
        Row(
            SLURM,
            "Nodes to avoid; @JOB means the nodes that 'argosy bench nodes' found bad. [Slurm: --exclude]",
            "NODES",
            "-x",
            record="slurm",
        ),
    ]
    exclusive: Annotated[bool, Row(SLURM, "Use whole nodes. [Slurm: --exclusive]", record="slurm")]
    array: Annotated[str, Row(SLURM, "Job array, for example 0-9%2. [Slurm: --array]", "LIST", "-a", record="slurm")]
    after: Annotated[
        str,
        Row(
            SLURM,
            "Start after these jobs succeed, for example 123:124. [Slurm: --dependency=afterok]",
            "JOBS",
            record="slurm",
            field="dependency",
        ),
    ]
    signal: Annotated[
        str,
        Row(
            SLURM,
            "Signal to send before the time limit, for example USR1@60 or B:USR1@60. [Slurm: --signal]",
            "SPEC",
            record="slurm",
        ),
    ]
    requeue: Annotated[bool, Row(SLURM, "Start the job again after a node failure. [Slurm: --requeue]", record="slurm")]
    resume: Annotated[
        int | bool,
        Row(
            SLURM,
            f"Requeue the job at its time limit, at most N times (default {RESTARTS}).",
            "[N]",
            field="restarts",
            bare=RESTARTS,
        ),
    ]
    checkpoint: Annotated[
        str,
        Row(
            SLURM, "File or folder that the program writes; --resume requeues only after a new one.", "PATH", path=True
        ),
    ]
    mail_type: Annotated[
        str,
        Row(
            SLURM,
            "Events to send mail for, for example END,FAIL. [Slurm: --mail-type]",
            "LIST",
            synonyms=("--mail",),
            record="slurm",
            config=True,
        ),
    ]
    chdir: Annotated[
        str, Row(SLURM, "Folder in which the job runs. [Slurm: --chdir]", "DIR", "-D", record="slurm", path=True)
    ]
    sbatch_arg: Annotated[tuple[str, ...], Row(SLURM, "Any other sbatch option; repeatable.", "ARG", field="extra")]
    stage_to: Annotated[
        str | bool,
        Row(
            CONTAINER,
            f"Copy the image to each node's own disk before the ranks start (default {STAGE}).",
            "[DIR]",
            bare=STAGE,
        ),
    ]
    container_per: Annotated[
        str,
        Row(
            CONTAINER,
            "With --launcher srun, start one container per node or one per rank. Default: node, unless each rank needs "
            "its own, for example for MPI.",
            choices=("node", "rank"),
            config=True,
        ),
    ]
    image_has: Annotated[
        str, Row(CONTAINER, "Versions in an image that is not on this machine, for example torch=2.7,rocm=6.2.", "LIST")
    ]
    no_check: Annotated[
        bool,
        Row(
            CONTAINER,
            "Launch even if the image does not fit the program or the GPUs, or the job does not fit the site's nodes.",
        ),
    ]
    output: Annotated[
        str,
        Row(
            OUTPUT,
            "File for the output; %j is the job id, %x the job's name. [Slurm: --output]",
            "FILE",
            "-o",
            record="slurm",
            path=True,
        ),
    ]
    error: Annotated[
        str,
        Row(
            OUTPUT,
            "File for the error stream. Default: the output file. [Slurm: --error]",
            "FILE",
            record="slurm",
            path=True,
        ),
    ]
    log_dir: Annotated[
        str,
        Row(
            OUTPUT,
            "Folder for one log file per rank, below a folder for each job. [torchrun: --log-dir]",
            "DIR",
            field="logs",
            path=True,
        ),
    ]
    label: Annotated[
        bool, Row(OUTPUT, "Begin each line of the output with its rank. [Slurm: srun --label]", short="-l")
    ]
    debug: Annotated[
        str | bool,
        Row(
            DEBUGGING,
            f"Enable debug output of libraries: net, torch or both (default {TOPICS}).",
            "[TOPICS]",
            bare=TOPICS,
        ),
    ]


class LaunchKeys(LaunchOptions, total=False):
    """A launch: its options, and the arguments of the command line."""

    image: str
    command: tuple[str, ...]


LAUNCH = rows(LaunchOptions)
CONTAINER_ROWS = rows(ContainerOptions)
"""The rows by name."""
