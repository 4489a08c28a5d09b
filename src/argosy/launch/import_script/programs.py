"""Take a command of a job script apart: srun, container, launcher, program; pure.

``srun -n 8 singularity exec -B /data x.sif torchrun train.py`` has four layers.  `read_program` removes the outermost
layer until the program is left, and notes what each layer says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from argosy.core.sbatch_options import split_options
from argosy.core.script_reader import Part, Statement, Values, expand, read_commands, read_statements, source_text
from argosy.launch.import_script.containers import read_container, read_docker, read_shifter
from argosy.launch.import_script.launchers import read_accelerate, read_deepspeed, read_mpirun, read_srun, read_torchrun
from argosy.launch.import_script.program import NO_SHORT, Program

ACTIVATION = re.compile(
    r"(conda|mamba|micromamba) (de)?activate|eval .*(conda|mamba)|deactivate"
    r"|(source|\.) \S*(activate|conda\.sh|profile|bashrc|modules?\.sh|lmod\w*\.sh|init/bash)"
)
"""Commands that activate an environment or the modules of the host."""

NOT_ACTIVATED = "Argosy does not activate it in the container; check with 'argosy run IMAGE -- which python'"

_PRINTS = """
    echo printf date hostname pwd env printenv nvidia-smi rocm-smi amd-smi xpu-smi which type ls squeue scontrol
    sacct nproc lscpu numactl free cat uname df du id whoami module-info sstat seff top ibstat tput head tail grep wc
    lsb_release mpstat vmstat module_list getconf
