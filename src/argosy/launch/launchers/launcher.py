"""Launchers: how the ranks of one node are started; one function and one table row each, pure.

==========  ==========================================================================================================
torchrun    one container per node, ``python -m torch.distributed.run`` in it starts a worker per rank
srun        a container per rank; rank variables from what Slurm told the task
mpi         a container per rank, wired up by the host's MPI (PMIx, PMI-2); rank variables from that
ray         one container per node, all of them one Ray cluster; the command runs on the first
none        the command, once per rank, with nothing added but its number where Slurm tells none
==========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Image
from argosy.core.shell import ShellExpr, ShellFunction, ShellHelper, Word, load_helper
from argosy.core.suggest import suggest_word
from argosy.jobs.launch_plan import Shape

DATA = Path(__file__).with_name("data")

TORCHRUN = load_helper(DATA, "start_torchrun", "run_torchrun")
ELASTIC = load_helper(DATA, "start_elastic", "run_torchrun")
RANK = load_helper(DATA, "start_rank")
MPI_RANK = load_helper(DATA, "start_mpi_rank")
NOTE = load_helper(DATA, "note_rank")
COPY = load_helper(DATA, "start_copy")
BIND = load_helper(DATA, "bind_cores")
LOG = load_helper(DATA, "log_rank")


PYTHON_NAMES = ("python", "python3")

RAY = Path(__file__).with_name("ray_program.py")
"""The program that makes one Ray cluster of a job's nodes; the image's Python runs it."""


class Counts(msgspec.Struct, frozen=True):
    """The shape as a script knows it: plain numbers here and now, late ones where the scheduler says them."""

    nodes: Word
    ranks_per_node: Word


class LauncherCommand(msgspec.Struct, frozen=True):
    """How a node's containers are to be used.

    Attributes
    ----------
    command
        What runs in a container.
    per_rank
        Whether each rank has a container of its own; else there is one per node.
    mpi
        Whether srun wires the ranks up for the host's MPI.
    """

    command: tuple[Word, ...]
    per_rank: bool = False
    mpi: bool = False


class LauncherSpec(msgspec.Struct, frozen=True):
    """What a launcher is given.

    Attributes
    ----------
    extra
        Words for torchrun itself.
    cores
        A list of cores for each local rank (``1-7``), where workers are to be bound by the launcher.
    logs
        Folder in which each rank has a file for what it prints; empty where all print to the job's output.
    label
        Whether each line of the output begins with the rank that wrote it.
    least_nodes
        The fewest nodes that torchrun may go on with; 0 where it is not elastic.
    note_file
        The program by which a rank notes what it was given; empty where nothing is noted.
    end_files
        Beginning of the names of files that an elastic torchrun leaves where it ended well; empty for none.
    copy
        Number of the copy of the command, where a script starts several by itself; empty where it does not.
    core_lists
        An expression with the lists of `cores`, if the script has them in a variable.
    """

    command: tuple[Word, ...]
    counts: Counts
    extra: tuple[str, ...] = ()
    cores: tuple[str, ...] = ()
    logs: str = ""
    label: bool = False
    least_nodes: int = 0
    note_file: str = ""
    end_files: str = ""
    copy: Word = ""
    core_lists: Word = ""

    @property
    def logged(self) -> tuple[Word, ...]:
        """The command, with its output where it belongs."""
        return (*self.log_words, *self.command)

    @property
    def log_words(self) -> tuple[Word, ...]:
        """What stands before a command: its output goes to a file of the rank, and it notes what it was given."""
        log = ("/bin/sh", "-c", LOG, LOG.name, self.logs) if self.logs else ()
        note = ("/bin/sh", "-c", NOTE, NOTE.name, self.note_file) if self.note_file else ()
        return (*log, *note)


Launcher = Callable[[LauncherSpec], LauncherCommand]


LABEL = ("--tee", "3")
"""Words for torchrun that copy each worker's output with a prefix; see `LABEL_FORM`."""

LABEL_FORM = ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}: ")
"""Variable with the prefix that torchrun writes: srun's own (torch >= 2.3; an older one writes ``[default0]:``)."""


PLANNED: Mapping[str, str] = MappingProxyType(
    {"nnodes": "--nodes", "nproc-per-node": "--ranks or --gpus-per-node"}
    | dict.fromkeys(
        ("node-rank", "master-addr", "master-port", "standalone"), "the script, which finds it on the nodes"
    )
    | dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-id"), "the script, or --elastic")
)
"""Options of torchrun that a plan sets -> what says them here."""


