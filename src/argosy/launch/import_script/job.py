"""Make a job of ``argosy.toml`` from the start of a program and the state of the script's shell at this line; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from argosy.core.model import BARE_PREFIX
from argosy.core.records import replace
from argosy.core.script_reader import Statement
from argosy.core.script_words import Part, Word, expand
from argosy.launch.import_script.classify import program_name
from argosy.launch.import_script.model import Fate, ImportedJob, Translation, translate
from argosy.launch.import_script.options import Shape, gpu_binding, shape_keys, translate_options
from argosy.launch.import_script.program import Program, command_of

ARGUMENT = re.compile(r"\$\{?[\d@*#]")
"""An argument of the job script itself."""

SLURM_COMMAND = re.compile(r"\b(srun|scontrol|sinfo|squeue)\b")
SUBMIT_FOLDER = re.compile(r"\A\$(?:\{(?:PWD|SLURM_SUBMIT_DIR)\}|(?:PWD|SLURM_SUBMIT_DIR)\b)")
"""The folder of the launch, as a job script writes it; a relative path in argosy.toml begins there."""

ONCE = (
    "sbatch starts the program once, and Argosy would start it on each node: the job gets nodes = 1; if the program "
    "uses all nodes, choose another launcher"
)


class ShellState(msgspec.Struct):
    """The state of the script's shell at a line, and the options of the job.

    Attributes
    ----------
    values
        Variables with their values.
    env
        Exported variables for the program.
    prelude
        Commands that the shell of each rank runs before the program.
    before
        Commands that Argosy runs once before the ranks start.
    prefix
        Folder of the active environment of the host.
    conditional
        Variables that a loop or condition sets.
    """

    shape: Shape = Shape()
    keys: dict[str, Any] = {}
    values: dict[str, tuple[Word, ...]] = {}
    env: dict[str, str] = {}
    prelude: list[str] = []
    binds: list[str] = []
    before: list[str] = []
    prefix: str = ""
    conditional: set[str] = set()


def make_job(
    name: str, statement: Statement, program: Program, state: ShellState
) -> tuple[ImportedJob, list[Translation]]:
    """Return the job for the start of a program, and the translations of its parts."""
    step = translate_options(program.step_options, state.shape, of_step=True)
    launcher = program.launcher or "none"
    program.prelude[:0] = state.prelude
    inputs = [each for word in (*statement.inputs, *program.inputs) for each in expand(word, state.values)]
    command, by_shell = command_of(program, inputs)
    image = program.keys.get("image", f"{BARE_PREFIX}{state.prefix}")
    binds = (*state.binds, *program.keys.get("bind", []))
    variables = {**step.keys.get("env", {}), **program.keys.get("env", {})}
    keys: dict[str, Any] = {**state.keys, **step.keys, **program.keys}
    keys |= shape_keys(_shape_of(step.shape, program), launcher, program.processes)
    if launcher in {"srun", "mpi"} and (binding := gpu_binding(step.shape)):
        keys["sbatch_arg"] = [*keys.get("sbatch_arg", []), binding]
    keys["bind"] = [plain for bind in binds if "$" not in (plain := SUBMIT_FOLDER.sub(".", bind))]
    keys["env"] = {**state.env, **{key: value for key, value in variables.items() if "$" not in value}}
    keys["before"] = list(state.before)
    keys["image"] = SUBMIT_FOLDER.sub(".", image)
    keys |= {"launcher": launcher, "command": command}
    if "$" in keys.get("workdir", ""):
        keys["workdir"] = ""
    keys = {key: value for key, value in keys.items() if value}
    notes = (
        (statement.text, Fate.KEPT, f"launcher = {launcher}, command = {' '.join(command)}"),
        *_unknown_paths(image, binds, program.keys.get("workdir", "")),
        *_unknown_variables(variables),
        *_layers(program),
        *(_computed_parts(program, inputs) if by_shell else ()),
        *_conditional_variables(program, state),
        *_shell_signs(statement),
        *((("nodes = 1", Fate.UNTRANSLATED, ONCE),) if step.shape.nodes > 1 and launcher == "none" else ()),
    )
    translations = [translate(statement.line, *note) for note in notes]
    translations += [each for each in step.translations if each.fate is not Fate.KEPT]
    return ImportedJob(name, keys, statement.line, program_name(program)), translations


def _shape_of(shape: Shape, program: Program) -> Shape:
    """Return the shape of a job.

    Without a launcher, a script starts its program once, on the first node.  Fewer ranks than nodes use as many nodes.
    """
    ranks = program.processes if program.launcher == "mpi" else 0
    ranks = ranks or (shape.ntasks if program.launcher in {"srun", "mpi"} and not shape.ntasks_per_node else 0)
    nodes = min(shape.nodes, ranks or shape.nodes) if program.launcher else 1
    if nodes >= shape.nodes:
        return shape
    tasks = shape.ntasks if program.launcher else -(-shape.ntasks // shape.nodes)
    return replace(shape, nodes=nodes, gpus=shape.gpus * nodes // shape.nodes, ntasks=tasks)


Note = tuple[str, Fate, str]
"""Text, fate and reason of a part of the statement."""


def _unknown_paths(image: str, binds: Iterable[str], workdir: str) -> Iterator[Note]:
    """Report paths that variables complete; argosy.toml has no variables."""
    paths = {"image": [SUBMIT_FOLDER.sub(".", image)], "bind": [SUBMIT_FOLDER.sub(".", each) for each in binds]}
    for key, path in ((key, path) for key, values in (paths | {"workdir": [workdir]}).items() for path in values):
        if "$" in path:
            yield f"{key} {path}", Fate.UNTRANSLATED, "the shell sets the variable: write the path"


def _unknown_variables(variables: Mapping[str, str]) -> Iterator[Note]:
    for name, value in variables.items():
        if "$" in value:
            note = "the job computes the value: set it in the program, which sees the job's SLURM_* variables"
            yield f"{name}={value}", Fate.UNTRANSLATED, note


def _layers(program: Program) -> Iterator[Note]:
    """Report the options of the launcher and of the container."""
    for fate, notes in ((Fate.REPLACED, program.replaced), (Fate.UNTRANSLATED, program.untranslated)):
        for note in notes:
            text, _, reason = note.partition(": ")
            yield text, fate, reason


def _computed_parts(program: Program, inputs: Iterable[Word]) -> Iterator[Note]:
    """Report the parts of the command that a shell expands."""
    for part in (part for word in (*program.words, *inputs) for part in word if part.kind == "shell"):
        if ARGUMENT.match(part.text):
            note = "an argument of the script: write its value"
        elif found := SLURM_COMMAND.search(part.text):
            note = f"the container has no {found[0]}: use MASTER_ADDR and MASTER_PORT, which Argosy sets"
        else:
            note = "a shell computes it in each rank"
        yield part.text, Fate.UNTRANSLATED, note


def _conditional_variables(program: Program, state: ShellState) -> Iterator[Note]:
    used: list[Part] = [part for word in program.words for part in word if part.kind == "variable"]
    for name in sorted({part.text for part in used} & state.conditional):
        note = "a loop or condition sets it: write its value, or set it in the program"
        yield f"${name}", Fate.UNTRANSLATED, note


def _shell_signs(statement: Statement) -> Iterator[Note]:
    """Report the redirections of the output, and ``&``."""
    if statement.redirects:
        note = "the output goes to the job's output file; set output to change it"
        yield statement.redirects, Fate.LEFT_OUT, note
    if statement.background:
        note = (
            "Argosy makes a separate job of each program that runs at the same time; programs that talk to each other "
            "need one program that starts them"
        )
        yield "&", Fate.UNTRANSLATED, note
