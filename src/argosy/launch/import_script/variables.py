"""Translate the variables that a job script sets: into the job's environment, or say why not; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from argosy.core.parse import parse_int
from argosy.core.records import replace
from argosy.launch.import_script.classify import classify, computing_commands, started_programs
from argosy.launch.import_script.containers import BINDS, INSIDE
from argosy.launch.import_script.defaults import COMPUTED, default_notes
from argosy.launch.import_script.expressions import (
    ARGUMENT_NOTE,
    DIFFERS_NOTE,
    INDIRECT,
    expressions,
    new_definitions,
    renamed,
    used_names,
    uses_any,
    why_unknown,
    with_first_node,
)
from argosy.launch.import_script.model import Fate, Note, Outcome, Translations
from argosy.launch.import_script.options import NOTES
from argosy.launch.import_script.programs import read_program
from argosy.launch.import_script.roles import HARMLESS
from argosy.launch.import_script.settings import CORES_OF_SRUN, describe_setting, is_certain, reason_to_replace
from argosy.launch.import_script.shell_state import LONGEST, ShellState, double_quoted
from argosy.sites.profile import Site
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import SET_IN_JOB, Part, Word, expand, plain_text, source_text

HOST_PATHS = frozenset({"PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD", "CUDA_HOME"})
PREFIX = re.compile(r"(/[^:$]+)/bin:")
"""Folder of a host's environment in a value of PATH."""

NODES = re.compile(r"scontrol show hostname|hostname\b|SLURM_(JOB_)?NODELIST")
"""Commands that find the nodes of a job."""

