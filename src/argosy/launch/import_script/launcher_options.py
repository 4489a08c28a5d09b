"""Read the options of launchers and containers: srun, mpirun, torchrun, Apptainer, docker; pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.launch.import_script.program import NO_SHORT, ScriptProgram
from argosy.launch.launchers.launcher import complete_torchrun
from argosy.slurm.sbatch import SBATCH_OPTIONS, SRUN_FLAGS, SRUN_SHORT, Option, split_options
from argosy.slurm.script_words import WordPart, source_text


class _Known(NamedTuple):
    """The options of a program: without a value, with one, those that Argosy replaces, and the keys of others."""

    flags: frozenset[str]
    values: re.Pattern[str]
    replaced: re.Pattern[str]
    keys: Mapping[str, str]


def _read_known() -> Mapping[str, _Known]:
    tables = tomllib.loads(Path(__file__).with_name("launcher_options.toml").read_text(encoding="utf-8"))
    return {
        name: _Known(
            frozenset(f"{table['flags']} {table['flags'].replace('_', '-')}".split()),
            _pattern(table["values"]),
            _pattern(table.get("replaced", "")),
            {option: key for key in ("bind", "env", "workdir") for option in table.get(key, "").split()},
        )
        for name, table in tables.items()
    }


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile("|".join(words.replace("_", "[-_]").split()) or "(?!)")


KNOWN = _read_known()
"""Program -> its options."""

OF_SRUN = re.compile("|".join((*sorted(SBATCH_OPTIONS), KNOWN["srun"].values.pattern)))
"""Options of srun that take a value."""

INSIDE = re.compile(r"(APPTAINERENV|SINGULARITYENV)_")
BINDS = frozenset({"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"})
"""Variables for Apptainer: the prefix of those of the container, and its bind mounts."""


def container_start(program: ScriptProgram) -> int:
    """Return the index of ``apptainer exec`` in the arguments of another program; 0 if it is not there."""
    pairs = enumerate(pairwise(program.texts))
    return next((at for at, (name, verb) in pairs if at and CONTAINER.search(name) and verb in {"exec", "run"}), 0)


TYPESET_DASHES = ("\N{EN DASH}", "\N{EM DASH}", "\N{MINUS SIGN}")
"""Dashes that word processors and web pages put in place of the hyphens of an option."""

CONTAINER = re.compile(r"(^|/)(apptainer|singularity|bsc_singularity)$")


def read_container(program: ScriptProgram) -> None:
    """Read ``apptainer exec [options] IMAGE``; `bsc_singularity` is the wrapper of MareNostrum 5."""
    texts = program.texts
    _, before = split_options(texts[1:], flags=KNOWN["apptainer"].flags, short=NO_SHORT)
    verb = texts[1 + before] if len(texts) > 1 + before else ""
    if verb not in {"exec", "run"}:
        program.is_done = True
        if verb in {"shell", "instance"}:
            program.obstacle = f"Argosy translates exec and run, not {verb}"
        return
    left = _read_container_options(program, KNOWN["apptainer"], 2 + before, separator=",")
    for option in left:
        match option.name:
            case "nv" | "rocm" | "nvccli":
                program.replaced.append(f"--{option.name}: Argosy chooses how the container gets its GPUs")
            case "contain" | "c" | "containall" | "C":
                program.keys["contain"] = True
            case "cleanenv" | "e":
                note = "--cleanenv: Argosy passes your environment on, and drops what belongs to the host"
                program.untranslated.append(note)
            case _:
                _note_other_option(program, option, texts[0])
    if program.words:
        image = program.texts[0]
        if image.startswith(TYPESET_DASHES):
            program.obstacle = f"{image} begins with a dash of a text, not with '-': type the option again"
        program.keys["image"] = image
        program.skip(1)
    if verb == "run":
        program.words = ((WordPart("text", "/.singularity.d/runscript"),), *program.words)


def _read_container_options(program: ScriptProgram, known: _Known, start: int, *, separator: str) -> list[Option]:
    """Read bind mounts, variables and the folder of a container; return the other options, and skip all of them."""
    program.is_start = True
    options, count = split_options(program.texts[start:], flags=known.flags, short=NO_SHORT, line=program.line)
    program.note_unknown_values(options, known.values)
    program.skip(start + count)
    for option in options:
        match known.keys.get(option.name):
            case "bind":
                program.add("bind", *option.value.split(separator))
            case "env":
                for pair in option.value.split(separator):
                    _read_variable(program, pair)
            case "workdir":
                program.keys["workdir"] = option.value
    return [option for option in options if option.name not in known.keys]


def _note_other_option(program: ScriptProgram, option: Option, name: str) -> None:
    dashes = "--" if len(option.name) > 1 else "-"
    program.untranslated.append(f"{dashes}{option.name}: an option of {name.rsplit('/', 1)[-1]}")


def read_docker(program: ScriptProgram) -> None:
    """Read ``docker run``, ``podman run`` and ``podman-hpc run``."""
    texts, known = program.texts, KNOWN["docker"]
    if texts[1:2] != ["run"]:
        program.is_done = True
        if texts[1:2] in (["exec"], ["start"], ["compose"]):
            program.obstacle = f"Argosy translates run, not {texts[1]}"
        return
    for option in _read_container_options(program, known, 2, separator="\0"):
        if known.replaced.fullmatch(option.name):
            program.replaced.append(f"{option}: Argosy starts the container")
        else:
            _note_other_option(program, option, texts[0])
    if program.words:
        program.keys["image"] = f"docker://{program.texts[0]}"
        program.skip(1)


def _read_variable(program: ScriptProgram, pair: str) -> None:
    """Read ``NAME=VALUE``; NAME alone passes the variable of the script's shell on."""
    name, given, value = pair.partition("=")
    if given:
        program.set_variable(name, value)
    else:
        program.untranslated.append(f"--env {name}: it passes your variable on; start the job with --env {name}")


