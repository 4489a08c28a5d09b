"""Choose how ranks are started, and plan the command of each launcher; pure.

==========  ==========================================================================================================
torchrun    one container per node, in which ``python -m torch.distributed.run`` starts a worker per rank
srun        one container per node, in which a program of Argosy starts a rank as Slurm starts a task; or a container
            per rank, with rank variables from the numbers of the Slurm task
mpi         a container per rank, connected by the host's MPI, which numbers the ranks (PMIx, PMI-2)
ray         one container per node, which form a Ray cluster, and the command runs on the first node
none        the unchanged command, once per rank; several copies get rank variables
==========  ==========================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from argosy.core.errors import UsageError
from argosy.core.model import Choice, ChoiceKey, Image
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, ShellFunction, ShellHelper, Word, join_words, load_helper, quote
from argosy.core.suggest import did_you_mean
from argosy.jobs.launch_plan import JobShape
from argosy.runtimes.command_check import find_interpreter, is_of_image, skip_wrappers

FUNCTIONS = Path(__file__).with_name("data") / "ranks.sh"

TORCHRUN = load_helper(FUNCTIONS, "start_torchrun")
ELASTIC = load_helper(FUNCTIONS, "start_elastic")
RANK = load_helper(FUNCTIONS, "start_rank")
TASK = load_helper(FUNCTIONS, "start_task")
MPI_RANK = load_helper(FUNCTIONS, "start_mpi_rank")
NOTE = load_helper(FUNCTIONS, "note_rank")
COPY = load_helper(FUNCTIONS, "start_copy")
BIND = load_helper(FUNCTIONS, "bind_cores")
LOG = load_helper(FUNCTIONS, "log_rank")
GUARD = load_helper(FUNCTIONS, "guard_rank")


PYTHON_NAMES = ("python", "python3")

RAY = Path(__file__).with_name("ray_program.py")
"""The program that makes one Ray cluster of a job's nodes; the image's Python runs it."""

START_RANKS = Path(__file__).with_name("start_ranks.py")
"""The program that starts the ranks of a node in one container; the image's Python runs it."""


class Counts(msgspec.Struct, frozen=True):
    """The shape in a script: numbers, or shell expressions if Slurm sets them when the job runs."""

    nodes: Word
    ranks_per_node: Word

    @property
    def of_job(self) -> bool:
        """Whether Slurm sets the numbers."""
        return isinstance(self.nodes, ShellExpr)


class LauncherCommand(msgspec.Struct, frozen=True):
    """The command of a launcher, and how containers run it."""

    command: tuple[Word, ...]
    """The command in a container."""
    per_rank: bool = False
    """Whether there is a container per rank; else there is one per node."""


class LauncherSpec(msgspec.Struct, frozen=True):
    """The request to a launcher."""

    command: tuple[Word, ...]
    counts: Counts
    extra: tuple[str, ...] = ()
    """Arguments for torchrun itself."""
    cores: tuple[str, ...] = ()
    """A list of cores for each local rank (``1-7``); empty if the launcher does not bind the ranks."""
    logs: Word = ""
    """Folder of this run for an output file per rank; empty: all ranks write to the job's output."""
    label: bool = False
    """Whether each line of the output begins with its rank."""
    least_nodes: int = 0
    """The fewest nodes with which torchrun may continue; 0 if it is not elastic."""
    note_file: Word = ""
    """The program that records the cores and GPUs of a rank; empty without a record."""
    end_files: Word = ""
    """Prefix of the files that an elastic torchrun writes when it succeeds; empty: it writes none."""
    copy: Word = ""
    """Number of the copy, if the script itself starts several copies of the command; else empty."""
    core_lists: Word = ""
    """An expression with the lists of `cores`, if the script has them in a variable."""
    python: str = ""
    """Python of the image that starts the ranks of a node in one container; empty: a container per rank."""
    warning: str = ""
    """Signal that warns the ranks of the time limit; empty without `--resume`."""

    @property
    def logged(self) -> tuple[Word, ...]:
        """The command, with its output redirected if necessary."""
        return (*self.log_words, *self.command)

    @property
    def guarded(self) -> LauncherSpec:
        """The spec whose command the warning does not end; a launcher that passes signals on needs no guard."""
        guard = ("/bin/sh", "-c", GUARD, GUARD.name, self.warning) if self.warning else ()
        return replace(self, command=(*guard, *self.command))

    @property
    def log_words(self) -> tuple[Word, ...]:
        """The arguments before a command that redirect its output and record its cores and GPUs."""
        log = ("/bin/sh", "-c", LOG, LOG.name, self.logs) if self.logs else ()
        note = ("/bin/sh", "-c", NOTE, NOTE.name, self.note_file) if self.note_file else ()
        return (*log, *note)


