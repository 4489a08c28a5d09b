"""Translate the variables that a job script sets: into the job's environment, or say why not; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.launch.import_script.classify import classify, computing_commands, started_programs
from argosy.launch.import_script.environment import CORES_OF_SRUN, describe_setting, is_certain, reason_to_replace
from argosy.launch.import_script.expressions import (
    ARGUMENT_NOTE,
    COMPUTED,
    DIFFERS_NOTE,
    FIRST_NODE,
    INDIRECT,
    default_notes,
    expressions,
    itself,
    new_definitions,
    used_names,
    uses_any,
    why_unknown,
    with_first_node,
)
from argosy.launch.import_script.launcher_options import BINDS, INSIDE
from argosy.launch.import_script.layers import read_program
from argosy.launch.import_script.model import Fate, Outcome, Translations
from argosy.launch.import_script.options import NOTES
from argosy.launch.import_script.program import HARMLESS
from argosy.launch.import_script.shell_state import LONGEST, ShellState, double_quoted
from argosy.sites.profile import Site
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import SET_IN_JOB, Word, WordPart, expand, plain_text, source_text

HOST_PATHS = frozenset({"PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD", "CUDA_HOME"})
PREFIX = re.compile(r"(/[^:$]+)/bin:")
"""Folder of a host's environment in a value of PATH."""

NODES = re.compile(r"scontrol show hostname|hostname\b|SLURM_(JOB_)?NODELIST")
"""Commands that find the nodes of a job."""

HAS_FIRST_NODE = "the shell of each rank sets it to MASTER_ADDR, the first node"
USE_FIRST_NODE = "the script computes it from the nodes of the job: use MASTER_ADDR, the first node, in the program"

FINDS_NODES = "Argosy finds the nodes of the job"
"""Reason why a job does not need these commands."""

BY_SCRIPT = "the script computes the value: set it yourself, and pass it with --env"
USED = "its value is put where it is used"


def harmless_functions(functions: Mapping[str, str]) -> list[str]:
    """Return the functions of the script that start no program."""
    return [name for name, programs in functions.items() if not programs]