def read_shifter(program: ScriptProgram) -> None:
    """Read ``shifter --image=…``; without the option, the image is that of ``#SBATCH --image``."""
    program.keys["image"] = ""
    for option in _read_container_options(program, KNOWN["shifter"], 1, separator=";"):
        if option.name in {"image", "i"}:
            program.keys["image"] = _shifter_reference(option.value)
        else:
            _note_other_option(program, option, "shifter")


def shifter_image(keys: dict[str, Any]) -> str:
    """Return the image that the options of the job name for shifter."""
    names = (each.removeprefix("--image=") for each in keys.get("sbatch_arg", ()) if each.startswith("--image="))
    return _shifter_reference(next(names, "${SHIFTER_IMAGE}"))


def _shifter_reference(name: str) -> str:
    return f"docker://{name.removeprefix('docker:')}"


def _pyxis_image(text: str) -> str:
    """Return a reference in the form of Apptainer: pyxis writes ``host#name``, without ``docker://``."""
    if text.startswith(("/", "./", "$", "~")) or text.endswith((".sqsh", ".sif")):
        return text
    return f"docker://{text.removeprefix('docker://').replace('#', '/')}"


GPUS_OF_NODE = re.compile(r"^(gpu|auto|cpu)?$|SLURM_|nvidia-smi|rocm-smi")
"""Numbers of processes that mean a process for each GPU."""

OTHER_PROGRAMS = "a colon separates several programs: write a job for each"

MPI_RANKS = {
    **dict.fromkeys(("n", "np", "c"), "ntasks"),
    **dict.fromkeys(("ppn", "perhost", "npernode", "N"), "ntasks-per-node"),
}
"""Options of mpirun for the number of ranks, in all and on each node -> srun's name."""

RANKS_ON_NODE = re.compile(r"ppr:(\d+):node\b")
"""Value of ``--map-by`` with the number of ranks on each node (Open MPI)."""

UNKNOWN = re.compile(r"\$(?!\()")
"""Beginning of a variable or an argument of the script; each rank finds the program of ``$(which PROGRAM)``."""

MPI_COUNTS = {"mca": 2, "gmca": 2, "genv": 2, "env": 2, "pmixmca": 2, "prtemca": 2}
"""Number of values of the options that take more than one."""


