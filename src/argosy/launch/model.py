"""The request of a launch, and the names of a job and its files."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

import msgspec

from argosy.core.model import Choice, ContainerRequest
from argosy.runtimes.command_check import find_interpreter
from argosy.slurm.sbatch import JobOptions


class Purpose(Enum):
    """The purpose of a plan: it decides what may be missing on this machine, and what is refused."""

    SHOW = auto()
    """A dry run, or a script in a file: nothing on disk changes, and problems of the image are only reported."""

    SUBMIT_ELSEWHERE = auto()
    """The job is submitted on another machine, so that image and programs may be missing here."""

    START = auto()
    """The program, or the job, starts from this machine."""


class ResourceRequest(msgspec.Struct, frozen=True):
    """The nodes, ranks, GPUs and cores that the user requests; a number of 0 is chosen by the plan."""

    nodes: int = 0
    ranks: int = 0
    """Ranks of the whole job."""
    gpus: int = 0
    """GPUs of the whole job; an alternative to `gpus_per_node`."""
    gpus_per_node: int = 0
    cpus_per_rank: int = 0


class ProgramImports(msgspec.Struct, frozen=True):
    """The modules that a Python program names, anywhere in its text, and what it does in place of a launcher."""

    name: str = ""
    """How users know the program; empty if it was not read."""
    modules: frozenset[str] = frozenset()
    """Whole names (``mpi4py.MPI``), and ``torch.distributed`` if the program starts its process group."""
    address: str = ""
    """Text: the address that it writes to ``MASTER_ADDR``, with the line; empty if it leaves the variable alone."""
    spawns: bool = False
    """Whether it starts ranks itself, by ``spawn`` of torch.multiprocessing."""

    @property
    def packages(self) -> frozenset[str]:
        """The first part of each name."""
        return frozenset(module.partition(".")[0] for module in self.modules)


class LaunchRequest(msgspec.Struct, frozen=True):
    """A launch, as the user requests it."""

    image: str
    """A file, a name in the catalog, or a reference to a registry."""
    command: tuple[str, ...]
    site: str = "local"
    resources: ResourceRequest = msgspec.field(default_factory=ResourceRequest)
    launcher: str = ""
    """How ranks are started; empty: chosen from the image and the command."""
    launcher_arguments: tuple[str, ...] = ()
    container_per: str = ""
    """``node`` or ``rank``: how many containers the launcher ``srun`` starts; empty: ``node`` if ranks can share
    one."""
    mpi: str = ""
    """The wire-up for the launcher ``mpi``: ``pmix`` or ``pmi2``; empty: the site's."""
    mode: str = ""
    """A mode of the site; empty: the site's default, or that of the image."""
    name: str = ""
    options: JobOptions = msgspec.field(default_factory=JobOptions)
    extra: tuple[str, ...] = ()
    """Options of sbatch that Argosy does not have."""
    restarts: int = 0
    checkpoint: str = ""
    """How often the job is requeued at its time limit, and the file that a run must have written before."""
    debug: tuple[str, ...] = ()
    """Topics for debug output of libraries: ``net``, ``torch``."""
    logs: str = ""
    """Folder for an output file per rank; empty: all ranks write to the job's output."""
    image_has: tuple[tuple[str, str], ...] = ()
    """Versions of rocm, cuda, torch and nccl in an image that is not on this machine."""
    label: bool = False
    """Whether each line of the output begins with its rank."""
    gpu_type: str = ""
    """Slurm's name for a type of GPU, if nodes have several."""
    before: tuple[str, ...] = ()
    """Shell commands to run once in the image before the ranks start."""
    elastic: str = ""
    """``MIN:MAX`` nodes with which torchrun may continue; empty: a fixed number."""
    stage_to: str = ""
    """Folder on each node's own disk to copy the image to; empty: no copy."""
    smoke: bool = False
    """Whether it is a short test (see `argosy.launch.complete`)."""
    independent_ranks: bool = False
    """Whether ranks are independent, so that a failed one does not end the others."""
    needs_torch: bool = False
    """Whether the command is a program of Argosy that imports torch."""
    no_check: bool = False
    """Whether to launch an image that does not fit the program or the site's GPUs, and a job that does not fit the
    nodes of the profile."""
    in_allocation: bool = False
    """Whether it runs as steps of the present allocation (see `argosy.launch.complete`)."""
    choices: tuple[Choice, ...] = ()
    """Choices made before planning; the plan lists them first."""
    sources: Mapping[str, tuple[str, str]] = msgspec.field(default_factory=dict)
    """Values that the user did not type: option -> value and source. The source is a line of the project file
    (``argosy.toml:12``) or of a configuration file, a variable, or the allocation (``job 7``)."""
    container: ContainerRequest = msgspec.field(default_factory=ContainerRequest)


LONGEST = 64
"""Maximum number of characters in a derived name."""


def name_of(command: tuple[str, ...]) -> str:
    """Name a job after its program: ``train`` for ``python examples/train.py``, ``python`` for ``python -c TEXT``."""
    command = command[find_interpreter(command) or 0 :]
    words = [word for word in command if not word.startswith("-")]
    is_file = (
        len(words) > 1
        and words[0].rpartition("/")[2].startswith("python")
        and "-c" not in command[: command.index(words[1])]
    )
    chosen = words[1] if is_file else (words or command)[0]
    name = chosen.rstrip("/").rsplit("/", 1)[-1].removesuffix(".py")
    return "".join(c if c.isprintable() else "_" for c in name)[:LONGEST] or "job"


def job_name(request: LaunchRequest) -> str:
    """Return the name of a job: the requested one, else that of its program."""
    return request.name or name_of(request.command)


def file_name(name: str) -> str:
    """Return a job's name as a file's name, without slashes and Slurm's patterns."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)[:LONGEST] or "job"


def as_pattern(folder: str) -> str:
    """Escape a folder's name, so that Slurm does not replace patterns in it."""
    return folder.replace("%", "%%")