class Launcher(msgspec.Struct, frozen=True):
    """A way to start ranks."""

    plan: Callable[[LauncherSpec], LauncherCommand]
    """Plans the command."""
    container_per: Literal["", "node", "rank"]
    """``node`` or ``rank``: how many containers it starts; empty if `argosy.launch.option_checks` chooses."""
    unbound: str = "an equal share"
    """Text: the cores of its ranks at a site without a map of cores."""
    needs_slurm: bool = False
    """Whether it works in jobs of Slurm only."""
    one_rank_per_node: bool = False
    """Whether each node has one rank, which distributes the node's cores and GPUs itself."""


LABEL = ("--tee", "3")
"""Options of torchrun that copy each worker's output with a prefix; see `LABEL_FORM`."""

LABEL_FORM = ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "${rank}: ")
"""Variable with the prefix that torchrun writes, here that of srun (torch >= 2.3; older ones write ``[default0]:``)."""


PLANNED: Mapping[str, str] = (
    {"nnodes": "--nodes", "nproc-per-node": "--ranks or --gpus-per-node"}
    | dict.fromkeys(("node-rank", "master-addr", "master-port", "standalone"), "the script")
    | dict.fromkeys(("rdzv-backend", "rdzv-endpoint", "rdzv-id"), "the script, or --elastic")
)
"""Option of torchrun that the plan sets -> the option of Argosy, or the script, that sets it."""


_OTHERS = """
    duplicate-stderr-filters duplicate-stdout-filters event-log-handler local-addr local-rank local-ranks-filter log-dir
    logs-specs max-restarts module monitor-interval no-python numa-binding rdzv-conf redirects role run-path
    shutdown-timeout signals-to-handle start-method tee virtual-local-rank
"""
OF_TORCHRUN = (*PLANNED, *_OTHERS.split())
"""Options of torchrun (torch 2.13, torch/distributed/run.py); ``_`` may replace ``-``."""


def complete_torchrun(name: str) -> str:
    """Complete a shortened option of torchrun as its argparse does; any other name is returned unchanged."""
    dashed = name.replace("_", "-")
    matches = [each for each in OF_TORCHRUN if each.startswith(dashed)]
    return matches[0] if dashed not in OF_TORCHRUN and len(matches) == 1 else name


