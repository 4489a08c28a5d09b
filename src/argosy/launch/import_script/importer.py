"""Translate a hand-written job script into jobs of ``argosy.toml``, and say what became of each of its lines; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.records import replace
from argosy.launch.import_script.before import Preparation, made_again
from argosy.launch.import_script.classify import (
    advise_on_lost,
    assigned_variables,
    classify,
    computed_variables,
    counted_variables,
    lost_programs,
    started_programs,
)
from argosy.launch.import_script.defaults import COMPUTED, default_notes
from argosy.launch.import_script.effects import (
    BLOCKS,
    CONDITIONAL,
    ENDED,
    ENDS,
    EXPORT,
    EXPORTS,
    NO_PROGRAM,
    NODE_FILE,
    PURPOSES,
    RENDEZVOUS_EXPORT,
    UNEXPORTED,
    UNEXPORTS,
    WRITES,
    effect_of,
    without_tasks,
    written_file,
)
from argosy.launch.import_script.expressions import expressions, new_definitions, why_unknown
from argosy.launch.import_script.gpu_wrapper import (
    NO_WRAPPER,
    GpuWrapper,
    is_about_wrapper,
    read_gpu_wrapper,
    set_visible_gpu,
    without_wrapper,
)
from argosy.launch.import_script.heterogeneous import refuse_heterogeneous
from argosy.launch.import_script.host_software import (
    fate_of_activation,
    fate_of_host_path,
    fate_of_modules,
    only_prints,
)
from argosy.launch.import_script.job import make_job
from argosy.launch.import_script.model import Fate, ImportedJob, ImportedScript, Translations
from argosy.launch.import_script.options import gpus_of_table, translate_options, without_gpus
from argosy.launch.import_script.order import Order, order_note, shared_names
from argosy.launch.import_script.program import Program, needs_bash, shell_line
from argosy.launch.import_script.programs import ACTIVATION, ITS_OWN, environment_of, read_program
from argosy.launch.import_script.roles import ADVICE, HARMLESS, ROLES, Role
from argosy.launch.import_script.shell_state import (
    ShellState,
    change_folder,
    changes_folder,
    exports_all_at_end,
    leave_folder,
    waits_for_one,
)
from argosy.launch.import_script.slurm_numbers import option_numbers
from argosy.launch.import_script.variables import FINDS_NODES, NODES, Variables, harmless_functions
from argosy.sites.profile import Site
from argosy.slurm.script_reader import JobScript, Statement, read_job_script
from argosy.slurm.script_words import Part, expand, source_text

FUNCTION = re.compile(r"(?:function\s+)?([\w:.-]+)\s*(?:\(\s*\))?\s*\{")
"""Beginning of the definition of a function."""


def import_script(path: str, text: str, *, name: str = "", site: Site | None = None) -> ImportedScript:
    """Translate a job script.

    Parameters
    ----------
    path
        Path that messages show; its stem is the job's name if neither `name` nor the script names the job.
    site
        The site of the job, if it is known: variables that its profile sets are left out.

    Raises
    ------
    UsageError
        If the script is a heterogeneous job, or no script that a person writes.
    """
    try:
        return _import(path, text, name, site or Site())
    except RecursionError:
        raise UsageError(
            f"cannot read {path}: its brackets are nested too deeply",
            evidence=f"{len(text)} characters",
            hint="is it a job script? A log of a job can contain #SBATCH lines, too",
        ) from None


def _import(path: str, text: str, name: str, site: Site) -> ImportedScript:
    script = read_job_script(text)
    refuse_heterogeneous(path, text, script)
    reader = _Reader(script, site, path, name)
    reader.read()
    return ImportedScript(path, tuple(reader.jobs), tuple(sorted(reader.found, key=lambda each: each.line)))


class _Reader:
    """Reads the statements of a script in order, and collects jobs and translations."""

    def __init__(self, script: JobScript, site: Site, path: str, name: str) -> None:
        self.script = script
        self.file_name = path.rsplit("/", 1)[-1]
        self.site = site
        self.found = Translations()
        keys = {"site": site.name} if site.name else {}
        self.state = ShellState(
            keys=keys,
            is_moving=changes_folder(script.statements),
            waits_for_one=waits_for_one(script.statements),
        )
        self.jobs: list[ImportedJob] = []
        self.modules: list[tuple[int, str]] = []
        self.activations: list[tuple[Statement, str]] = []
        self.functions: dict[str, str] = {}
        self.bodies: dict[str, Statement] = {}
        self.variables = Variables(script.statements, site, self.state, self.found, self.functions)
        self.wrappers: dict[str, GpuWrapper] = {}
        self.order = Order()
        self.after_test = self.is_conditional = self.is_guard = self.has_ended = False
        self.name = name

    def read(self) -> None:
        """Read the whole script."""
        options = translate_options(self.script.options, self.state.shape)
        self.state.shape = options.shape
        self.state.numbers = option_numbers(self.script.options, self.site)
        if "name" not in options.keys:
            self.state.numbers = {**self.state.numbers, "SLURM_JOB_NAME": self.file_name}
        self.found += options.translations
        self.state.keys.update(options.keys)
        self.state.env.update(self.state.keys.pop("env", {}))
        self.state.first = self.state.folder = self.state.keys.get("chdir", "")
        own_name = re.sub(r"[^\w-]+", "-", options.keys.get("name", "")).strip("-")
        stem = re.sub(r"[^\w.-]+", "-", self.file_name.rsplit(".", 1)[0]).strip("-.") or "job"
        self.name = self.name or own_name or stem
        for option in self.script.late_options:
            self.found.add(option.line, str(option), Fate.LEFT_OUT, "below the first command: sbatch does not read it")
        for statement in self.script.statements:
            self.read_statement(statement)
        self.report_late()
        images = {job.keys["image"] for job in self.jobs}
        bare = any(image.startswith(BARE_PREFIX) for image in images)
        for line, text in self.modules:
            self.found.add(line, text, *fate_of_modules(frozenset(text.split()[2:]), self.site, bare=bare))
        for statement, environment in self.activations:
            self.found.add(
                statement.line, statement.text, *fate_of_activation(environment, self.state.prefix, bare=bare)
            )
        for statement in self.variables.host_paths:
            guess = "" if self.state.prefix or "PATH" not in dict(statement.assigned) else self.state.path_prefix
            self.found.add(statement.line, statement.text, *fate_of_host_path(images, guess))
        if self.jobs and all(job.keys["launcher"] == "none" for job in self.jobs):
            self.found[:] = map(without_tasks, self.found)
        if any("cpus_per_rank" not in job.keys for job in self.jobs):
            self.found[:] = map(without_gpus, self.found)
        self.found[:] = [gpus_of_table(each, self.jobs) for each in self.found]

    def read_statement(self, statement: Statement) -> None:
        """Translate one statement."""
        self.is_conditional = statement.condition == "||" or (
            statement.condition == "&&" and (self.is_conditional or self.after_test)
        )
        self.is_guard = statement.condition == "||" and not self.after_test
        self.after_test = False
        match statement.kind:
            case _ if self.has_ended:
                self.found.add(statement.line, statement.text, Fate.LEFT_OUT, ENDED, end=statement.end)
            case "assignment" if self.is_conditional:
                self.state.conditional |= {name for name, _ in statement.assigned}
                self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, CONDITIONAL)
            case "assignment" if UNEXPORTS.match(statement.text):
                self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, UNEXPORTED)
            case "assignment":
                for name, words in statement.assigned:
                    self.order.note_assignment(name, words)
                    self.variables.assign(statement, name, words)
                if not statement.assigned:
                    self.set_elements(statement)
            case "command":
                self.read_command(statement)
            case "compound":
                self.read_compound(statement)
        if statement.kind != "compound":
            self.count(statement)

    def set_elements(self, statement: Statement) -> None:
        """Note the arrays of which a statement sets an element: ``LIST[0]=x``."""
        names = set(re.findall(r"(\w+)\[", statement.text))
        self.state.compute(names)
        outcome = self.variables.computed(statement, names, "it sets no variable")
        self.found.add(statement.line, statement.text, *outcome)

    def count(self, statement: Statement) -> None:
        """Note the variables that arithmetic in a command or an assignment sets, for example ``$((N++))``."""
        names = counted_variables(statement.text)
        self.state.compute(names)
        fate, note = self.variables.computed(statement, names, "")
        self.found.add_notes(statement.line, ((f"${each}", fate, note) for each in sorted(names) if note == COMPUTED))

    def read_compound(self, statement: Statement) -> None:
        """Report a loop, a condition, a function or a here-document: it is not translated."""
        first = statement.text.split("\n", 1)[0]
        changed = assigned_variables(statement.text)
        self.state.compute(changed)
        if wrapper := read_gpu_wrapper(statement.text):
            self.wrappers[wrapper.name] = wrapper
            return self.found.add(statement.line, first, Fate.REPLACED, NO_WRAPPER, end=statement.end)
        if first.startswith(("[", "((")) and not statement.commands:
            self.after_test = True
            return self.found.add(
                statement.line, first, *self.variables.computed(statement, changed, PURPOSES[Role.TEST])
            )
        harmless = harmless_functions(self.functions)
        programs = started_programs(statement.text, self.state.values, harmless)
        if function := FUNCTION.match(statement.text):
            self.functions[function[1]] = programs
            self.bodies[function[1]] = statement
        now = self.state.exports_all
        if not programs and not function and exports_all_at_end(statement.text, before=now) != now:
            return self.found.add(statement.line, first, Fate.UNTRANSLATED, EXPORTS, end=statement.end)
        if "wait" in statement.commands and not function:
            self.wait()
        roles = {ROLES.get(name.rsplit("/", 1)[-1], Role.PROGRAM) for name in {*statement.commands} - {*harmless}}
        self.after_test = Role.TEST in roles
        exports = self.exports(statement, changed)
        if not programs and not exports and NODES.search(statement.text):
            return self.found.add(statement.line, first, Fate.REPLACED, FINDS_NODES)
        is_used = not function and (exports or any(self.variables.users_of(name, statement) for name in changed))
        if not programs and statement.commands and roles <= HARMLESS | {Role.MODULE} and not is_used:
            can_end = "exit" in statement.commands and not (function or self.is_guard)
            unknown = ENDS if can_end else written_file(statement) if WRITES.search(statement.text) else ""
            fate = (Fate.UNTRANSLATED, unknown) if unknown else (Fate.LEFT_OUT, NO_PROGRAM)
            return self.found.add(statement.line, first, *fate)
        return self.report_block(statement, first, programs)

    def exports(self, statement: Statement, changed: Collection[str]) -> bool:
        """Return whether a compound statement changes variables of the environment that a job needs."""
        if self.state.exports_all or self.state.exported.intersection(changed):
            return bool(changed)
        return bool(EXPORT.search(RENDEZVOUS_EXPORT.sub("", statement.text)))

    def report_block(self, statement: Statement, first: str, programs: str) -> None:
        """Report a compound statement that the user has to translate."""
        kind = first.split(" ", 1)[0]
        lines = f"lines {statement.line} to {statement.end}" if statement.end > statement.line else "this line"
        hint = "; a loop over runs is a job array: --array" if kind in {"for", "while"} else ""
        if "<<" in statement.text and kind not in BLOCKS:
            is_script = kind == "sbatch"
            what = "the text is a job script: save it in a file, and import that file"
            hint = f"; {what if is_script else 'put the text into a file: the program reads it by < FILE'}"
        lost = programs and programs + BLOCKS.get(kind, "")
        note = f"translate {lines} yourself{hint}"
        self.found.add(statement.line, first, Fate.UNTRANSLATED, note, end=statement.end, lost_programs=lost)

    def read_command(self, statement: Statement) -> None:
        """Translate a command: the start of a program, preparation, or output."""
        defaults = [part for word in statement.words for part in word if part.assigns]
        is_only_assigning = bool(defaults) and source_text(statement.words[0]) == ":"
        for part in defaults:
            self.assign_default(statement if is_only_assigning else replace(statement, text=part.reference), part)
        if is_only_assigning:
            return None
        written, wrapper = without_wrapper(statement, self.wrappers)
        text, program = statement.text, read_program(written, self.state.values, self.state.exported)
        first = source_text(statement.words[0]) if statement.words else ""
        role = classify(program, harmless_functions(self.functions))
        if role is Role.PROGRAM and self.state.changed:
            program = read_program(written, self.state.rank_values, self.state.exported)
        if wrapper and role is Role.PROGRAM:
            set_visible_gpu(program, wrapper)
        elif is_about_wrapper(program, self.wrappers):
            return self.found.add(statement.line, text, Fate.REPLACED, NO_WRAPPER)
        self.after_test = role is Role.TEST
        self.has_ended = first in {"exec", "exit"} and bool(program.words) and not self.is_conditional
        self.state.observe(program.texts)
        if program.name == "wait":
            self.wait([source_text(word) for word in statement.words[1:]])
        if program.name in self.functions and not program.is_start and not program.script:
            return self.call_function(statement, program.name)
        is_end = first == "exit" and not self.is_guard
        if self.is_conditional and (is_end or role not in HARMLESS):
            note = ENDS if is_end else CONDITIONAL
            lost = lost_programs(program) if role in {Role.PROGRAM, Role.LOST} else ""
            return self.found.add(statement.line, text, Fate.UNTRANSLATED, note, lost_programs=lost)
        if ACTIVATION.match(text):
            return self.activate(statement, first)
        return self.translate_role(statement, program, role)

    def assign_default(self, statement: Statement, part: Part) -> None:
        """Translate ``${NAME:=text}``, which assigns the text if the variable has no value."""
        if self.is_conditional:
            self.state.conditional.add(part.text)
            return self.found.add(statement.line, part.reference, Fate.UNTRANSLATED, CONDITIONAL)
        return self.variables.assign(statement, part.text, ((replace(part, quoted=True),),))

    def translate_role(self, statement: Statement, program: Program, role: Role) -> None:
        """Translate a command by its role."""
        text = statement.text
        match role:
            case Role.PROGRAM:
                self.start(statement, program)
            case Role.LOST:
                note = program.obstacle or ADVICE.get(program.name, advise_on_lost(program))
                self.found.add(statement.line, text, Fate.UNTRANSLATED, note, lost_programs=lost_programs(program))
            case Role.SHELL:
                notes = tuple(default_notes(statement.words, self.state.values, self.state.conditional))
                self.found.add(statement.line, text, *self.change_shell(program))
                self.found.add_notes(statement.line, notes)
            case Role.MODULE if only_prints(program.texts):
                self.found.add(statement.line, text, Fate.LEFT_OUT, PURPOSES[Role.PRINT])
            case Role.MODULE:
                self.modules.append((statement.line, text))
            case Role.PRINT if WRITES.search(statement.redirects):
                self.found.add(
                    statement.line,
                    text,
                    Fate.UNTRANSLATED,
                    NODE_FILE if NODES.search(text) else written_file(statement),
                )
            case Role.CONTROL if effect := effect_of(program):
                self.found.add(statement.line, text, Fate.UNTRANSLATED, effect)
            case Role.PRINT | Role.CONTROL | Role.TEST:
                names = computed_variables(program.texts)
                self.found.add(statement.line, text, *self.variables.computed(statement, names, PURPOSES[role]))
            case Role.FILES:
                self.prepare(statement, program)
            case _:
                self.found.add(statement.line, text, Fate.UNTRANSLATED, self.advise(program.name, role))

    def call_function(self, statement: Statement, name: str) -> None:
        """Translate the call of a function of the script."""
        if programs := self.functions[name]:
            note = f"the function {name} starts it: write a job for each program"
            return self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, note, lost_programs=programs)
        body = self.bodies[name]
        names = assigned_variables(body.text)
        self.state.compute(names)
        outcome = self.variables.computed(statement, names, f"the function {name} starts no program")
        if self.exports(body, names):
            outcome = (Fate.UNTRANSLATED, "the function sets variables: set those that the program needs")
        if "exit" in body.commands:
            outcome = (Fate.UNTRANSLATED, ENDS)
        return self.found.add(statement.line, statement.text, *outcome)

    def activate(self, statement: Statement, first: str) -> None:
        """Remember an activated environment."""
        words = [source_text(each) for word in statement.words[1:] for each in expand(word, self.state.values)]
        environment = environment_of(first, words)
        if environment.startswith("/") and "$" not in environment:
            self.state.prefix = environment
        elif environment and environment != ITS_OWN:
            self.state.prefix = ""  # 'source conda/bin/activate; conda activate mine': mine may be in any folder
        self.activations.append((statement, environment))

    def advise(self, name: str, role: Role) -> str:
        """Return what to do about a command that is not translated."""
        if role is Role.SOURCE:
            return "the file is not read: put its variables into env; a program that it starts needs its own job"
        if role is Role.INSTALL:
            return ADVICE.get(name, "add the packages to the environment file of the image")
        if self.jobs:
            return "it runs after the program: make it a separate job with --after"
        return "if the job needs it, add it to before = [...]"

    def change_shell(self, program: Program) -> tuple[Fate, str]:
        """Translate ``cd``, ``ulimit``, ``umask`` and ``unset``; return what becomes of the command, and why."""
        if program.name == "popd":
            return leave_folder(self.state)
        if program.name == "pushd":
            self.state.stack.append(self.state.folder)
        if program.name in {"cd", "pushd"}:
            return change_folder(self.state, program.words[1:])
        if any(part.kind == "shell" for word in program.words for part in word):
            return Fate.UNTRANSLATED, "a command computes a part of it: do it in the program"
        if program.name == "unset" and "-f" in program.texts:
            return Fate.LEFT_OUT, PURPOSES[Role.CONTROL]
        names = [each for each in program.texts[1:] if each.isidentifier()] if program.name == "unset" else []
        unknown = [each for each in names if each in self.state.exported or each not in self.state.values]
        for name in names:
            self.state.keep_old_value(name)
            self.state.values[name] = ()
            self.state.forget(name)
        if names and not unknown:
            return Fate.LEFT_OUT, PURPOSES[Role.CONTROL]
        self.state.prelude += [f"unset {each}" for each in names] or [shell_line(program.words)]
        return Fate.KEPT, "the shell of each rank runs it"

    def prepare(self, statement: Statement, program: Program) -> None:
        """Translate a command on files before the program into ``before``."""
        if program.name == "mkdir":
            program.words = made_again(program.words)
        line = "; ".join((*new_definitions(program.words, self.state.values, ()), shell_line(program.words)))
        state = self.state
        if state.is_lost:
            note = "a command computes the folder: do it in the program"
            return self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, note)
        if any(why_unknown(part, state.values, state.conditional) for part in expressions(program.words)) or needs_bash(
            program.words, line
        ):
            note = "a command computes a part of it: do it in the program"
            return self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, note)
        used = {part.text for word in program.words for part in word if part.kind == "variable"}
        if used & self.state.conditional:
            note = "a loop or condition sets a variable in it: do it in the program"
            return self.found.add(statement.line, statement.text, Fate.UNTRANSLATED, note)
        self.state.before.append(Preparation(line, self.state.moves, statement.line))
        self.found.add(statement.line, statement.text, Fate.KEPT, f"before = {line}")
        return self.found.add_notes(statement.line, default_notes(statement.words, self.state.values))

    def wait(self, arguments: Sequence[str] = ()) -> None:
        """Note ``wait``: behind it, no program needs the commands on files of those that ended."""
        self.order.wait(arguments)
        if not self.order.running:
            self.state.forget_prepared()

    def report_late(self) -> None:
        """Correct the translations of commands on files behind the last program: no job runs them."""
        late = [(each.number, f"before = {each.line}") for each in self.state.before[self.state.prepared :]]
        for at, each in enumerate(self.found):
            if (each.line, each.note) in late:
                self.found[at] = replace(each, fate=Fate.UNTRANSLATED, note=self.advise("", Role.FILES))

    def start(self, statement: Statement, program: Program) -> None:
        """Translate the start of a program into a job."""
        name = f"{self.name}-{len(self.jobs) + 1}" if self.jobs else self.name
        job, translations = make_job(name, statement, program, self.state)
        self.found += translations
        self.state.start_program(background=statement.background)
        if before := self.order.start(job, background=statement.background):
            self.found.add_notes(job.line, (order_note(job, before),))
        names = tuple(shared_names(job, self.jobs))
        self.found.add_notes(job.line, names)
        self.jobs.append(replace(job, comments=tuple(f"{text}: {note}" for text, _, note in names)))
