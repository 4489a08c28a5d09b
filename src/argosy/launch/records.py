"""The records of `argosy launch`: what the user asks, and the plan that a dry run prints and a real run carries out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.launch.shape import Wanted
from argosy.launchers import Shape
from argosy.model import NO_WORDS, Choice, ContainerRequest
from argosy.schedulers.slurm import JobOptions


class LaunchRequest(msgspec.Struct, frozen=True):
    """What the user asks of `argosy launch`.

    Attributes
    ----------
    image
        As the user named it: a file, a name of the catalog, a reference.
    launcher
        Empty lets the image and the command decide.
    mpi
        The wire-up for the launcher ``mpi``: ``pmix`` or ``pmi2``; empty takes the site's.
    mode
        A named way to use the site; empty takes the site's default one.
    extra
        Words for sbatch that have no option here.
    restarts, checkpoint
        How often a job goes back into the queue at its time limit, and the file that a run must have written for it.
    debug
        Topics of which libraries are to tell: ``net``, ``torch``.
    image_has
        Versions of rocm, cuda, torch and nccl, where the image cannot be asked.
    logs
        Folder in which each rank has a file for what it prints; empty for the job's one output.
    label
        Whether each line of the output begins with the rank that wrote it.
    gpu_type
        Slurm's name for a kind of GPU, where nodes have several.
    before
        Lines of shell that run once in the image before the ranks start.
    elastic
        ``MIN:MAX`` nodes between which torchrun may go on; empty for a fixed number.
    stage
        Folder on each node's own disk that the image is copied to; empty to read it where it is.
    smoke
        Whether it is a short test (see `argosy.launch.smoke`).
    apart
        Whether ranks do not speak to each other, so that one that fails ends none of the others.
    needs_torch
        Whether the command, which is ours, imports torch.
    no_check
        Whether an image is launched that cannot use the site's GPUs (see `argosy.launch.torch_check`).
    here
        Whether it runs as steps of the present allocation (see `argosy.launch.in_allocation`).
    why_gpus
        Why the job has the GPUs in `wanted`, if the user named no number (see `argosy.launch.at_site.with_gpus`).
    choices
        Choices that were made before planning; the plan lists them before its own.
    given
        Values that come from the project file: option -> value and place, as ``argosy.toml:12``.
    """

    image: str
    command: tuple[str, ...]
    site: str = "local"
    wanted: Wanted = msgspec.field(default_factory=Wanted)
    launcher: str = ""
    launcher_arguments: tuple[str, ...] = ()
    mpi: str = ""
    mode: str = ""
    name: str = ""
    options: JobOptions = msgspec.field(default_factory=JobOptions)
    extra: tuple[str, ...] = ()
    restarts: int = 0
    checkpoint: str = ""
    debug: tuple[str, ...] = ()
    logs: str = ""
    image_has: tuple[tuple[str, str], ...] = ()
    label: bool = False
    gpu_type: str = ""
    before: tuple[str, ...] = ()
    elastic: str = ""
    stage: str = ""
    smoke: bool = False
    apart: bool = False
    needs_torch: bool = False
    no_check: bool = False
    here: bool = False
    why_gpus: str = ""
    choices: tuple[Choice, ...] = ()
    given: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    container: ContainerRequest = msgspec.field(default_factory=ContainerRequest)


class LaunchPlan(msgspec.Struct, frozen=True):
    """A launch, complete: what a dry run prints and what a real run carries out are this one value.

    Attributes
    ----------
    script
        The whole text of the job script.
    submit
        The words that start it, with ``{script}`` for its path.
    attach
        The script that runs a second command in the container of this job; empty where there is no scheduler.
    cores
        The cores that each local rank is bound to; empty where ranks are not bound.
    logs
        Folder in which each rank has a file; empty where there is one output.
    versions
        Of Argosy, and of torch, ROCm, CUDA and NCCL in the image, as far as it tells them.
    output
        Where the job writes, with Slurm's own patterns in it; empty where it writes to this terminal.
    directives
        The options of sbatch, as the script has them.
    polling_seconds
        How often a scheduler may be asked about it.
    private
        Whether the script holds values of the caller's environment.
    """

    name: str
    site: str
    scheduler: str
    image: str
    digest: str
    shape: Shape
    script: str
    submit: tuple[str, ...]
    choices: tuple[Choice, ...]
    attach: str = ""
    cores: tuple[str, ...] = ()
    logs: str = ""
    versions: Mapping[str, str] = msgspec.field(default_factory=lambda: NO_WORDS)
    output: str = ""
    directives: tuple[str, ...] = ()
    polling_seconds: float = 5.0
    private: bool = False