"""
PRINTS = frozenset(_PRINTS.split())
"""Commands that only print something."""

_CONTROL = """
    true : set ulimit shopt exit trap wait sleep time clear alias unset return break continue local read shift let hash
    command test [
"""
CONTROL = frozenset(_CONTROL.split())
"""Commands that only control the shell of the script."""

PROGRAM = re.compile(
    r"(.*/)?(python[\d.]*|ipython|bash|sh|julia|Rscript|R|perl|java|mojo)$|\.?/|\S+\.(py|sh|exe|out|x)$"
)
"""Commands that start a program of the job without a launcher."""

INSTALLERS = frozenset({"pip", "pip3", "conda", "mamba", "micromamba"})
"""Commands that install packages; ``conda run`` starts a program."""

STARTS = re.compile(r"\b(torchrun|torch\.distributed|accelerate launch|deepspeed|python[\d.]*\s|mpirun|srun)\b")


def environment_of(command: str, arguments: Sequence[str]) -> str:
    """Return the environment that a command activates, as the script names it; empty if it only prepares the shell."""
    names = [each for each in arguments if not each.startswith("-") and each not in {"activate", "deactivate"}]
    if "activate" in arguments:
        return names[-1] if names else "its environment"
    scripts = [each for each in names if command in {"source", "."} and each.endswith("/activate")]
    return scripts[0].removesuffix("/activate").removesuffix("/bin") if scripts else ""


def read_program(statement: Statement, values: Values) -> Program:
    """Take a command apart; `Program.is_start` says whether something in it starts a program of the job."""
    words = tuple(expanded for word in statement.words for expanded in expand(word, values))
    program = Program(words, statement.line, values)
    for name, value in statement.assigned:
        program.keys.setdefault("env", {})[name] = source_text(value[0]) if value else ""
    while program.words and not program.is_done and (layer := _layer(program)):
        layer(program)
    return program


def starts_program(program: Program) -> bool:
    """Return whether a command that was taken apart starts a program of the job."""
    if not program.words or program.name in PRINTS | CONTROL:
        return False
    return program.is_start or bool(PROGRAM.match(program.texts[0]))


def program_name(program: Program) -> str:
    """Return the file or module that a command starts: ``train.py`` for ``python -u train.py --lr 1``."""
    first, *arguments = program.texts
    files = [each for each in arguments if not each.startswith("-")]
    is_interpreter = program.name.startswith(("python", "ipython")) or program.name in {"bash", "sh"}
    return files[0] if is_interpreter and files and "-c" not in arguments else first


def unread_program(program: Program) -> str:
    """Name a command that is not translated but starts a program, for example ``parallel srun …``; else empty."""
    installs = program.name in INSTALLERS and program.texts[1:2] != ["run"]
    is_known = installs or program.name in {"source", ".", "sed", "awk", "rm", "mv"}
    return program.name if not is_known and STARTS.search(" ".join(program.texts)) else ""


def started_programs(text: str, values: Values) -> str:
    """Name the programs that shell text starts, at any depth; empty if it starts none."""
    names: list[str] = []
    for statement in read_commands(text):
        program = read_program(statement, values)
        if starts_program(program):
            names.append(program_name(program))
        text = text.replace(statement.text, "")
    if not names and STARTS.search(text):  # a here-document, or text that is not valid bash
        return "a program"
    return " and ".join(dict.fromkeys(names))


def _layer(program: Program) -> Callable[[Program], None] | None:
    texts = program.texts
    if len(texts) > 1 and program.name.startswith("python") and texts[1] == "-m" and len(texts) > 2:  # noqa: PLR2004
        return _python_module(texts[2])
    if program.name in {"bash", "sh"}:
        return _shell if len(texts) > 2 and texts[1] in {"-c", "-lc", "-ec"} else None  # noqa: PLR2004
    return LAYERS.get(program.name)


def _python_module(name: str) -> Callable[[Program], None] | None:
    """Return the reader of ``python -m NAME`` if the module is a launcher."""
    layers = {
        "torch.distributed.run": read_torchrun,
        "torch.distributed.launch": read_torchrun,
        "accelerate.commands.launch": read_accelerate,
    }
    if name not in layers:
        return None

    def read(program: Program) -> None:
        program.skip(2)
        if name.startswith("accelerate"):
            program.words = (program.words[0], (Part("text", "launch"),), *program.words[1:])
        layers[name](program)

    return read


def _prefix(program: Program) -> None:
    """Remove ``exec``, ``time``, ``nohup``, and ``env NAME=VALUE``."""
    is_env = program.name == "env"
    program.skip(1)
    while is_env and program.words and "=" in program.texts[0]:
        name, _, value = program.texts[0].partition("=")
        program.keys.setdefault("env", {})[name] = value
        program.skip(1)


def _binding(program: Program) -> None:
    """Remove ``numactl --cpunodebind=…`` and ``taskset -c …``, if a program follows."""
    options, count = split_options(program.texts[1:], short=NO_SHORT, flags=frozenset({"localalloc", "l", "c"}))
    has_value = program.name == "taskset"
    program.replaced.append(f"{program.name}: Argosy binds ranks to cores by the site profile")
    program.skip(1 + count + (1 if has_value and options else 0))


def _shell(program: Program) -> None:
    """Read ``bash -c TEXT``: the program in it if the rest only prepares it, else the text as it is."""
    text = program.texts[2]
    whole = read_statements(text)
    statements = [each for each in whole if not _is_preparation(each)]
    exports = [each for each in statements if each.kind == "assignment"]
    commands = [each for each in statements if each.kind == "command"]
    if len(commands) != 1 or len(exports) + len(commands) != len(statements) or len(program.words) > 3:  # noqa: PLR2004
        program.is_start = program.is_start or bool(STARTS.search(text))
        program.words = tuple((Part("text", each),) for each in ("bash", "-c", text))
        program.is_done = True
        return
    program.prelude += [each.text for each in exports]
    if "image" in program.keys:
        # LUMI's PyTorch images need it: their python on PATH is not the one with torch.
        activations = [each.text for each in whole if each.kind == "command" and ACTIVATION.match(each.text)]
        program.unread += [f"{each}: {NOT_ACTIVATED}" for each in activations]
    inner = commands[0]
    program.words = tuple(expanded for word in inner.words for expanded in expand(word, program.values))
    for name, value in inner.assigned:
        program.keys.setdefault("env", {})[name] = source_text(value[0]) if value else ""


def _is_preparation(statement: Statement) -> bool:
    if statement.kind != "command":
        return False
    name = source_text(statement.words[0]) if statement.words else ""
    return bool(ACTIVATION.match(statement.text)) or name in {"module", "ml"} | PRINTS | CONTROL


LAYERS: Mapping[str, Callable[[Program], None]] = MappingProxyType(
    {
        **dict.fromkeys(("exec", "time", "nohup", "env", "command"), _prefix),
        **dict.fromkeys(("numactl", "taskset"), _binding),
        **dict.fromkeys(("mpirun", "mpiexec", "orterun"), read_mpirun),
        **dict.fromkeys(("apptainer", "singularity", "bsc_singularity"), read_container),
        **dict.fromkeys(("docker", "podman", "podman-hpc"), read_docker),
        "srun": read_srun,
        "shifter": read_shifter,
        "torchrun": read_torchrun,
        "accelerate": read_accelerate,
        "deepspeed": read_deepspeed,
    }
)
"""Program -> the function that reads its options and leaves the arguments that follow."""