def _names_of_torchrun(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each argument that is a long option, and the option's whole name with dashes."""
    for word in words:
        if word.startswith("--"):
            yield word, complete_torchrun(word[2:].partition("=")[0]).replace("_", "-")


def _refuse_planned(spec: LauncherSpec) -> None:
    """Refuse options of torchrun that would contradict the plan."""
    for before, word in pairwise(("", *spec.extra)):
        if not word.startswith("-") and (not before.startswith("-") or "=" in before):
            raise UsageError(
                f"cannot pass {word!r} to torchrun: it would be started as the program",
                hint="write an option of torchrun, for example --torchrun-arg=--max-restarts=3",
            )
    names = dict(_names_of_torchrun(spec.extra))
    for word, name in names.items():
        ours = PLANNED.get(name, "")
        if ours:
            raise UsageError(
                f"cannot pass {word!r} to torchrun: it is set by {ours}",
                evidence=f"--torchrun-arg {word}; torchrun would use this value, and the plan another one",
                hint=f"use {ours} instead" if ours.startswith("--") else "remove it",
            )
    redirects = "redirects" in names.values() or any(word.startswith("-r") for word in spec.extra)
    if redirects and "log-dir" not in names.values():
        raise UsageError(
            "--redirects needs --log-dir: torchrun's own log folder is on the node, and is removed at the end",
            hint="add --torchrun-arg=--log-dir=FOLDER, or use --log-dir FOLDER instead for a file per rank",
        )


def _plan_torchrun(spec: LauncherSpec) -> LauncherCommand:
    """Plan one container per node, and torchrun in it, with static rendezvous on several nodes."""
    _refuse_planned(spec)
    # The cores come from the site's map: torch's own --numa-binding knows only NUMA nodes, not reserved cores.
    own_binding = any(name.startswith("numa") for _, name in _names_of_torchrun(spec.extra))
    cores = () if own_binding else spec.cores
    if cores or spec.log_words:
        bind = ("/bin/sh", "-c", BIND, BIND.name, spec.core_lists or ";".join(cores)) if cores else ()
        program = ("--no-python", *bind, *spec.log_words, *_worker(spec.command))
    else:
        program = as_torchrun_program(spec.command)
    own = (ELASTIC, ELASTIC.name, spec.end_files) if spec.least_nodes else (TORCHRUN, TORCHRUN.name)
    least = f"{spec.least_nodes}:" if spec.least_nodes else ""
    nodes = _option("--nnodes", least, spec.counts.nodes)
    sizes = (nodes, _option("--nproc-per-node", spec.counts.ranks_per_node))
    return LauncherCommand(("/bin/sh", "-c", *own, *sizes, *(LABEL if spec.label else ()), *spec.extra, *program))


def _option(name: str, *values: Word) -> Word:
    """Return an option with its value, which may contain an expression of the shell."""
    return join_words((f"{name}=", *values), "")


def _plan_srun(spec: LauncherSpec) -> LauncherCommand:
    """Plan a container per rank, which is a Slurm task; or one per node, and the ranks in it."""
    _refuse_extra(spec)
    if spec.python:
        program = ShellFunction("start_ranks", START_RANKS.read_text(encoding="utf-8"))
        cores: Word = (spec.core_lists or ";".join(spec.cores)) if spec.cores else ""
        label = "yes" if spec.label else ""
        start = (spec.python, "-I", "-S", "-c", program, spec.counts.ranks_per_node, cores, label)
        return LauncherCommand((*start, *spec.logged))
    return LauncherCommand(_numbered(RANK, spec.guarded), per_rank=True)


def _plan_mpi(spec: LauncherSpec) -> LauncherCommand:
    """Plan a container per rank, connected by the host's MPI (PMIx or PMI-2)."""
    _refuse_extra(spec)
    return LauncherCommand(_numbered(MPI_RANK, spec.guarded), per_rank=True)


def _numbered(program: ShellHelper, spec: LauncherSpec) -> tuple[Word, ...]:
    """Return the command of a rank that sets its own rank variables, and records its cores and GPUs."""
    ranks = spec.counts.ranks_per_node
    start = ("/bin/sh", "-c", program, program.name, ranks)
    if spec.logs:
        return (*start, "", *spec.logged)
    return (*start, spec.note_file, *spec.command)


def _plan_ray(spec: LauncherSpec) -> LauncherCommand:
    """Plan one container per node, which join a Ray cluster; the first node runs the command."""
    _refuse_extra(spec)
    program = ShellFunction("ray_cluster", RAY.read_text(encoding="utf-8"))
    return LauncherCommand((*spec.log_words, "python", "-u", "-c", program, spec.counts.nodes, *spec.command))


def _plan_none(spec: LauncherSpec) -> LauncherCommand:
    """Plan the unchanged command, once per rank; several copies get rank variables."""
    _refuse_extra(spec)
    ranks = spec.counts.ranks_per_node
    number: tuple[Word, ...] = ()
    if spec.copy:
        number = ("/bin/sh", "-c", COPY, COPY.name, spec.copy, ranks)
    elif spec.counts.of_job:
        number = ("/bin/sh", "-c", TASK, TASK.name, ranks, "")
    return LauncherCommand((*number, *spec.guarded.logged), per_rank=True)


def _refuse_extra(spec: LauncherSpec) -> None:
    if spec.extra:
        raise UsageError("--torchrun-arg needs the torchrun launcher", hint="remove it, or use --launcher torchrun")


def _worker(command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the command of a worker, with Python unbuffered, as torchrun itself starts it."""
    at = find_interpreter(command)
    if at is not None and command[at + 1 : at + 2] != ("-u",):
        return (*command[: at + 1], "-u", *command[at + 1 :])
    return command


LAUNCHERS: Mapping[str, Launcher] = {
    "torchrun": Launcher(_plan_torchrun, "node", unbound="not bound"),
    "srun": Launcher(_plan_srun, "", needs_slurm=True),
    "mpi": Launcher(_plan_mpi, "rank", unbound="Slurm's choice", needs_slurm=True),
    "ray": Launcher(_plan_ray, "node", one_rank_per_node=True),
    "none": Launcher(_plan_none, "rank"),
}
LONGEST_COMMAND = 100
"""Characters of the longest command that a hint repeats."""

MPIEXEC = "mpiexec"
"""The host's mpiexec, which connects the ranks of the launcher `mpi` instead of srun."""

NEED_SLURM = frozenset(name for name, launcher in LAUNCHERS.items() if launcher.needs_slurm)
ONE_PER_NODE = frozenset(name for name, launcher in LAUNCHERS.items() if launcher.one_rank_per_node)

STARTERS = frozenset(
    {"accelerate", "deepspeed", "mpiexec", "mpirun", "torchrun"}
    | {"torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch", "deepspeed.launcher.runner"}
)
"""Programs and modules that start ranks themselves."""


def suggest_mpirun(command: tuple[Word, ...], ranks: int) -> str:
    """Return the arguments of a launch on this machine that starts the ranks of a program by the image's mpirun."""
    text = " ".join(quote(word) for word in command if isinstance(word, str))
    program = text if len(text) < LONGEST_COMMAND and text.isprintable() else "PROGRAM"
    return f"--ranks 1 -- mpirun -n {ranks or 'N'} {program}"


def refuse_without_slurm(launcher: str, there: str = "", instead: str = "") -> None:
    """Refuse a launcher that needs Slurm for a launch on this machine.

    Parameters
    ----------
    there
        How to launch on the cluster of this machine, for the hint.
    instead
        Arguments of a launch on this machine; empty: another launcher.
    """
    if launcher in NEED_SLURM:
        there = there or "use --site with a site that has Slurm"
        instead = instead or "--launcher torchrun or none"
        raise UsageError(f"the {launcher} launcher needs Slurm", hint=f"{there}, or use {instead}")


def find_launcher(name: str) -> Launcher:
    """Return the launcher with this name.

    Raises
    ------
    UsageError
        If it does not exist.
    """
    if name not in LAUNCHERS:
        raise UsageError(
            f"there is no launcher {name!r}",
            evidence=f"known: {', '.join(LAUNCHERS)}",
            hint=did_you_mean(name, LAUNCHERS, "choose one of them"),
        )
    return LAUNCHERS[name]


def find_python(command: tuple[Word, ...], image: Image) -> str:
    """Return the Python of an image that can start ranks: the program's own; empty if the image may not have one."""
    at = find_interpreter(command)
    return str(command[at]) if at is not None else "python3" if image.packages else ""


def as_torchrun_program(command: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return a command as arguments for torchrun.

    ``python train.py …`` becomes ``train.py …``, and ``python -m mod …`` becomes ``-m mod …``.  Other programs and
    interpreter options need ``--no-python``.  ``python -u`` is dropped: torchrun starts workers unbuffered.
    """
    words = command
    if words and words[0] in PYTHON_NAMES:
        rest = words[2:] if words[1:2] == ("-u",) else words[1:]
        if rest and rest[0] == "-m" and len(rest) > 1:
            return ("-m", *rest[1:])
        if rest and isinstance(rest[0], str) and not rest[0].startswith("-"):
            return rest
        return ("--no-python", *words)
    return ("--no-python", *_worker(words))


def refuse_starter_program(command: tuple[Word, ...]) -> None:
    """Refuse a program that starts ranks itself: each of several ranks would be a complete run."""
    words = [word for word in command if isinstance(word, str)]
    own = [word for word in words[skip_wrappers(command) :] if word != "-u"]
    first = own[2:3] if own[1:2] == ["-m"] else own[:1]
    name = first[0].rpartition("/")[2] if first else ""
    if name in STARTERS:
        script = next((index for index, word in enumerate(words) if word.endswith(".py")), len(words))
        is_mpi = name in {"mpiexec", "mpirun"}
        program = (
            " ".join(("python", *words[script:])) if words[script:] else "PROGRAM" if is_mpi else "python train.py"
        )
        meant = f"{'--launcher mpi ' if is_mpi else ''}-- {program}"
        raise UsageError(
            f"{name} starts ranks itself, so each rank of this launch would start all ranks again",
            evidence=f"-- {' '.join(words)}",
            hint=f"pass only the program: {meant}; or use --ranks 1 for one {name}, --launcher none for several",
        )


def choose_launcher(asked: str, image: Image, command: tuple[Word, ...], shape: JobShape) -> Choice:
    """Choose how ranks are started: torchrun for Python programs in an image with torch, else none."""
    if asked:
        find_launcher(asked)
        return Choice(ChoiceKey.LAUNCHER, asked, "requested", "option")
    if shape.ranks > 1:
        refuse_starter_program(command)
    at = find_interpreter(command)
    is_python = at is not None and is_of_image(str(command[at]))
    if is_python and "torch" in image.packages:
        # Only the lock of an image made by Argosy lists torch; a plan assumes it for an image that is not here.
        has = "has torch" if image.argosy else "is assumed to have torch"
        return Choice(ChoiceKey.LAUNCHER, "torchrun", f"a Python program, and the image {has}", "image")
    if shape.ranks > 1 and is_python and not (image.complete or image.only_steps_unlisted):
        why = "a Python program on several ranks; the image does not list " + (
            "the packages of its base" if image.argosy else "packages"
        )
        return Choice(ChoiceKey.LAUNCHER, "torchrun", why, "image")
    return Choice(
        ChoiceKey.LAUNCHER, "none", "not a Python program with torch: the command runs once per rank", "image"
    )


NEEDED = {"torchrun": ("torch", "PyTorch"), "ray": ("ray", "Ray")}
"""Launcher -> the package that it needs, and its title."""


def refuse_without_package(launcher: str, image: Image, *, needs_torch: bool) -> None:
    """Refuse torchrun or Ray for an image that certainly does not contain it: the job would fail after it waited.

    Parameters
    ----------
    needs_torch
        Whether the command itself needs torch.
    """
    package, title = NEEDED.get("torchrun" if needs_torch else launcher, ("", ""))
    if not package or not image.complete or package in image.packages:
        return
    build = f"add {package} to its environment and build again"
    who = "benchmark" if needs_torch else f"{launcher} launcher"
    raise UsageError(
        f"the {who} needs {title}, which this image does not contain",
        evidence=f"{image.shown} lists all its {len(image.packages)} Python packages, and {package} is not among them",
        hint=f"{build}; or use another image" if needs_torch else f"{build}; or use --launcher srun, mpi or none",
    )