class Variables:
    """Translates the assignments of a script in order.

    Parameters
    ----------
    statements
        All statements of the script: they show where a variable is used.
    functions
        The functions of the script so far, with the programs that each starts.

    Attributes
    ----------
    host_paths
        Statements that set PATH and the like: their fate depends on the jobs.
    """

    def __init__(
        self,
        statements: Sequence[Statement],
        site: Site,
        state: ShellState,
        found: Translations,
        functions: Mapping[str, str],
    ) -> None:
        self.statements = statements
        self.site = site
        self.profile = {setting.name: setting for setting in site.settings}
        self.state = state
        self.found = found
        self.functions = functions
        self.has_container = any(re.search("apptainer|singularity", each.text) for each in statements)
        self.host_paths: list[Statement] = []

    def assign(self, statement: Statement, name: str, words: tuple[Word, ...]) -> None:
        """Translate an assignment, or only remember its value if it is not exported."""
        state = self.state
        for part in (part for word in words for part in word if part.assigns and part.text != name):
            self.assign(replace(statement, text=part.reference, exported=False), part.text, ((part,),))
        is_array = len(words) != 1  # bash does not export arrays
        is_environment = name in state.exported or bool(SET_IN_JOB.fullmatch(name))
        is_exported = (statement.exported or state.exports_all or is_environment) and not is_array
        notes = tuple(default_notes(words, state.values, state.conditional, exported=name if is_exported else ""))
        fixed = state.fixed_values(words)
        outcome = self._needless(name, words, is_exported=is_exported) or self._set(
            statement, name, words, is_exported=is_exported
        )
        if outcome and (outcome.fate is Fate.KEPT or outcome.note == USED):
            outcome = outcome._replace(parts=notes)  # they are about the value that a job gets
        if outcome:
            self.found.add(statement.line, statement.text, outcome)
        state.fixed[name] = fixed

    def _needless(self, name: str, words: tuple[Word, ...], *, is_exported: bool) -> Outcome | None:
        """Return what becomes of an assignment whose value no job needs; None for any other one."""
        state, value = self.state, _text_of([each for word in words for each in expand(word, self.state.values)])
        if INSIDE.match(name) and not self.has_container:
            return Outcome(Fate.LEFT_OUT, "the script starts no container")
        if reason := reason_to_replace(INSIDE.sub("", name), value):
            is_cores = INSIDE.sub("", name) == CORES_OF_SRUN
            return self._set_cores(value, words) if is_cores else Outcome(Fate.REPLACED, reason)
        if not is_exported or name in state.values or words != itself(name):
            return None
        state.exported.add(name)
        if name in state.conditional:
            return Outcome(Fate.UNTRANSLATED, f"{BY_SCRIPT} {name}")
        return Outcome(Fate.LEFT_OUT, "the job inherits your environment")

    def _set(self, statement: Statement, name: str, words: tuple[Word, ...], *, is_exported: bool) -> Outcome | None:
        """Set a variable; return what becomes of the assignment, None if it depends on the jobs."""
        state, expanded = self.state, self._expanded(name, words, is_exported=is_exported)
        if sum(len(part.text) + 1 for word in expanded for part in word) > LONGEST:
            state.values.pop(name, None)
            state.conditional.add(name)
            return Outcome(Fate.UNTRANSLATED, "its value is too long for an argument")
        if name in state.changed and expanded == itself(name):
            return Outcome(Fate.KEPT, "the shell of each rank sets it")
        if is_exported:
            return self._export(statement, name, expanded)
        state.set_value(name, expanded)
        outcome = self._fate_of_variable(statement, name, expanded)
        if outcome.fate is Fate.LEFT_OUT and (lost := self._lost_in_value(expanded)):
            return Outcome(Fate.UNTRANSLATED, "it starts a program: write a job for it", lost)
        return outcome

    def _expanded(self, name: str, words: tuple[Word, ...], *, is_exported: bool) -> tuple[Word, ...]:
        """Return the words of a value with the values of the variables in it, and prepare the state for the new one."""
        state, is_own = self.state, any(name in used_names(word) for word in words)
        if name not in state.values:
            before = WordPart("variable", name, "", quoted=True, all_elements=True)
            words = tuple(word for word in words if word != (before,))
        if is_own and not is_exported and (name in state.values or len(words) > 1):
            state.conditional.add(name)  # a rank would compute the value from the new one
        state.outdate(name)
        words = with_first_node(words, state.values)
        return tuple(state.with_folder(each) for word in words for each in expand(word, state.values))

    def _set_cores(self, value: str, words: tuple[Word, ...]) -> Outcome:
        """Translate the cores that srun gives to a rank; the script may use the variable elsewhere."""
        state, number = self.state, parse_int(value)
        state.set_value(CORES_OF_SRUN, tuple(each for word in words for each in expand(word, state.values)))
        if number in {0, state.shape.cpus_per_task}:
            return Outcome(Fate.REPLACED, "Argosy passes the cores on to srun")
        state.shape = replace(state.shape, cpus_per_task=number)
        return Outcome(Fate.KEPT, NOTES["cpus_per_task"])

    def _lost_in_value(self, words: tuple[Word, ...]) -> str:
        """Name the programs that ``$(…)`` starts in a value which no job uses; ``python -c`` only computes a value."""
        texts = (computing_commands(part) for word in words for part in word)
        names = (started_programs(text, self.state.values) for text in texts if " -c " not in text)
        return " and ".join(name for name in names if name)

    def _fate_of_variable(self, statement: Statement, name: str, words: tuple[Word, ...]) -> Outcome:
        """Return what becomes of a variable that is not exported."""
        if any(NODES.search(part.text) for part in expressions(words)):
            return Outcome(Fate.REPLACED, FINDS_NODES)
        users = self.users_of(name, statement)
        if not users:
            return Outcome(Fate.LEFT_OUT, "the script does not use it")
        if all(each.kind == "compound" for each in users):
            return Outcome(Fate.LEFT_OUT, "only loops and conditions use it")
        if all(each.kind == "compound" or self._is_harmless(each) for each in users):
            return Outcome(Fate.LEFT_OUT, "only commands that a job does not need use it")
        return Outcome(Fate.REPLACED, USED)

    def computed(self, statement: Statement, names: Collection[str], reason: str) -> Outcome:
        """Return what becomes of a command that sets variables, for example ``read``; else it is not needed."""
        outcomes = [self._fate_of_variable(statement, name, ()) for name in sorted(names)]
        if Outcome(Fate.REPLACED, USED) in outcomes:
            return Outcome(Fate.UNTRANSLATED, COMPUTED)
        return outcomes[0] if outcomes else Outcome(Fate.LEFT_OUT, reason)

    def users_of(self, name: str, statement: Statement) -> list[Statement]:
        """Return the other statements that use or export a variable."""
        word = rf"\b{re.escape(name)}\b"
        use = re.compile(
            rf"\$\{{?[#!]?{word}|\bexport\b.*{word}|\(\((?:(?!\)\)).)*{word}|\$\{{\w+\[[^]]*{word}|{INDIRECT.pattern}"
        )
        return [each for each in self.statements if each != statement and use.search(each.text)]

    def _is_harmless(self, statement: Statement) -> bool:
        """Return whether a job does not need a command."""
        is_command = statement.kind == "command"
        return is_command and classify(read_program(statement, {}), harmless_functions(self.functions)) in HARMLESS

    def _export(self, statement: Statement, full_name: str, words: tuple[Word, ...]) -> Outcome | None:
        """Translate an exported variable; the fate of PATH and the like is found later."""
        state, name = self.state, INSIDE.sub("", full_name)
        definitions = new_definitions(words, state.values, state.prelude)
        if full_name in state.exported:
            definitions = [each for each in definitions if not each.startswith(f"{full_name}=")]
        state.set_value(full_name, words)
        adds = _adds_to_itself(name, words)
        is_used = adds or state.forget(name)
        state.exported.add(full_name)
        if name in HOST_PATHS:
            if name == "PATH" and (found := PREFIX.match(_text_of(words))):
                state.path_prefix = found[1]
            outcome = self._in_shell(full_name, words, definitions, state.host_paths)
        else:
            outcome = self._pass_on(name, words, definitions, is_used=is_used)
        if adds and outcome.fate is Fate.KEPT:
            state.changed.add(name)
            state.values[full_name] = itself(full_name)
        if name in HOST_PATHS and outcome.fate is Fate.KEPT:
            self.host_paths.append(statement)
            return None
        return outcome

    def _pass_on(self, name: str, words: tuple[Word, ...], definitions: Sequence[str], *, is_used: bool) -> Outcome:
        """Pass an exported variable on to the program; `is_used`: the shell of a rank uses its earlier value."""
        value, setting = _text_of(words), self.profile.get(name)
        if name in BINDS:
            self.state.binds += [bind for bind in value.split(",") if bind]
            return Outcome(Fate.KEPT, f"bind = {value}")
        if setting and setting.value == value and is_certain(setting, self.site, self.state.shape):
            return Outcome(Fate.REPLACED, f"the profile of {self.site.name} sets it")
        if all(plain_text(word) is not None for word in words) and not is_used:
            self.state.env[name] = value
            other = f"; {describe_setting(setting, self.site)}" if setting else ""
            return Outcome(Fate.KEPT, f'env.{name} = "{value}"{other}')
        return self._in_shell(name, words, definitions, self.state.prelude)

    def _in_shell(self, name: str, words: tuple[Word, ...], definitions: Sequence[str], lines: list[str]) -> Outcome:
        """Let the shell of each rank export a variable, as the last of its `lines`."""
        if reason := self._why_unknown(name, words):
            return Outcome(Fate.UNTRANSLATED, USE_FIRST_NODE if NODES.search(_text_of(words)) else reason)
        lines += [*definitions, f"export {name}={double_quoted(words)}"]
        has_first_node = any(FIRST_NODE in word for word in words)
        return Outcome(Fate.KEPT, HAS_FIRST_NODE if has_first_node else "the shell of each rank sets it")

    def _why_unknown(self, name: str, words: tuple[Word, ...]) -> str:
        """Return why the shell of a rank cannot compute a value, and what to do; empty if it can."""
        reason = ""
        for part in expressions(words):
            reason = why_unknown(part, self.state.values, self.state.conditional)
            if reason == DIFFERS_NOTE:
                return f"a command computes the value: set the variable yourself, and pass it with --env {name}"
            if reason == ARGUMENT_NOTE:
                return f"an argument of the script: pass the value with --env {name}=VALUE"
            if reason and reason != COMPUTED:
                return reason
        return f"{BY_SCRIPT} {name}" if uses_any(words, self.state.conditional) or reason else ""


def _adds_to_itself(name: str, words: tuple[Word, ...]) -> bool:
    """Return whether a value contains that of its own variable, so that the shell must compute it only once."""
    variables = {part.text for word in words for part in word if part.kind == "variable"}
    is_default = len(words) == 1 and [part.kind for part in words[0] if part.text] == ["variable"]
    return name in variables.union(*map(used_names, words)) and not is_default


def _text_of(words: Sequence[Word]) -> str:
    """Return the value of a variable as the script writes it."""
    return " ".join(map(source_text, words))