def read_srun(program: ScriptProgram) -> None:
    """Read srun; its options of the shape are translated later."""
    options, count = split_options(program.texts[1:], flags=SRUN_FLAGS, short=SRUN_SHORT, line=program.line)
    program.is_start = program.is_step = True
    program.launcher = program.launcher or "srun"
    program.note_unknown_values(options, OF_SRUN)
    program.skip(1 + count)
    kept: list[Option] = []
    for option in options:
        match option.name:
            case "container-image":
                program.keys["image"] = _pyxis_image(option.value)
            case "container-mounts":
                program.add("bind", *(mount for mount in option.value.split(",")))
            case "container-workdir":
                program.keys["workdir"] = option.value
            case "mpi":
                program.keys["mpi"] = option.value
                program.launcher = "mpi" if option.value.startswith(("pmi", "cray")) else program.launcher
            case "input" if not re.fullmatch(r"all|none|\d+|.*[%$].*", option.value):
                program.inputs = ((WordPart("text", option.value),),)
            case "multi-prog":
                program.obstacle = "the programs are in the file: write a job for each of its lines"
            case "pty":
                program.untranslated.append("--pty: an interactive step; use argosy launch --interactive")
            case _:
                kept.append(option)
    program.step_options = tuple(kept)
    _note_unknown_word(program)


def _note_unknown_word(program: ScriptProgram) -> None:
    """Record an obstacle if the options end with a variable of unknown value: it may be an option or the program."""
    first = [part for part in (program.words or ((),))[0] if part.text]
    if first and all(UNKNOWN.match(source_text((part,))) for part in first):
        word = program.texts[0]
        program.obstacle = f"the script does not say whether {word} is an option or the program: write its value"


def read_mpirun(program: ScriptProgram) -> None:
    """Read ``mpirun -np N``."""
    texts = program.texts
    program.is_start, program.launcher = True, "mpi"
    at = 1
    while at < len(texts) and texts[at].startswith("-"):
        name, given, value = texts[at].lstrip("-").partition("=")
        takes = 0 if given or name in KNOWN["mpirun"].flags else MPI_COUNTS.get(name, 1)
        values = [value] if given else texts[at + 1 : at + 1 + takes]
        name, values = _mpi_synonym(name, values)
        if takes == 1:
            program.note_unknown_values([Option(program.line, name, " ".join(values))], KNOWN["mpirun"].values)
        if name in MPI_RANKS and values:
            _read_ranks(program, name, values[0])
        elif remedy := _mpi_remedy(name, values):
            program.untranslated.append(f"{' '.join(texts[at : at + 1 + takes])}: {remedy}")
        elif name in {"x", "env"} and values and "=" in values[0]:
            key, _, value = values[0].partition("=")
            program.set_variable(key, value)
            takes = 1
        elif name in {"genv", "env"} and len(values) > 1:
            program.set_variable(*values)
        else:
            program.replaced.append(
                f"{' '.join(texts[at : at + 1 + takes])}: Argosy starts the MPI ranks on the nodes of the job"
            )
        at += 1 + takes
    program.skip(at)
    _note_unknown_word(program)
    if ":" in program.texts:
        program.obstacle = OTHER_PROGRAMS


def _mpi_synonym(name: str, values: list[str]) -> tuple[str, list[str]]:
    """Return an option for the number of ranks on a node as ``npernode``; any other option as it is."""
    if name == "pernode":
        return "npernode", ["1"]
    if name in {"map-by", "map_by"} and (found := RANKS_ON_NODE.match(" ".join(values))):
        return "npernode", [found[1]]
    return name, values


def _mpi_remedy(name: str, values: list[str]) -> str:
    """Return what to do about an option that a job does not have; empty if Argosy does what it says."""
    if name in {"wdir", "wd"}:
        return "the folder of the program: set chdir"
    return "set ranks_per_node" if name == "npersocket" or " ".join(values).startswith("ppr:") else ""


def _read_ranks(program: ScriptProgram, option: str, value: str) -> None:
    """Read a number of ranks; one that is not a plain number is translated like that of srun."""
    name = MPI_RANKS[option]
    count = parse_int(value)
    if count and name == "ntasks":
        program.processes = count
    else:
        program.step_options = (*program.step_options, Option(program.line, name, value))


