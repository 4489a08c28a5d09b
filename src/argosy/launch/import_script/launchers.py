"""Read the options of launchers in a job script: srun, mpirun, torchrun, accelerate, deepspeed; pure."""

from __future__ import annotations

import re

from argosy.core.parse import parse_int
from argosy.core.sbatch_options import SRUN_FLAGS, SRUN_SHORT, Option, split_options
from argosy.core.script_reader import Part, Word
from argosy.launch.import_script.containers import pyxis_image
from argosy.launch.import_script.program import NO_SHORT, Program

TORCHRUN_FLAGS = frozenset(
    {"module", "standalone", "no-python", "no_python", "run-path", "run_path", "use_env", "use-env"}
)

RENDEZVOUS = re.compile(
    r"(nnodes|node[-_]rank|rdzv[-_]\w+|master[-_](addr|port)|standalone|use[-_]env|local[-_]addr)\Z"
)
"""Options of torchrun that Argosy chooses itself."""

ACCELERATE_DONE = re.compile(
    r"(multi[-_]gpu|num[-_](machines|processes)|machine[-_]rank|main[-_]process[-_](ip|port)|rdzv[-_]\w+"
    r"|same[-_]network)\Z"
)
"""Options of ``accelerate launch`` that Argosy chooses itself."""

_MPI_FLAGS = """
    bind-to-core bynode byslot display-map report-bindings oversubscribe allow-run-as-root tag-output v q
"""
MPI_FLAGS = frozenset(_MPI_FLAGS.split())
"""Options of mpirun that take no value."""

MPI_RANKS = {
    **dict.fromkeys(("n", "np", "c"), "ntasks"),
    **dict.fromkeys(("ppn", "perhost", "npernode", "N"), "ntasks-per-node"),
}
"""Options of mpirun for the number of ranks, in all and on each node -> srun's name."""

MPI_VALUES = {"mca": 2, "gmca": 2, "genv": 2, "env": 2}
"""Number of values of the options that take more than one."""


def read_srun(program: Program) -> None:
    """Read srun; its options of the shape are translated later."""
    options, count = split_options(program.texts[1:], flags=SRUN_FLAGS, short=SRUN_SHORT, line=program.line)
    program.is_start = True
    program.launcher = program.launcher or "srun"
    program.skip(1 + count)
    kept: list[Option] = []
    for option in options:
        match option.name:
            case "container-image":
                program.keys["image"] = pyxis_image(option.value)
            case "container-mounts":
                program.add("bind", *(mount for mount in option.value.split(",")))
            case "container-workdir":
                program.keys["workdir"] = option.value
            case "mpi":
                program.keys["mpi"] = option.value
                program.launcher = "mpi" if option.value.startswith(("pmi", "cray")) else program.launcher
            case "pty":
                program.unread.append("--pty: an interactive step; use argosy launch --interactive")
            case _:
                kept.append(option)
    program.step_options = tuple(kept)


def read_mpirun(program: Program) -> None:
    """Read ``mpirun -np N``."""
    texts = program.texts
    program.is_start, program.launcher = True, "mpi"
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        name = texts[at].lstrip("-")
        takes = 0 if "=" in name or name in MPI_FLAGS else MPI_VALUES.get(name, 1)
        values = texts[at + 1 : at + 1 + takes]
        if name in MPI_RANKS and values:
            _read_ranks(program, texts[at], values[0])
        elif name == "x" and values and "=" in values[0]:
            key, _, value = values[0].partition("=")
            program.keys.setdefault("env", {})[key] = value
        else:
            program.replaced.append(
                f"{' '.join((texts[at], *values))}: Argosy starts the MPI ranks on the nodes of the job"
            )
        at += 1 + takes
    program.skip(at)


def _read_ranks(program: Program, option: str, value: str) -> None:
    """Read a number of ranks; one that is not a plain number is translated like that of srun."""
    name = MPI_RANKS[option.lstrip("-")]
    count = parse_int(value)
    if count and name == "ntasks":
        program.processes = count
    else:
        program.step_options = (*program.step_options, Option(program.line, name, value))


def read_torchrun(program: Program) -> None:
    """Read torchrun; Argosy chooses the rendezvous."""
    texts = program.texts
    options, count = split_options(texts[1:], flags=TORCHRUN_FLAGS, short={"m": "module"})
    program.is_start, program.launcher = True, "torchrun"
    module, plain = False, False
    for option in options:
        name = option.name.replace("_", "-")
        if name == "nproc-per-node":
            program.processes = parse_int(option.value)
        elif name == "module":
            module = True
        elif name == "no-python":
            plain = True
        elif RENDEZVOUS.match(option.name):
            program.replaced.append(f"{option}: Argosy chooses the rendezvous")
        else:
            program.add("torchrun_arg", str(option))
    program.skip(1 + count)
    if not plain:
        program.words = (*_python(module=module), *program.words)


def read_accelerate(program: Program) -> None:
    """Read ``accelerate launch``: the program runs under torchrun."""
    if program.texts[1:2] != ["launch"]:
        return program.skip(len(program.words))
    flags = frozenset({"module", "multi_gpu", "multi-gpu", "use_deepspeed", "use_fsdp"})
    options, count = split_options(program.texts[2:], flags=flags, short={"m": "module"})
    program.is_start, program.launcher = True, "torchrun"
    module = False
    for option in options:
        if option.name == "module":
            module = True
        elif option.name in {"mixed_precision", "mixed-precision"}:
            program.keys.setdefault("env", {})["ACCELERATE_MIXED_PRECISION"] = option.value
        elif ACCELERATE_DONE.match(option.name):
            program.replaced.append(f"{option}: Argosy starts the ranks")
        else:
            program.unread.append(f"{option}: an option of accelerate launch; set it in your program")
    program.skip(2 + count)
    program.words = (*_python(module=module), *program.words)
    return None


def _python(*, module: bool) -> tuple[Word, ...]:
    """Return the beginning of the command: launchers start Python themselves."""
    return tuple((Part("text", each),) for each in (("python", "-m") if module else ("python",)))


def read_deepspeed(program: Program) -> None:
    """Read ``deepspeed``: the program runs under torchrun."""
    options, count = split_options(program.texts[1:], short=NO_SHORT)
    program.is_start, program.launcher = True, "torchrun"
    for option in options:
        if option.name == "num_gpus":
            program.processes = parse_int(option.value)
        else:
            program.replaced.append(f"{option}: Argosy starts the ranks")
    program.skip(1 + count)
    program.words = (*_python(module=False), *program.words)