FIRST_NODE = re.compile(
    r"[$`]\(?\s*(?:hostname(?:\s+(?:-[sf]|--short|--fqdn))?"
    r"|scontrol\s+show\s+hostnames?(?:\s+[\"']?\$\{?SLURM_(?:JOB_)?NODELIST\}?[\"']?)?"
    r"\s*\|\s*(?:head\s+(?:-n\s*1|-1|--lines=1)|sed\s+-n\s+['\"]?1p['\"]?))\s*[)`]"
)
"""Commands that print the first node of a job, where sbatch runs the script."""

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
        self.host_paths: list[Statement] = []

    def assign(self, statement: Statement, name: str, words: tuple[Word, ...]) -> None:
        """Translate an assignment, or only remember its value if it is not exported."""
        state, inside = self.state, INSIDE.sub("", name)
        for part in (part for word in words for part in word if part.assigns and part.text != name):
            self.assign(replace(statement, text=part.reference, exported=False), part.text, ((part,),))
        is_environment = name in state.exported or bool(SET_IN_JOB.fullmatch(name))
        is_array = len(words) != 1  # bash does not export arrays
        is_exported = (statement.exported or state.exports_all or is_environment) and not is_array
        notes = tuple(default_notes(words, state.values, state.conditional, exported=name if is_exported else ""))
        value = _text_of([each for word in words for each in expand(word, state.values)])
        if reason := reason_to_replace(inside, value):
            is_cores = inside == CORES_OF_SRUN
            return self._add(statement, self._set_cores(value, words) if is_cores else (Fate.REPLACED, reason))
        if is_exported and name not in state.values and words == ((Part("variable", name, quoted=True),),):
            return self._add(statement, self._fate_of_inherited(name))
        if name not in state.values and len(words) > 1 and any(name in used_names(word) for word in words):
            state.conditional.add(name)  # elements that the shell has before, in which a rank would see the new ones
        if name not in state.values:
            before = Part("variable", name, "", quoted=True, all_elements=True)
            words = tuple(word for word in words if word != (before,))
        words = self._with_old_value(name, with_first_node(words, state.values))
        own = {name: state.values[name]} if name in state.values else {}
        values = {**state.rank_values, **own} if is_exported else state.values
        expanded = tuple(state.with_folder(each) for word in words for each in expand(word, values))
        if sum(len(part.text) + 1 for word in expanded for part in word) > LONGEST:
            state.values.pop(name, None)
            state.conditional.add(name)
            return self._add(statement, (Fate.UNTRANSLATED, "its value is too long for an argument"))
        if is_exported:
            return self._export(statement, name, expanded, notes)
        state.set_value(name, expanded)
        outcome = self._fate_of_variable(statement, name, expanded)
        if outcome[0] is Fate.LEFT_OUT and (lost := self._lost_in_value(expanded)):
            outcome = (Fate.UNTRANSLATED, "it starts a program: write a job for it")
            return self._add(statement, outcome, lost_programs=lost)
        return self._add(statement, outcome, notes)

    def _add(
        self, statement: Statement, outcome: Outcome, notes: Sequence[Note] = (), *, lost_programs: str = ""
    ) -> None:
        """Record what becomes of an assignment; the notes are about the value that a job gets."""
        self.found.add(statement.line, statement.text, *outcome, lost_programs=lost_programs)
        self.found.add_notes(statement.line, notes if outcome[0] is Fate.KEPT or outcome[1] == USED else ())

    def _set_cores(self, value: str, words: tuple[Word, ...]) -> Outcome:
        """Translate the cores that srun gives to a rank; the script may use the variable elsewhere."""
        state, number = self.state, parse_int(value)
        state.set_value(CORES_OF_SRUN, tuple(each for word in words for each in expand(word, state.values)))
        if number in {0, state.shape.cpus_per_task}:
            return Fate.REPLACED, "Argosy passes the cores on to srun"
        state.shape = replace(state.shape, cpus_per_task=number)
        return Fate.KEPT, NOTES["cpus_per_task"]

    def _fate_of_inherited(self, name: str) -> Outcome:
        """Return what becomes of ``export NAME`` of a variable without a known value, and why."""
        self.state.exported.add(name)
        if name in self.state.conditional:
            return Fate.UNTRANSLATED, f"{BY_SCRIPT} {name}"
        return Fate.LEFT_OUT, "the job inherits your environment"

    def _lost_in_value(self, words: tuple[Word, ...]) -> str:
        """Name the programs that ``$(…)`` starts in a value which no job uses; ``python -c`` only computes a value."""
        texts = (computing_commands(part) for word in words for part in word)
        names = (started_programs(text, self.state.values) for text in texts if " -c " not in text)
        return " and ".join(name for name in names if name)

    def _fate_of_variable(self, statement: Statement, name: str, words: tuple[Word, ...]) -> Outcome:
        """Return what becomes of a variable that is not exported, and why."""
        if any(part.kind == "shell" and NODES.search(part.text) for word in words for part in word):
            return Fate.REPLACED, FINDS_NODES
        users = self.users_of(name, statement)
        if not users:
            return Fate.LEFT_OUT, "the script does not use it"
        if all(each.kind == "compound" for each in users):
            return Fate.LEFT_OUT, "only loops and conditions use it"
        if all(each.kind == "compound" or self._is_harmless(each) for each in users):
            return Fate.LEFT_OUT, "only commands that a job does not need use it"
        return Fate.REPLACED, USED

    def computed(self, statement: Statement, names: Collection[str], reason: str) -> Outcome:
        """Return what becomes of a command that sets variables, for example ``read``; else it is not needed."""
        fates = [self._fate_of_variable(statement, name, ()) for name in sorted(names)]
        if (Fate.REPLACED, USED) in fates:
            return Fate.UNTRANSLATED, COMPUTED
        return fates[0] if fates else (Fate.LEFT_OUT, reason)

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

    def _export(self, statement: Statement, full_name: str, words: tuple[Word, ...], notes: Sequence[Note]) -> None:
        """Translate an exported variable."""
        name = INSIDE.sub("", full_name)
        definitions = new_definitions(words, self.state.values, self.state.prelude)
        self.state.set_value(full_name, words)
        self.state.forget(name)
        self.state.exported.add(full_name)
        if name not in HOST_PATHS and _adds_to_itself(name, words):
            self.state.changed.add(name)
        if name in HOST_PATHS:
            return self._export_host_path(statement, full_name, words, definitions)
        return self._add(statement, self._pass_on(name, words, definitions), notes)

    def _export_host_path(
        self, statement: Statement, name: str, words: tuple[Word, ...], definitions: Sequence[str]
    ) -> None:
        """Translate PATH and the like, which only a program without a container needs."""
        if name == "PATH" and (found := PREFIX.match(_text_of(words))):
            self.state.path_prefix = found[1]
        if reason := self._why_unknown(name, words):
            return self._add(statement, (Fate.UNTRANSLATED, reason))
        others = [each for each in self.state.host_paths if not each.startswith(f"export {name}=")]
        self.state.host_paths = [*others, *definitions, f"export {name}={double_quoted(words)}"]
        return self.host_paths.append(statement)

    def _pass_on(self, name: str, words: tuple[Word, ...], definitions: Sequence[str]) -> Outcome:
        """Pass an exported variable on to the program; return what becomes of it."""
        value, setting = _text_of(words), self.profile.get(name)
        if name in BINDS:
            self.state.binds += [bind for bind in value.split(",") if bind]
            return Fate.KEPT, f"bind = {value}"
        if setting and setting.value == value and is_certain(setting, self.site, self.state.shape):
            return Fate.REPLACED, f"the profile of {self.site.name} sets it"
        use = re.compile(rf"\$\{{?{name}\b|\(\(.*\b{name}\b|^{name}=")
        is_used_before = any(map(use.search, self.state.prelude))
        if all(plain_text(word) is not None for word in words) and not is_used_before:
            self.state.env[name] = value
            other = f"; {describe_setting(setting, self.site)}" if setting else ""
            return Fate.KEPT, f'env.{name} = "{value}"{other}'
        known = _with_first_node(words)
        if reason := self._why_unknown(name, known):
            return Fate.UNTRANSLATED, USE_FIRST_NODE if NODES.search(value) else reason
        self.state.prelude += [*definitions, f"export {name}={double_quoted(known)}"]
        return Fate.KEPT, "the shell of each rank sets it" if known == words else HAS_FIRST_NODE

    def _with_old_value(self, name: str, words: tuple[Word, ...]) -> tuple[Word, ...]:
        """Give the value so far another name in the expressions that use it: ``M=$((N * 2)); N=$((N + 1))``."""
        is_own = any(name in used_names(word) for word in words)
        old = self.state.keep_old_value(name, always=is_own)
        return renamed(words, name, old) if old else words

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


def _with_first_node(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Put MASTER_ADDR, which Argosy sets in each rank, in place of commands that print the first node."""
    first = Part("variable", "MASTER_ADDR", quoted=True)
    return tuple(
        tuple(first if part.kind == "shell" and FIRST_NODE.fullmatch(part.text) else part for part in word)
        for word in words
    )


def _adds_to_itself(name: str, words: tuple[Word, ...]) -> bool:
    """Return whether a value contains that of its own variable, so that the shell must compute it only once."""
    variables = {part.text for word in words for part in word if part.kind == "variable"}
    is_default = len(words) == 1 and len([part for part in words[0] if part.text]) == 1
    return name in variables.union(*map(used_names, words)) and not is_default


def _text_of(words: Sequence[Word]) -> str:
    """Return the value of a variable as the script writes it."""
    return " ".join(map(source_text, words))
