"""Take a command of a job script apart: srun, container, launcher, program; pure.

``srun -n 8 singularity exec -B /data x.sif torchrun train.py`` has four layers.  `read_program` removes the outermost
layer until the program is left, and notes what each layer says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from argosy.launch.import_script.environment import reason_to_replace
from argosy.launch.import_script.expressions import default_notes, with_first_node
from argosy.launch.import_script.launcher_options import (
    BINDS,
    INSIDE,
    container_start,
    read_accelerate,
    read_container,
    read_deepspeed,
    read_docker,
    read_mpirun,
    read_shifter,
    read_srun,
    read_torchrun,
)
from argosy.launch.import_script.program import NO_SHORT, ROLES, Role, ScriptProgram
from argosy.slurm.sbatch import Option, split_options
from argosy.slurm.script_reader import Statement, parse_statements
from argosy.slurm.script_words import Values, Word, WordPart, expand, source_text

ACTIVATION = re.compile(
    r"(conda|mamba|micromamba) (de)?activate|eval .*(conda|mamba)|deactivate"
    r"|(source|\.) \S*(activate|conda\.sh|profile|bashrc|modules?\.sh|lmod\w*\.sh|init/bash)"
)
"""Commands that activate an environment or the modules of the host."""

NOT_ACTIVATED = "Argosy does not activate it in the container; check with 'argosy run IMAGE -- which python'"

PREPARATION = frozenset({Role.PRINT, Role.CONTROL, Role.MODULE})
"""Roles of the commands before a program that its job does not need."""

PREFIX_FLAGS = frozenset(
    "p v V foreground preserve-status verbose i 0 ignore-environment null l t w wait f fork".split()  # noqa: SIM905
)
"""Options without a value of the commands that start another one, for example ``time -p``."""


ITS_OWN = "its environment"
"""The environment of ``conda activate`` without a name."""


def environment_of(command: str, arguments: Sequence[str]) -> str:
    """Return the environment that a command activates, as the script names it; empty if it only prepares the shell."""
    names = [each for each in arguments if not each.startswith("-") and each not in {"activate", "deactivate"}]
    if "activate" in arguments:
        return names[-1] if names else ITS_OWN
    if command not in {"source", "."} or not names or not names[0].endswith("/activate"):
        return ""
    return names[1] if names[1:] else names[0].removesuffix("/activate").removesuffix("/bin")


def read_program(statement: Statement, values: Values, exported: Collection[str] | None = None) -> ScriptProgram:
    """Take a command apart, until the program itself is left.

    `exported` has the names of the exported variables, which ``bash -c`` sees; None if they are not known.
    """
    words = tuple(expanded for word in with_first_node(statement.words, values) for expanded in expand(word, values))
    program = ScriptProgram(words, statement.line, values, written=statement.words)
    program.hidden = (
        {*values} - {*exported, *(name for name, _ in statement.assigned)} if exported is not None else set()
    )
    _set_variables(program, statement)
    while program.words and not program.is_done and (layer := _layer(program)):
        layer(program)
    return program


def _set_variables(program: ScriptProgram, statement: Statement) -> None:
    """Read the variables that precede a command."""
    for name, words in statement.assigned:
        expanded = [each for word in words for each in expand(word, program.values)]
        value = " ".join(map(source_text, expanded))
        if name in BINDS:
            program.add("bind", *value.split(","))
        else:
            program.set_variable(INSIDE.sub("", name), value)


def _layer(program: ScriptProgram) -> Callable[[ScriptProgram], None] | None:
    texts = program.texts
    if program.name.startswith("python") and (module := PYTHON_MODULE.match(" ".join(texts[1:]))):
        return _python_module(module[2], module[1].count("-"))
    if program.name == "command" and texts[1:2] in (["-v"], ["-V"]):
        return None
    if program.name == "runscript" and _starts_ranks(program):
        return _runscript
    if program.name not in LAYERS and program.name not in ROLES and container_start(program):
        return _wrapper
    if program.name in {"bash", "sh"}:
        return _shell if len(texts) > 2 and texts[1] in {"-c", "-lc", "-ec"} else None  # noqa: PLR2004
    return LAYERS.get(program.name)


RANK_STARTERS = (read_torchrun, read_accelerate, read_deepspeed, read_mpirun)


def _starts_ranks(program: ScriptProgram) -> bool:
    """Return whether the arguments of a program begin with a launcher."""
    inner = ScriptProgram(program.words[1:], program.line, program.values)
    layer = _layer(inner)
    return layer in RANK_STARTERS or (layer is not None and inner.name.startswith("python"))


def _runscript(program: ScriptProgram) -> None:
    """Remove the start script of an image before a launcher, since Argosy starts the ranks itself."""
    program.untranslated.append(
        "apptainer run: the runscript of the image is not run; if it prepares the program, do it in the program"
    )
    program.skip(1)


def _wrapper(program: ScriptProgram) -> None:
    """Remove a script that starts a container command, for example ``./select_gpu singularity exec IMAGE``."""
    program.untranslated.append(
        f"{program.texts[0]}: it is not run; if it gives each rank its own GPU: sbatch_arg = ['--gpu-bind=single:1']"
    )
    program.skip(container_start(program))


PYTHON_MODULE = re.compile(r"((?:-[a-zA-Z]+ )*?)-m (\S+)")
"""Arguments of ``python -u -m NAME``."""


def _python_module(name: str, options: int) -> Callable[[ScriptProgram], None] | None:
    """Return the reader of ``python -u -m NAME`` if the module is a launcher; `options` stand before ``-m``."""
    layers = {
        "torch.distributed.run": read_torchrun,
        "torch.distributed.launch": read_torchrun,
        "accelerate.commands.launch": read_accelerate,
        "deepspeed.launcher.runner": read_deepspeed,
    }
    if name not in layers:
        return None

    def read(program: ScriptProgram) -> None:
        program.skip(2 + options)
        if name.startswith("accelerate"):
            program.words = (program.words[0], (WordPart("text", "launch"),), *program.words[1:])
        layers[name](program)

    return read


def _prefix(program: ScriptProgram) -> None:
    """Remove ``exec``, ``time``, ``nice -n 5``, ``timeout 3h``, and ``env NAME=VALUE`` with their options."""
    name = program.name
    options, count = split_options(program.texts[1:], flags=PREFIX_FLAGS, short=NO_SHORT)
    written = " ".join(program.texts[: 1 + count])
    program.skip(1 + count)
    if name == "env":
        _set_environment(program, options)
    elif name in {"nice", "ionice", "stdbuf"}:
        program.untranslated.append(f"{written}: {KEEP}")
    if name == "timeout" and program.words:
        program.untranslated.append(f"timeout {program.texts[0]}: set time, the limit of the job")
        program.skip(1)
    while name == "env" and program.words and "=" in program.texts[0]:
        variable, _, value = program.texts[0].partition("=")
        program.set_variable(variable, value)
        program.skip(1)


KEEP = "put it before the program in command, if the image has it"


def _set_environment(program: ScriptProgram, options: Sequence[Option]) -> None:
    """Let the shell of each rank do what the options of env say."""
    for each in options:
        option = f"env -{each.name} {each.value}".rstrip() if len(each.name) == 1 else f"env {each}"
        if each.name in {"u", "unset"} and each.value.isidentifier():
            program.prelude.append(f"unset {each.value}")
        elif each.name in {"S", "split-string"}:
            program.obstacle = f"Argosy does not read the program in {option}: write its words without -S"
        elif each.name not in {"v", "debug"}:
            program.untranslated.append(f"{option}: {KEEP}")


MEMORY_POLICIES = frozenset({"interleave", "i", "membind", "m", "preferred", "p", "preferred-many", "P"})
"""Options of numactl for the memory (numactl(8)); local memory is the default of Linux."""


def _binding(program: ScriptProgram) -> None:
    """Remove ``numactl --cpunodebind=…`` and ``taskset -c …``, if a program follows."""
    options, count = split_options(program.texts[1:], short=NO_SHORT, flags=frozenset({"localalloc", "l", "c"}))
    is_numactl = program.name == "numactl"
    if is_numactl and any(each.name in MEMORY_POLICIES for each in options):
        written = " ".join(program.texts[: 1 + count])
        program.untranslated.append(f"{written}: Argosy binds ranks to cores, but sets no memory policy; {KEEP}")
    else:
        program.replaced.append(f"{program.name}: Argosy binds ranks to cores by the site profile")
    program.skip(1 + count + (1 if options and not is_numactl else 0))


def _shell(program: ScriptProgram) -> None:
    """Read ``bash -c TEXT``: the program in it if the rest only prepares it, else the text as it is."""
    text, program.script = _inner_text(program.words[2]), program.words[2]
    whole = parse_statements(text)
    statements = [each for each in whole if not _is_preparation(each)]
    exports = [each for each in statements if each.kind == "assignment"]
    commands = [each for each in statements if each.kind == "command"]
    if (
        len(commands) != 1
        or len(exports) + len(commands) != len(statements)
        or len(program.words) > 3  # noqa: PLR2004 - the arguments of the text
        or any(each.condition == "||" for each in whole)
        or commands[0].redirects
        or commands[0].inputs
        or commands[0].background
    ):
        program.words = (*program.words[:2], (WordPart("text", text),), *program.words[3:])
        program.is_done = True
        return
    program.prelude += list(_exports(program, exports))
    if "image" in program.keys:
        # LUMI's PyTorch images need it: their python on PATH is not the one with torch.
        activations = [each.text for each in whole if each.kind == "command" and ACTIVATION.match(each.text)]
        program.untranslated += [f"{each}: {NOT_ACTIVATED}" for each in activations]
    inner = commands[0]
    own = {name for each in exports for name, _ in each.assigned}
    values = {name: value for name, value in program.values.items() if name not in own}
    used = {part.text for word in inner.words for part in word if part.kind == "variable"} - own
    for name in sorted(used & program.hidden):
        values[name] = ()
        program.untranslated.append(f"${name}: the script does not export it, so that the inner shell has no value")
    program.untranslated += [f"{text}: {note}" for text, _, note in default_notes(inner.words, values)]
    program.words = tuple(expanded for word in inner.words for expanded in expand(word, values))
    _set_variables(program, inner)


QUOTE = re.compile(r"\\.|[\"']", re.DOTALL)
"""A sign behind a backslash, or a quote."""


def _inner_text(word: Word) -> str:
    """Return the text of ``bash -c``, in which variables of the outer shell have no single quotes around them.

    The outer shell expands the variable of ``"prog '$A'"`` before the inner one reads the quotes. In a job, the inner
    shell expands it: it gets ``prog ''"${A}"''``.
    """
    found, quote = "", ""
    for part in word:
        text = source_text((part,))
        if part.kind != "text":
            found += f"'\"{text}\"'" if quote == "'" else text
            continue
        found += text
        for sign in QUOTE.findall(text):
            if sign[0] != "\\" and quote in {"", sign}:
                quote = "" if quote else sign
            elif sign[0] == "\\" and quote == "'" and sign[1:] == "'":
                quote = ""
    return found


def _exports(program: ScriptProgram, exports: Sequence[Statement]) -> Iterator[str]:
    """Yield the assignments of ``bash -c TEXT`` for the shell of each rank, and note those that Argosy replaces."""
    for each in exports:
        reasons = [reason_to_replace(name, " ".join(map(source_text, words))) for name, words in each.assigned]
        if reasons and all(reasons):
            program.replaced.append(f"{each.text}: {reasons[0]}")
        else:
            yield each.text


def _is_preparation(statement: Statement) -> bool:
    if statement.kind != "command":
        return False
    name = source_text(statement.words[0]) if statement.words else ""
    return bool(ACTIVATION.match(statement.text)) or (name not in LAYERS and ROLES.get(name) in PREPARATION)


_PREFIXES = "exec time nohup env command timeout nice ionice stdbuf setsid unbuffer"
LAYERS: Mapping[str, Callable[[ScriptProgram], None]] = {
    **dict.fromkeys(_PREFIXES.split(), _prefix),
    **dict.fromkeys(("numactl", "taskset"), _binding),
    **dict.fromkeys(("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "ibrun"), read_mpirun),
    **dict.fromkeys(("apptainer", "singularity", "bsc_singularity"), read_container),
    **dict.fromkeys(("docker", "podman", "podman-hpc"), read_docker),
    "srun": read_srun,
    "shifter": read_shifter,
    "torchrun": read_torchrun,
    "accelerate": read_accelerate,
    "deepspeed": read_deepspeed,
}
"""Program -> the function that reads its options and leaves the arguments that follow."""
