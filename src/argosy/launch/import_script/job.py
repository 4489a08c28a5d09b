"""Make jobs of ``argosy.toml`` from the starts of programs and the script's shell, and order them; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from argosy.core.model import BARE_PREFIX
from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.core.render import count
from argosy.launch.import_script.classify import program_name
from argosy.launch.import_script.environment import translate_variables
from argosy.launch.import_script.expressions import COMPUTED as BY_SCRIPT
from argosy.launch.import_script.expressions import (
    default_notes,
    expressions,
    new_definitions,
    statement_words,
    why_unknown,
)
from argosy.launch.import_script.launcher_options import shifter_image
from argosy.launch.import_script.model import Fate, ImportedJob, Note, Translation, translate
from argosy.launch.import_script.options import (
    Options,
    changed_numbers,
    correct_for_jobs,
    number_notes,
    numbered_text,
    numbered_words,
)
from argosy.launch.import_script.program import ScriptProgram, command_of
from argosy.launch.import_script.shape import SlurmShape, gpu_binding, has_default_tasks, shape_keys
from argosy.launch.import_script.shell_state import ShellState, render_preparations
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import Word, expand, source_text

ONCE = (
    "sbatch starts the program once, and Argosy would start it on each node: the job gets nodes = 1; if the program "
    "uses all nodes, choose another launcher"
)


def make_job(
    name: str, statement: Statement, program: ScriptProgram, state: ShellState
) -> tuple[ImportedJob, list[Translation]]:
    """Return the job for the start of a program, and the translations of its parts."""
    step = Options(program.step_options, state.shape, of_step=True)
    launcher = program.launcher or "none"
    image = program.keys.get("image", f"{BARE_PREFIX}{_prefix_of(program, state)}")
    shape = _shape_of(step.shape, program)
    numbers = {**state.numbers, **changed_numbers(state.shape, shape.nodes, program.launcher)}
    inputs = [each for word in (*statement.inputs, *program.inputs) for each in expand(word, state.values)]
    own_folder = bool(program.keys.get("workdir"))
    program.words = tuple(map(state.with_folder, program.words)) if own_folder else program.words
    prelude = _prelude(state, is_bare=image.startswith(BARE_PREFIX), own_folder=own_folder)
    variables = translate_variables({**step.keys.get("env", {}), **program.keys.get("env", {})})
    definitions = new_definitions((*program.words, *inputs), state.values, prelude)
    program.prelude[:] = (*prelude, *definitions, *program.prelude, *variables.prelude)
    replaced_numbers = _put_numbers(program, numbers)
    command, by_shell = command_of(program, inputs)
    image = state.path_of(image or shifter_image(state.keys))
    binds = [state.bind_of(each) for each in (*state.binds, *program.keys.get("bind", []))]
    keys: dict[str, Any] = {**state.keys, **step.keys, **program.keys}
    keys |= shape_keys(shape, launcher, program.processes)
    if launcher in {"srun", "mpi"} and (binding := gpu_binding(step.shape)):
        keys["sbatch_arg"] = [*keys.get("sbatch_arg", []), binding]
    keys["bind"] = [bind for bind in binds if "$" not in bind]
    keys["env"] = {**state.env, **variables.env}
    before = render_preparations(state.before, start=None if own_folder else state.start, first=state.first)
    keys["before"] = [numbered_text(each, numbers) for each in before]
    keys["image"] = image
    keys |= {"launcher": launcher, "command": command}
    keys = {key: value for key, value in keys.items() if value and not (key == "workdir" and "$" in value)}
    notes = (
        (statement.text, Fate.KEPT, f"launcher = {launcher}, command = {' '.join(command)}"),
        *_unknown_paths(image, binds, program.keys.get("workdir", "")),
        *variables.notes,
        *replaced_numbers,
        *_layers(program),
        *(_relative_inputs(inputs) if own_folder else ()),
        *(_computed_parts((*program.words, *inputs), state) if by_shell or program.script else ()),
        *_script_notes(program),
        *default_notes(statement_words(statement), state.values, state.conditional),
        *_variable_notes(statement, program, state),
        *_shell_signs(statement, state),
        *_node_notes(step.shape, program),
        *_default_rank_notes(shape, keys),
    )
    translations = [translate(statement.line, *note) for note in dict.fromkeys(notes)]
    job = ImportedJob(name, keys, statement.line, program_name(program), tuple(program.comments))
    return job, [*translations, *_step_translations(step, job)]


def _prelude(state: ShellState, *, is_bare: bool, own_folder: bool) -> tuple[str, ...]:
    """Return what the shell of a rank runs first; in a container with a folder of its own, no ``cd``."""
    lines = (each for each in state.prelude if not (own_folder and each.startswith("cd")))
    return (*lines, *(state.host_paths if is_bare else ()))


def _prefix_of(program: ScriptProgram, state: ShellState) -> str:
    """Return the folder of the host's environment; torchrun starts Python before the shell that sets PATH."""
    return state.prefix or (state.path_prefix if program.launcher == "torchrun" else "")