def _refuse_planned(spec: LauncherSpec) -> None:
    """Refuse words for torchrun that would contradict the plan: torchrun takes the last of two."""
    for word in spec.extra:
        ours = PLANNED.get(word.partition("=")[0].lstrip("-").replace("_", "-"), "") if word.startswith("--") else ""
        if ours:
            raise UsageError(
                f"what {word!r} says is said by {ours}",
                evidence=f"--torchrun-arg {word}; torchrun would take the last of two, and the plan would not know it",
                hint="leave it out",
            )
    if any(word.startswith(("-r", "--redirects")) for word in spec.extra) and not any(
        word.startswith(("--log-dir", "--log_dir")) for word in spec.extra
    ):
        raise UsageError(
            "--redirects needs a folder that stays: torchrun's own is on the node, and is removed at the end",
            hint="add --torchrun-arg=--log-dir=FOLDER, or use --log-dir FOLDER instead: a file for each rank",
        )


def torchrun(spec: LauncherSpec) -> LauncherCommand:
    """Start one container per node and torchrun in it: static rendezvous on several nodes, its own on one."""
    _refuse_planned(spec)
    program = as_torchrun_program(spec.command)
    # Cores are those of the site's map: torch's own --numa-binding knows NUMA nodes only, and no reserved cores.
    own_binding = any(word.startswith("--numa") for word in spec.extra)
    cores = () if own_binding else spec.cores
    if cores or spec.log_words:
        bind = ("/bin/sh", "-c", BIND, BIND.name, spec.core_lists or ";".join(cores)) if cores else ()
        program = ("--no-python", *bind, *spec.log_words, *_worker(spec.command))
    entry, nodes = (ELASTIC, _at_least(spec)) if spec.least_nodes else (TORCHRUN, spec.counts.nodes)
    own = (spec.end_files,) if spec.least_nodes else ()
    words = ("/bin/sh", "-c", entry, entry.name, nodes, spec.counts.ranks_per_node, *own)
    return LauncherCommand((*words, *(LABEL if spec.label else ()), *spec.extra, *program))


def _at_least(spec: LauncherSpec) -> Word:
    nodes = spec.counts.nodes
    most = nodes.expression if isinstance(nodes, ShellExpr) else nodes
    return ShellExpr(f"{spec.least_nodes}:{most}")


def srun(spec: LauncherSpec) -> LauncherCommand:
    """Start a container per rank, which finds its rank in what Slurm told the task."""
    _refuse_extra(spec)
    return LauncherCommand(_numbered(RANK, spec), per_rank=True)


def mpi(spec: LauncherSpec) -> LauncherCommand:
    """Start a container per rank under the host's MPI wire-up (PMIx or PMI-2)."""
    _refuse_extra(spec)
    return LauncherCommand(_numbered(MPI_RANK, spec), per_rank=True, mpi=True)


def _numbered(program: ShellHelper, spec: LauncherSpec) -> tuple[Word, ...]:
    """Give the words of a rank that numbers itself; where nothing stands between, the same shell notes the rank."""
    ranks = spec.counts.ranks_per_node
    start = ("/bin/sh", "-c", program, program.name, ranks)
    if spec.logs:
        return (*start, "", *spec.logged)
    return (*start, spec.note_file, *spec.command)


def ray(spec: LauncherSpec) -> LauncherCommand:
    """Start one container per node, make one Ray cluster of them, and the command on the first."""
    _refuse_extra(spec)
    program = ShellFunction("ray_cluster", RAY.read_text(encoding="utf-8"))
    return LauncherCommand((*spec.log_words, "python", "-u", "-c", program, spec.counts.nodes, *spec.command))


def none(spec: LauncherSpec) -> LauncherCommand:
    """Start the command as it is, once per rank; Slurm numbers its tasks, copies on one machine are numbered here."""
    _refuse_extra(spec)
    number = ("/bin/sh", "-c", COPY, COPY.name, spec.copy, spec.counts.ranks_per_node) if spec.copy else ()
    return LauncherCommand((*number, *spec.logged), per_rank=True)


def _refuse_extra(spec: LauncherSpec) -> None:
    if spec.extra:
        raise UsageError("--torchrun-arg needs the launcher torchrun", hint="leave it out, or use --launcher torchrun")


