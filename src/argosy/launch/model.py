"""The records of `argosy launch`: what the user asks, and the plan that a dry run prints and a real run carries out."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from argosy.core.model import Choice, ContainerRequest
from argosy.slurm.text import JobOptions


class Wanted(msgspec.Struct, frozen=True):
    """The shape that the user asks for; 0 leaves a number open.

    Attributes
    ----------
    ranks
        In all.
    gpus
        In all; an alternative to `gpus_per_node`.
    """

    nodes: int = 0
    ranks: int = 0
    gpus: int = 0
    gpus_per_node: int = 0
    cpus_per_rank: int = 0


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
    stage_to
        Folder on each node's own disk that the image is copied to; empty to read it where it is.
    smoke
        Whether it is a short test (see `argosy.launch.complete`).
    apart
        Whether ranks do not speak to each other, so that one that fails ends none of the others.
    needs_torch
        Whether the command, which is ours, imports torch.
    no_check
        Whether an image is launched that cannot use the site's GPUs (see `argosy.launch.torch_check`).
    in_allocation
        Whether it runs as steps of the present allocation (see `argosy.launch.complete`).
    why_gpus
        Why the job has the GPUs in `wanted`, if the user named no number (see `with_gpus`).
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
    stage_to: str = ""
    smoke: bool = False
    apart: bool = False
    needs_torch: bool = False
    no_check: bool = False
    in_allocation: bool = False
    why_gpus: str = ""
    choices: tuple[Choice, ...] = ()
    given: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    container: ContainerRequest = msgspec.field(default_factory=ContainerRequest)


LONGEST = 64
"""Most characters of a derived name."""


def name_of(command: tuple[str, ...]) -> str:
    """Name a job after its program: ``train`` for ``python examples/train.py``, ``python`` for ``python -c TEXT``."""
    words = [word for word in command if not word.startswith("-")]
    is_file = len(words) > 1 and words[0].startswith("python") and "-c" not in command[: command.index(words[1])]
    chosen = words[1] if is_file else (words or command)[0]
    name = chosen.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py")
    return "".join(c if c.isprintable() else "_" for c in name)[:LONGEST] or "job"


def file_name(name: str) -> str:
    """Turn a job's name into a file's name, without slashes and Slurm's patterns."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:LONGEST] or "job"


def option(name: str) -> str:
    """Return the option of a name: ``--gpu-type`` of ``gpu_type``."""
    return f"--{name.replace('_', '-')}"


def as_pattern(folder: str) -> str:
    """Escape a folder's name, so that Slurm replaces nothing in it."""
    return folder.replace("%", "%%")