def _put_numbers(program: ScriptProgram, numbers: Mapping[str, str]) -> tuple[Note, ...]:
    """Put the script's numbers in place of their variables, and report them."""
    notes = tuple(number_notes((*program.texts, *program.prelude), numbers))
    program.words = numbered_words(program.words, numbers, has_script=bool(program.script))
    program.prelude[:] = [numbered_text(each, numbers) for each in program.prelude]
    return notes


def _script_notes(program: ScriptProgram) -> Iterator[Note]:
    """Report what the text of ``bash -c`` leaves to the shell of each rank."""
    for note in _computed_parts((program.script,), ShellState()):
        if not any(note[0] in each for each in program.replaced):
            yield note


def _step_translations(step: Options, job: ImportedJob) -> Iterator[Translation]:
    """Return the translations of srun's options that no key of the job contains."""
    options = (correct_for_jobs(each, (job,)) for each in step.found)
    return (each for each in options if each.fate is not Fate.KEPT)


def _shape_of(shape: SlurmShape, program: ScriptProgram) -> SlurmShape:
    """Return the shape of a job.

    Without a launcher, a script starts its program once, on the first node.  Fewer ranks than nodes use as many nodes.
    """
    ranks = program.processes if program.launcher == "mpi" else 0
    ranks = ranks or (shape.ntasks if program.launcher in {"srun", "mpi"} else 0)
    nodes = min(shape.nodes, ranks or shape.nodes) if program.launcher else 1
    if nodes >= shape.nodes:
        return shape
    tasks = shape.ntasks if program.launcher else -(-shape.ntasks // shape.nodes)
    return replace(shape, nodes=nodes, gpus=shape.gpus * nodes // shape.nodes, ntasks=tasks)


def _unknown_paths(image: str, binds: Iterable[str], workdir: str) -> Iterator[Note]:
    """Report paths that variables complete; argosy.toml has no variables."""
    paths = (("image", image), *(("bind", each) for each in binds), ("workdir", workdir))
    for key, path in paths:
        if "$" in path:
            yield f"{key} {path}", Fate.UNTRANSLATED, "the shell sets the variable: write the path"


def _relative_inputs(inputs: Iterable[Word]) -> Iterator[Note]:
    """Report files that a program in another folder reads, and that the script names from its own folder."""
    for path in map(source_text, inputs):
        if not path.startswith(("/", "$", "~")):
            yield f"< {path}", Fate.UNTRANSLATED, "the container starts in another folder: write the whole path"


def _layers(program: ScriptProgram) -> Iterator[Note]:
    """Report the options of the launcher and of the container; those replaced for one reason together."""
    replaced: dict[str, list[str]] = {}
    for note in program.replaced:
        text, _, reason = note.partition(": ")
        replaced.setdefault(reason, []).append(text)
    for reason, texts in replaced.items():
        yield " ".join(dict.fromkeys(texts)), Fate.REPLACED, reason
    for note in program.untranslated:
        text, _, reason = note.partition(": ")
        yield text, Fate.UNTRANSLATED, reason


def _computed_parts(words: Iterable[Word], state: ShellState) -> Iterator[Note]:
    """Report the parts of the command that a shell expands."""
    for part in expressions(words):
        if note := why_unknown(part, state.values, state.conditional):
            yield part.text, Fate.UNTRANSLATED, note
        else:
            yield part.text, Fate.KEPT, "the shell of each rank expands it"


def _node_notes(shape: SlurmShape, program: ScriptProgram) -> Iterator[Note]:
    """Report programs that the script starts on another number of nodes than the job."""
    nodes = max(1, shape.nodes)
    if nodes > 1 and not program.launcher:
        yield "nodes = 1", Fate.UNTRANSLATED, ONCE
    elif program.nodes_option and parse_int(program.nodes_option.value) not in {0, nodes}:
        note = f"the job has {count(nodes, 'node')}: correct nodes"
        yield str(program.nodes_option), Fate.UNTRANSLATED, note
    elif nodes > 1 and program.launcher == "torchrun" and not (program.is_step or program.is_everywhere):
        yield (
            f"nodes = {nodes}",
            Fate.UNTRANSLATED,
            "the script starts the program on one node; the job starts it on all",
        )


def _default_rank_notes(shape: SlurmShape, keys: Mapping[str, Any]) -> Iterator[Note]:
    """Report the rank on each node of a script without a number of tasks or GPUs."""
    has_gpus = shape.gpus or shape.gpus_per_node
    if keys["launcher"] in {"srun", "mpi"} and "ranks_per_node" in keys and has_default_tasks(shape) and not has_gpus:
        note = "the script names neither tasks nor GPUs: Slurm starts one task on each node"
        yield f"ranks_per_node = {keys['ranks_per_node']}", Fate.KEPT, note


def _variable_notes(statement: Statement, program: ScriptProgram, state: ShellState) -> Iterator[Note]:
    """Report variables that the script computes or may change, and ``$A`` in ``A=1 prog $A``, expanded before that."""
    yield from state.fixed_notes(statement_words(statement), sorted(state.exported))
    used = {part.text for word in program.words for part in word if part.kind == "variable"}
    in_script = {part.text for part in program.script if part.kind == "variable"}
    for name in sorted((used | in_script) & state.conditional):
        yield f"${name}", Fate.UNTRANSLATED, BY_SCRIPT
    for name in dict.fromkeys(name for name, _ in statement.assigned if name in used):
        yield f"${name}", Fate.UNTRANSLATED, f"bash expands it before it sets {name}: write its value"


def _shell_signs(statement: Statement, state: ShellState) -> Iterator[Note]:
    """Report the redirections of the output, and ``&``."""
    if statement.redirects:
        note = "the output goes to the job's output file; set output to change it"
        yield statement.redirects, Fate.LEFT_OUT, note
    if statement.background and state.waits_for_one:
        yield "&", Fate.LEFT_OUT, "the job waits for its program, as the script does"
    elif statement.background:
        note = (
            "Argosy makes a separate job of each program that runs at the same time; programs that talk to each other "
            "need one program that starts them"
        )
        yield "&", Fate.UNTRANSLATED, note


JOB_NUMBER = re.compile(r"[^\s=:;,]*\$\{?SLURM_(ARRAY_)?JOB_?ID\b(:-[^}]*)?\}?")
"""The beginning of a name with the number of the job."""


class Order(msgspec.Struct):
    """The programs that ended before the current line, as the script waits for them."""

    ended: list[ImportedJob] = []
    """Jobs after which the next program starts; those that start before one of them are left out."""
    running: list[tuple[ImportedJob, list[ImportedJob]]] = []
    """Jobs that the script started with ``&``, with the jobs after which each started."""

    def start(self, job: ImportedJob, *, background: bool) -> list[ImportedJob]:
        """Note the start of a program, and return the jobs after which it starts."""
        before = self.ended
        if background:
            self.running.append((job, before))
        else:
            self.ended = [job]
        return before

    def wait(self, arguments: Sequence[str] = ()) -> bool:
        """Note ``wait``; return whether it waits for all programs: with arguments, for as many as are running."""
        if "-n" in arguments or (arguments and len(arguments) < len(self.running)):
            return False
        earlier = [job for _, before in self.running for job in before]
        self.ended = [*(job for job, _ in self.running), *(job for job in self.ended if job not in earlier)]
        self.running = []
        return True


def order_note(job: ImportedJob, before: Sequence[ImportedJob]) -> Note:
    """Report the jobs after which a job must start."""
    lines = sorted({each.line for each in before})
    place = f"line{'s' if len(lines) > 1 else ''} {' and '.join(map(str, lines))}"
    numbers = "the numbers of those jobs" if len(before) > 1 else "the number of that job"
    note = f"it runs after {place}: launch {job.name} with --after and {numbers}"
    return f"[job.{job.name}]", Fate.UNTRANSLATED, note


def shared_names(job: ImportedJob, others: Sequence[ImportedJob]) -> Iterator[Note]:
    """Report names with the number of the job that another job has, too: each job of Slurm has its own number."""
    for name in dict.fromkeys(_numbered(job)):
        other = next((each for each in others if name in _numbered(each)), None)
        if other:
            note = f"[job.{other.name}] has another job number: write the same name into both tables"
            yield name, Fate.UNTRANSLATED, note


def _numbered(job: ImportedJob) -> list[str]:
    """Return the beginnings of names that contain the number of the job."""
    texts = (*job.keys["command"], *job.keys.get("before", ()))
    return [found[0] for text in texts for found in JOB_NUMBER.finditer(re.sub("[\"']", "", text))]