def _read_options(
    program: ScriptProgram, known: _Known, *, words: int = 1, complete: Callable[[str], str] = str
) -> list[Option]:
    """Read a launcher that starts Python, for which torchrun is used instead; return the options that tell more.

    `words` is the number of words before the options.
    """
    options, count = split_options(
        program.texts[words:], flags=known.flags, short={"m": "module", "t": "tee"}, complete=complete
    )
    program.is_start, program.launcher = True, "torchrun"
    program.note_unknown_values(options, known.values)
    program.skip(words + count)
    if not program.words:
        program.obstacle = program.obstacle or "no program follows its options"
    names = {option.name.replace("-", "_") for option in options}
    if "no_python" not in names:
        python = ("python", "-m") if "module" in names else ("python",)
        program.words = (*((WordPart("text", each),) for each in python), *program.words)
    return [option for option in options if option.name.replace("-", "_") not in {"module", "no_python"}]


def read_torchrun(program: ScriptProgram) -> None:
    """Read torchrun; Argosy chooses the rendezvous."""
    for option in _read_options(program, KNOWN["torchrun"], complete=complete_torchrun):
        name = option.name.replace("_", "-")
        if name == "nproc-per-node":
            program.processes = parse_int(option.value)
            if not program.processes and not GPUS_OF_NODE.search(option.value):
                program.untranslated.append(
                    f"{option}: Argosy starts a rank for each GPU; to change it, set ranks_per_node"
                )
        elif KNOWN["torchrun"].replaced.fullmatch(option.name):
            program.replaced.append(f"{option}: Argosy chooses the rendezvous")
            program.nodes_option = option if name == "nnodes" else program.nodes_option
        else:
            _pass_to_torchrun(program, option)


def _pass_to_torchrun(program: ScriptProgram, option: Option) -> None:
    if "$" in option.value or "`" in option.value:
        program.untranslated.append(f"{option}: the job computes the value: write it into torchrun_arg")
    else:
        program.add("torchrun_arg", str(option))


OF_BOTH = frozenset({"log-dir", "max-restarts", "monitor-interval", "role", "tee"})
"""Options of ``accelerate launch`` that it passes on to torchrun (accelerate/commands/launch.py)."""

CONFIG_LOST = (
    "without the file, Accelerate uses DDP and its defaults: set in env what the file sets, for example "
    "ACCELERATE_USE_DEEPSPEED, ACCELERATE_USE_FSDP or ACCELERATE_MIXED_PRECISION"
)


def read_accelerate(program: ScriptProgram) -> None:
    """Read ``accelerate launch``: the program runs under torchrun."""
    if program.texts[1:2] != ["launch"]:
        program.is_done = True
        return
    for option in _read_options(program, KNOWN["accelerate"], words=2):
        if option.name in {"mixed_precision", "mixed-precision"}:
            program.set_variable("ACCELERATE_MIXED_PRECISION", option.value)
        elif option.name in {"cpu", "use_cpu", "use-cpu"}:
            program.set_variable("ACCELERATE_USE_CPU", "true")
        elif KNOWN["accelerate"].replaced.fullmatch(option.name):
            program.replaced.append(f"{option}: Argosy starts the ranks")
        elif (name := option.name.replace("_", "-")) in OF_BOTH:
            _pass_to_torchrun(program, replace(option, name=name))
        elif name == "config-file":
            program.untranslated.append(f"{option}: {CONFIG_LOST}")
            program.comments.append(program.untranslated[-1])
        else:
            program.untranslated.append(f"{option}: an option of accelerate launch; set it in your program")


def read_deepspeed(program: ScriptProgram) -> None:
    """Read ``deepspeed``: the program runs under torchrun."""
    options = _read_options(program, KNOWN["deepspeed"])
    program.is_everywhere = any(option.name in {"num_nodes", "hostfile", "H"} for option in options)
    for option in options:
        if option.name in {"num_gpus", "num_accelerators"}:
            program.processes = parse_int(option.value)
        else:
            program.nodes_option = option if option.name == "num_nodes" else program.nodes_option
            program.replaced.append(f"{option}: Argosy starts the ranks")