def _worker(command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Give what a worker runs: Python unbuffered, as torchrun itself would start it."""
    if command and command[0] in PYTHON_NAMES and command[1:2] != ("-u",):
        return (command[0], "-u", *command[1:])
    return command


LAUNCHERS: Mapping[str, Launcher] = MappingProxyType(
    {"torchrun": torchrun, "srun": srun, "mpi": mpi, "ray": ray, "none": none}
)
STARTERS = frozenset(
    {"accelerate", "deepspeed", "mpiexec", "mpirun", "torch.distributed.launch", "torch.distributed.run", "torchrun"}
)
"""Programs and modules that start ranks."""

NEED_SLURM = frozenset({"srun", "mpi"})
ONE_PER_NODE = frozenset({"ray"})
"""Launchers that start one rank on each node."""


def find_launcher(name: str) -> Launcher:
    """Look a launcher up.

    Raises
    ------
    UsageError
        When there is none of that name; the nearest is named.
    """
    if name not in LAUNCHERS:
        near = suggest_word(name, LAUNCHERS)
        raise UsageError(
            f"there is no launcher {name!r}",
            evidence=f"known: {', '.join(LAUNCHERS)}",
            hint=f"did you mean {near}?" if near else "choose one of them",
        )
    return LAUNCHERS[name]


def as_torchrun_program(command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Say a user's command in torchrun's words.

    ``python train.py …`` becomes ``train.py …``, ``python -m mod …`` becomes ``-m mod …``; interpreter options and
    other programs are kept by ``--no-python``.  ``python -u`` needs no word: torchrun starts workers unbuffered.
    """
    words = command
    if words and words[0] in PYTHON_NAMES:
        rest = words[2:] if words[1:2] == ("-u",) else words[1:]
        if rest and rest[0] == "-m" and len(rest) > 1:
            return ("-m", *rest[1:])
        if rest and isinstance(rest[0], str) and not rest[0].startswith("-"):
            return rest
    return ("--no-python", *words)


def _refuse_starter(command: tuple[Word, ...]) -> None:
    """Refuse to start several copies of what starts ranks itself: each copy would be a whole run.

    Raises
    ------
    UsageError
        Naming the program that is meant.
    """
    words = [word for word in command if isinstance(word, str)]
    first = words[2:3] if words[1:2] == ["-m"] else words[:1]
    name = first[0].rpartition("/")[2] if first else ""
    if name in STARTERS:
        script = next((place for place, word in enumerate(words) if word.endswith(".py")), len(words))
        meant = " ".join(("python", *(words[script:] or ["train.py"])))
        raise UsageError(
            f"{name} starts ranks itself, as a launch does: each rank would be a whole run of its own",
            evidence=f"-- {' '.join(words)}",
            hint=f"name the program alone: -- {meant}; or say --ranks 1 for one {name}, --launcher none for many",
        )


def choose_launcher(asked: str, image: Image, command: tuple[Word, ...], shape: Shape) -> Choice:
    """Choose how ranks are started: torchrun for Python programs in an image with torch, else none."""
    if asked:
        find_launcher(asked)
        return Choice(ChoiceKey.LAUNCHER, asked, "asked for", "option")
    if shape.ranks > 1:
        _refuse_starter(command)
    is_python = bool(command) and command[0] in PYTHON_NAMES
    if is_python and "torch" in image.packages:
        return Choice(ChoiceKey.LAUNCHER, "torchrun", "a Python program, and the image has torch", "image")
    if shape.ranks > 1 and is_python and not image.complete:
        why = "a Python program on several ranks; the image does not list " + (
            "the packages of its base" if image.argosy else "packages"
        )
        return Choice(ChoiceKey.LAUNCHER, "torchrun", why, "image")
    return Choice(ChoiceKey.LAUNCHER, "none", "no Python program with torch: the command runs once per rank", "image")


def refuse_without_torch(launcher: str, image: Image, *, needed: bool = False) -> None:
    """Refuse torchrun in an image that has no torch for certain: the job would fail after its time in the queue.

    Parameters
    ----------
    needed
        Whether the command needs torch, whatever starts it.

    Raises
    ------
    UsageError
        With what to do.
    """
    if not (needed or launcher == "torchrun") or not image.complete or "torch" in image.packages:
        return
    build = "add torch to its environment and build again"
    raise UsageError(
        f"{'what measures' if needed else 'the launcher torchrun'} is made of torch, and the image has no torch",
        evidence=f"{image.path} lists all its Python packages: {len(image.packages)}, and torch is none of them",
        hint=f"{build}; or name another image" if needed else f"{build}; or without it: --launcher srun, mpi or none",
    )
