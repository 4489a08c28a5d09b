"""Translate a hand-written job script into jobs of ``argosy.toml``, and say what became of each of its lines; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.records import replace
from argosy.launch.import_script import fates
from argosy.launch.import_script.classify import (
    assigned_variables,
    classify,
    computed_variables,
    counted_variables,
    local_variables,
    lost_programs,
    started_programs,
)
from argosy.launch.import_script.expressions import (
    ARGUMENT_NOTE,
    COMPUTED,
    default_notes,
    expressions,
    new_definitions,
    why_unknown,
)
from argosy.launch.import_script.files import refuse_heterogeneous, refuse_template
from argosy.launch.import_script.job import Order, make_job, order_note, shared_names
from argosy.launch.import_script.layers import ACTIVATION, ITS_OWN, environment_of, read_program
from argosy.launch.import_script.model import Fate, ImportedJob, ImportedScript, Outcome, Translations
from argosy.launch.import_script.options import Options, correct_for_jobs, option_numbers
from argosy.launch.import_script.program import HARMLESS, ROLES, Role, ScriptProgram, needs_bash, shell_line
from argosy.launch.import_script.shell_state import (
    SETS_ALL,
    Preparation,
    ShellState,
    change_folder,
    changes_folder,
    made_again,
    waits_for_one,
)
from argosy.launch.import_script.variables import FINDS_NODES, NODES, Variables, harmless_functions
from argosy.sites.profile import Site
from argosy.slurm.bash_tree import without_texts
from argosy.slurm.script_reader import JobScript, Statement, parse_job_script
from argosy.slurm.script_words import expand, source_text

FUNCTION = re.compile(r"(?:function\s+)?([\w:.-]+)\s*(?:\(\s*\))?\s*\{")
"""Beginning of the definition of a function."""


def import_script(
    path: str, text: str, *, name: str = "", site: Site | None = None, exported: Collection[str] = ()
) -> ImportedScript:
    """Translate a job script.

    Parameters
    ----------
    path
        Path that messages show; its stem is the job's name if neither `name` nor the script names the job.
    site
        The site of the job, if it is known: variables that its profile sets are left out.
    exported
        Names of the variables that the user's shell exports: an assignment without ``export`` changes them, too.

    Raises
    ------
    UsageError
        If the script is a heterogeneous job, a template, or no script that a person writes.
    """
    try:
        script = parse_job_script(text)
        refuse_heterogeneous(path, text, script)
        refuse_template(path, text, script)
        reader = _Reader(script, site or Site(), path, name, exported)
        reader.read()
    except RecursionError:
        raise UsageError(
            f"cannot read {path}: its brackets are nested too deeply",
            evidence=f"{len(text)} characters",
            hint="is it a job script? A log of a job can contain #SBATCH lines, too",
        ) from None
    return ImportedScript(path, tuple(reader.jobs), tuple(sorted(reader.found, key=lambda each: each.line)))


class _Reader:
    """Reads the statements of a script in order, and collects jobs and translations."""

    def __init__(self, script: JobScript, site: Site, path: str, name: str, exported: Collection[str]) -> None:
        self.script = script
        self.file_name = path.rsplit("/", 1)[-1]
        self.site = site
        self.found = Translations()
        self.state = ShellState(
            keys={"site": site.name} if site.name else {},
            exported={*exported},
            is_moving=changes_folder(script.statements),
            waits_for_one=waits_for_one(script.statements),
        )
        self.jobs: list[ImportedJob] = []
        self.modules: list[Statement] = []
        self.activations: list[tuple[Statement, str]] = []
        self.functions: dict[str, str] = {}
        self.bodies: dict[str, Statement] = {}
        self.variables = Variables(script.statements, site, self.state, self.found, self.functions)
        self.wrappers: dict[str, fates.GpuWrapper] = {}
        self.order = Order()
        self.after_test = self.is_conditional = self.is_guard = self.has_ended = False
        self.name = name

    def read(self) -> None:
        """Read the whole script."""
        self.read_options()
        for statement in self.script.statements:
            self.read_statement(statement)
        self.report_late()
        self.report_host_software()
        self.found[:] = [correct_for_jobs(each, self.jobs) for each in self.found]

    def read_options(self) -> None:
        """Translate the ``#SBATCH`` lines."""
        state, options = self.state, Options(self.script.options, self.state.shape)
        state.shape = options.shape
        state.numbers = option_numbers(self.script.options, self.site)
        if "name" not in options.keys:
            state.numbers = {**state.numbers, "SLURM_JOB_NAME": self.file_name}
        self.found += options.found
        state.keys.update(options.keys)
        state.env.update(state.keys.pop("env", {}))
        state.first = state.folder = state.keys.get("chdir", "")
        own_name = re.sub(r"[^\w-]+", "-", options.keys.get("name", "")).strip("-")
        stem = re.sub(r"[^\w.-]+", "-", self.file_name.rsplit(".", 1)[0]).strip("-.") or "job"
        self.name = self.name or own_name or stem
        late = Outcome(Fate.LEFT_OUT, "below the first command: sbatch does not read it")
        for option in self.script.late_options:
            self.found.add(option.line, str(option), late)

    def report_host_software(self) -> None:
        """Report modules, environments and paths, whose fate depends on the images of the jobs."""
        state, images = self.state, {job.keys["image"] for job in self.jobs}
        bare = any(image.startswith(BARE_PREFIX) for image in images)
        for each in self.modules:
            self.add(each, fates.fate_of_modules(frozenset(each.text.split()[2:]), self.site, bare=bare))
        for each, environment in self.activations:
            self.add(each, fates.fate_of_activation(environment, state.prefix, bare=bare))
        for each in self.variables.host_paths:
            guess = "" if state.prefix or "PATH" not in dict(each.assigned) else state.path_prefix
            self.add(each, fates.fate_of_host_path(images, guess))

    def add(self, statement: Statement, outcome: Outcome) -> None:
        """Record what becomes of a statement; only the first line of a compound one is shown."""
        is_block = statement.kind == "compound"
        text = statement.text.split("\n", 1)[0] if is_block else statement.text
        self.found.add(statement.line, text, outcome, end=statement.end if is_block else 0)

    def read_statement(self, statement: Statement) -> None:
        """Translate one statement."""
        self.is_conditional = statement.condition == "||" or (
            statement.condition == "&&" and (self.is_conditional or self.after_test)
        )
        self.is_guard = statement.condition == "||" and not self.after_test
        self.after_test = False
        if outcome := self.outcome_of(statement):
            self.add(statement, outcome)
        if statement.kind != "compound":
            self.count(statement)

    def outcome_of(self, statement: Statement) -> Outcome | None:
        """Return what becomes of a statement; None if it is recorded already, or at the end."""
        if self.has_ended:
            return Outcome(Fate.LEFT_OUT, fates.ENDED)
        if statement.kind != "assignment":
            return (self.read_command if statement.kind == "command" else self.read_compound)(statement)
        if self.is_conditional:
            names = {name for name, _ in statement.assigned}
            self.state.fix(names, statement.place)
            self.state.conditional |= names
            return Outcome(Fate.UNTRANSLATED, fates.CONDITIONAL)
        if fates.UNEXPORTS.match(statement.text):
            return Outcome(Fate.UNTRANSLATED, fates.UNEXPORTED)
        if not statement.assigned:  # elements of arrays: LIST[0]=x
            names = set(re.findall(r"(\w+)\[", statement.text))
            self.state.compute(names, statement.place)
            return self.variables.computed(statement, names, "it sets no variable")
        for name, words in statement.assigned:
            self.variables.assign(statement, name, words)
        return None

    def count(self, statement: Statement) -> None:
        """Note the variables that arithmetic in a command or an assignment sets, for example ``$((N++))``."""
        names = counted_variables(statement.text)
        self.state.compute(names, statement.place)
        fate, note, *_ = self.variables.computed(statement, names, "")
        self.found.add_notes(statement.line, ((f"${each}", fate, note) for each in sorted(names) if note == COMPUTED))

    def read_compound(self, statement: Statement) -> Outcome:
        """Return what becomes of a loop, a condition, a function or a here-document: it is not translated."""
        text, function = statement.text, FUNCTION.match(statement.text)
        changed = assigned_variables(text)
        self.state.compute(changed, "" if function else statement.place)
        self.state.fix(self.set_by_functions(statement.commands), "" if function else statement.place)
        if wrapper := fates.read_gpu_wrapper(text):
            self.wrappers[wrapper.name] = wrapper
            return Outcome(Fate.REPLACED, fates.NO_WRAPPER)
        if text.startswith(("[", "((")) and not statement.commands:
            self.after_test = True
            return self.variables.computed(statement, changed, fates.PURPOSES[Role.TEST])
        harmless = harmless_functions(self.functions)
        programs = started_programs(text, self.state.values, harmless)
        if function:
            self.functions[function[1]], self.bodies[function[1]] = programs, statement
        elif SETS_ALL.search(text) and not programs:
            return Outcome(Fate.UNTRANSLATED, fates.EXPORTS)
        elif "wait" in statement.commands:
            self.wait()
        roles = {ROLES.get(name.rsplit("/", 1)[-1], Role.PROGRAM) for name in {*statement.commands} - {*harmless}}
        self.after_test = Role.TEST in roles
        if not programs and (function or not self.exports(statement, changed)):
            if NODES.search(text):
                return Outcome(Fate.REPLACED, FINDS_NODES)
            is_used = not function and any(self.variables.users_of(name, statement) for name in changed)
            if statement.commands and roles <= HARMLESS | {Role.MODULE} and not is_used:
                return fates.fate_of_harmless(statement, can_end=not (function or self.is_guard))
        return self.outcome_of_block(statement, programs)

    def exports(self, statement: Statement, changed: Collection[str]) -> bool:
        """Return whether a compound statement changes variables of the environment that a job needs."""
        if self.state.exports_all or self.state.exported.intersection(changed):
            return bool(changed)
        return bool(fates.EXPORT.search(fates.RENDEZVOUS_EXPORT.sub("", without_texts(statement.text))))

    def outcome_of_block(self, statement: Statement, programs: str) -> Outcome:
        """Return what the user has to do about a compound statement that starts these programs."""
        kind = re.split(r"[ \n]", statement.text, maxsplit=1)[0]
        lines = statement.place if statement.end > statement.line else "this line"
        hint = fates.advise_on_loop(statement) if kind in {"for", "while"} else ""
        if "<<" in statement.text and kind not in fates.BLOCKS:
            hint = "; put the text into a file: the program reads it by < FILE"
            if kind == "sbatch":
                hint = "; the text is a job script: save it in a file, and import that file"
        lost = programs and programs + fates.BLOCKS.get(kind, "")
        return Outcome(Fate.UNTRANSLATED, f"translate {lines} yourself{hint}", lost)

    def read_command(self, statement: Statement) -> Outcome | None:
        """Translate a command: the start of a program, preparation, or output."""
        if self.assign_defaults(statement):
            return None
        written, wrapper = fates.without_wrapper(statement, self.wrappers)
        program = read_program(written, self.state.values, self.state.exported)
        first = source_text(statement.words[0]) if statement.words else ""
        role = classify(program, harmless_functions(self.functions))
        if wrapper and role is Role.PROGRAM:
            fates.set_visible_gpu(program, wrapper)
        elif fates.is_about_wrapper(program, self.wrappers):
            return Outcome(Fate.REPLACED, fates.NO_WRAPPER)
        self.after_test = role is Role.TEST
        self.has_ended = first in {"exec", "exit"} and bool(program.words) and not self.is_conditional
        self.state.observe(program.texts, statement.place)
        if program.name in self.functions and not program.is_start and not program.script:
            return self.call_function(statement, program.name)
        is_end = first == "exit" and not self.is_guard
        if self.is_conditional and (is_end or role not in HARMLESS):
            lost = lost_programs(program) if role in {Role.PROGRAM, Role.LOST} else ""
            return Outcome(Fate.UNTRANSLATED, fates.ENDS if is_end else fates.CONDITIONAL, lost)
        if ACTIVATION.match(statement.text):
            self.activate(statement, first)
            return None
        return self.outcome_of_role(statement, program, role)

    def assign_defaults(self, statement: Statement) -> bool:
        """Translate each ``${NAME:=text}``, which assigns the text; return whether the command does nothing else."""
        defaults = [part for word in statement.words for part in word if part.assigns]
        is_all = bool(defaults) and source_text(statement.words[0]) == ":"
        for part in defaults:
            if self.is_conditional:
                self.state.fix((part.text,), statement.place)
                self.state.conditional.add(part.text)
                self.found.add(statement.line, part.reference, Outcome(Fate.UNTRANSLATED, fates.CONDITIONAL))
            else:
                shown = statement if is_all else replace(statement, text=part.reference)
                self.variables.assign(shown, part.text, ((replace(part, quoted=True),),))
        return is_all

    def outcome_of_role(self, statement: Statement, program: ScriptProgram, role: Role) -> Outcome | None:
        """Translate a command by its role."""
        note, lost = "", ""
        match role:
            case Role.PROGRAM:
                self.start(statement, program)
                return None
            case Role.MODULE if not fates.only_prints(program.texts):
                self.modules.append(statement)
                return None
            case Role.SHELL:
                notes = (
                    *default_notes(statement.words, self.state.values, self.state.conditional),
                    *self.state.fixed_notes(statement.words),
                )
                return self.change_shell(program)._replace(parts=notes)
            case Role.FILES:
                return self.prepare(statement, program)
            case Role.LOST:
                note, lost = fates.advise_on_lost(program), lost_programs(program)
            case Role.PRINT if fates.WRITES.search(statement.redirects):
                note = fates.written_file(statement)
            case Role.CONTROL:
                note = self.wait(program.texts[1:]) if program.name == "wait" else fates.effect_of(program)
            case Role.SOURCE | Role.INSTALL | Role.TOOL:
                note = fates.advise(program.name, role, is_late=bool(self.jobs))
        if note:
            return Outcome(Fate.UNTRANSLATED, note, lost)
        purpose = fates.PURPOSES.get(role, fates.PURPOSES[Role.PRINT])
        return self.variables.computed(statement, computed_variables(program.texts), purpose)

    def call_function(self, statement: Statement, name: str) -> Outcome:
        """Return what becomes of the call of a function of the script."""
        if programs := self.functions[name]:
            note = f"the function {name} starts it: write a job for each program"
            return Outcome(Fate.UNTRANSLATED, note, programs)
        body = self.bodies[name]
        names = assigned_variables(body.text)
        self.state.fix(self.set_by_functions((name,)), body.place)
        self.state.compute(names, "")
        if "exit" in body.commands:
            return Outcome(Fate.UNTRANSLATED, fates.ENDS)
        if self.exports(body, names):
            return Outcome(Fate.UNTRANSLATED, "the function sets variables: set those that the program needs")
        return self.variables.computed(statement, names, f"the function {name} starts no program")

    def set_by_functions(self, commands: Iterable[str]) -> set[str]:
        """Return the variables of the script that functions among these commands set."""
        bodies = (self.bodies[name] for name in commands if name in self.bodies)
        return {name for body in bodies for name in assigned_variables(body.text) - local_variables(body.text)}

    def activate(self, statement: Statement, first: str) -> None:
        """Remember an activated environment."""
        words = [source_text(each) for word in statement.words[1:] for each in expand(word, self.state.values)]
        environment = environment_of(first, words)
        if environment.startswith("/") and "$" not in environment:
            self.state.prefix = environment
        elif environment and environment != ITS_OWN:
            self.state.prefix = ""  # 'source conda/bin/activate; conda activate mine': mine may be in any folder
        self.activations.append((statement, environment))

    def change_shell(self, program: ScriptProgram) -> Outcome:
        """Translate ``cd``, ``ulimit``, ``umask`` and ``unset``."""
        state = self.state
        if program.name in {"pushd", "popd"}:
            state.lose_folder()
            return Outcome(Fate.UNTRANSLATED, "set chdir to the folder")
        if program.name == "cd":
            return change_folder(state, program.words[1:])
        if any(expressions(program.words)):
            return Outcome(Fate.UNTRANSLATED, "a command computes a part of it: do it in the program")
        if program.name == "unset" and "-f" in program.texts:
            return Outcome(Fate.LEFT_OUT, fates.PURPOSES[Role.CONTROL])
        names = [each for each in program.texts[1:] if each.isidentifier()] if program.name == "unset" else []
        is_private = all(each not in state.exported and each in state.values for each in names)
        for name in names:
            state.outdate(name)
            state.values[name] = ()
            is_private &= not state.forget(name)
        if names and is_private:
            return Outcome(Fate.LEFT_OUT, fates.PURPOSES[Role.CONTROL])
        state.prelude += [f"unset {each}" for each in names] or [shell_line(program.words)]
        return Outcome(Fate.KEPT, "the shell of each rank runs it")

    def prepare(self, statement: Statement, program: ScriptProgram) -> Outcome:
        """Translate a command on files before the program into ``before``."""
        state = self.state
        words = made_again(program.words) if program.name == "mkdir" else program.words
        line = "; ".join((*new_definitions(words, state.values, ()), shell_line(words)))
        used = {part.text for word in words for part in word if part.kind == "variable"}
        unknown = state.conditional | state.changed
        reasons = [why_unknown(part, state.values, unknown) for part in expressions(words)]
        if state.is_lost:
            note = "a command computes the folder: do it in the program"
        elif ARGUMENT_NOTE in reasons:
            note = ARGUMENT_NOTE
        elif any(reasons) or needs_bash(words, line):
            note = "a command computes a part of it: do it in the program"
        elif used & unknown:
            note = "the script computes a variable in it: do it in the program"
        else:
            state.before.append(Preparation(line, state.moves, statement.line))
            notes = (*default_notes(statement.words, state.values), *state.fixed_notes(statement.words))
            return Outcome(Fate.KEPT, f"before = {line}", parts=notes)
        return Outcome(Fate.UNTRANSLATED, note)

    def wait(self, arguments: Sequence[str] = ()) -> str:
        """Note ``wait``: behind it, no program needs the commands on files of those that ended; return what to do."""
        note = "" if self.order.wait(arguments) else fates.WAITS
        if not self.order.running:
            self.state.forget_prepared()
        return note

    def report_late(self) -> None:
        """Correct the translations of commands on files behind the last program: no job runs them."""
        late = [(each.number, f"before = {each.line}") for each in self.state.before[self.state.prepared :]]
        note = fates.advise("", Role.FILES, is_late=bool(self.jobs))
        self.found[:] = [
            replace(each, fate=Fate.UNTRANSLATED, note=note) if (each.line, each.note) in late else each
            for each in self.found
        ]

    def start(self, statement: Statement, program: ScriptProgram) -> None:
        """Translate the start of a program into a job."""
        name = f"{self.name}-{len(self.jobs) + 1}" if self.jobs else self.name
        job, translations = make_job(name, statement, program, self.state)
        self.found += translations
        self.state.start_program(background=statement.background)
        if before := self.order.start(job, background=statement.background):
            self.found.add_notes(job.line, (order_note(job, before),))
        names = tuple(shared_names(job, self.jobs))
        self.found.add_notes(job.line, names)
        comments = (*job.comments, *(f"{text}: {note}" for text, _, note in names))
        self.jobs.append(replace(job, comments=comments))
