"""Translate a hand-written job script into jobs of ``argosy.toml``, and say what became of each of its lines; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.os_errors import reading
from argosy.core.records import replace
from argosy.core.script_reader import JobScript, Statement, read_job_script
from argosy.core.script_words import Part, Word, expand, plain_text, source_text
from argosy.launch.import_script.classify import (
    classify,
    computing_commands,
    handled_signals,
    program_name,
    started_programs,
)
from argosy.launch.import_script.heterogeneous import refuse_heterogeneous
from argosy.launch.import_script.job import SUBMIT_FOLDER, ShellState, make_job
from argosy.launch.import_script.model import WIDEST, Fate, ImportedJob, ImportedScript, Translation, translate
from argosy.launch.import_script.options import translate_options
from argosy.launch.import_script.program import Program, shell_line
from argosy.launch.import_script.programs import ACTIVATION, environment_of, read_program
from argosy.launch.import_script.roles import ADVICE, HARMLESS, ROLES, Role
from argosy.launch.import_script.settings import describe_setting, is_certain
from argosy.sites.profile import Site

RENDEZVOUS = frozenset(
    "MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK GROUP_RANK".split()  # noqa: SIM905
)
"""Variables that Argosy sets for each rank."""

SET_BY_ARGOSY: Mapping[str, str] = {
    **dict.fromkeys(RENDEZVOUS, "Argosy sets it for each rank"),
    "OMP_NUM_THREADS": "Argosy sets it to the cores of a rank",
    "SRUN_CPUS_PER_TASK": "Argosy passes the cores on to srun",
    "CUDA_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
    "ROCR_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
    "HIP_VISIBLE_DEVICES": "Slurm sets it; for a GPU of its own for each rank: sbatch_arg = ['--gpu-bind=single:1']",
}
HOST_PATHS = frozenset({"PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD", "CUDA_HOME"})
INSIDE = re.compile(r"(APPTAINERENV|SINGULARITYENV)_")
BINDS = frozenset({"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"})
PREFIX, ENVIRONMENT = re.compile(r"(/[^:$]+)/bin:"), re.compile(r"(/[^$]+?)(/bin/activate)?$")
"""Folder of a host's environment in a value of PATH, and in a command that activates it."""

ASSIGNED = re.compile(r"(?:^|[\s;])([A-Za-z_]\w*)=")
"""A variable that a loop or condition sets."""

FUNCTION = re.compile(r"(?:function\s+)?([\w:.-]+)\s*(?:\(\s*\))?\s*\{")
"""Beginning of the definition of a function."""

WRITES = re.compile(r"(?<![&\d>])>>?\s*(?![&>\s]|/dev/)")
"""A redirection of the output into a file."""

BLOCKS: Mapping[str, str] = {
    **dict.fromkeys(("for", "while", "until"), " in a loop"),
    **dict.fromkeys(("if", "case"), " in a condition"),
}
"""First word of a compound statement -> its description."""

NODES = re.compile(r"scontrol show hostname|hostname\b|SLURM_(JOB_)?NODELIST")
"""Commands that find the nodes of a job."""

SHELL = re.compile(r"#!\s*\S*(/env\s+(-\S+\s+)*)?(\S*/)?(ba|da|k|z)?sh\b")
"""First line of a job script."""


def read_script_text(path: Path) -> str:
    """Read the text of a job script.

    Raises
    ------
    UsageError
        When the file cannot be read, or is not a shell script.
    """
    with reading(path):
        data = path.read_bytes()
    first = data.split(b"\n", 1)[0].decode(errors="replace")
    if b"\0" in data or not SHELL.match(first):
        raise UsageError(
            f"{path} is not a job script of a shell",
            evidence="it is a binary file" if b"\0" in data else f"first line: {first[:WIDEST]!r}",
            hint="a job script begins with #!/bin/bash or #!/bin/sh",
        )
    return data.decode(errors="replace")


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
        If the script is a heterogeneous job.
    """
    script = read_job_script(text)
    refuse_heterogeneous(path, text, script)
    stem = re.sub(r"[^\w.-]+", "-", path.rsplit("/", 1)[-1].rsplit(".", 1)[0]).strip("-.") or "job"
    reader = _Reader(script, site or Site(), name or stem, is_named=bool(name))
    reader.read()
    return ImportedScript(path, tuple(reader.jobs), tuple(sorted(reader.found, key=lambda each: each.line)))


CONDITIONAL = "it depends on the result of the command before it: do it in the program, or write its job yourself"
WRITTEN = "it writes a file: if the job needs the file, write it before the launch"
NODE_FILE = "it writes a file of the nodes: Argosy's launchers do not need it; if the program does, write it there"
NO_PROGRAM = "it only prints, or controls the shell of the script"
PURPOSES: Mapping[Role, str] = {
    Role.PRINT: "it only prints",
    Role.CONTROL: "it controls the shell of the script",
    Role.TEST: "it only tests a condition",
}
"""Role -> the reason why a job does not need the command."""

SEVERAL = re.compile(r"--(nodes|ntasks(-per-node)?)=(?!1$)")
"""Options for several nodes or tasks."""

RUNTIME_MODULES = frozenset({"apptainer", "singularity", "singularityce", "singularity-ce"})
BIND_MODULE = re.compile(r"(?:lumi-aif-)?singularity-\w[\w-]*")
"""Modules of LUMI that only set SINGULARITY_BIND, for example singularity-userfilesystems."""


class _Reader:
    """Reads the statements of a script in order, and collects jobs and translations."""

    def __init__(self, script: JobScript, site: Site, name: str, *, is_named: bool) -> None:
        self.script = script
        self.profile = {setting.name: setting for setting in site.settings}
        self.site = site
        self.found: list[Translation] = []
        self.state = ShellState(keys={"site": site.name} if site.name else {})
        self.jobs: list[ImportedJob] = []
        self.modules: list[tuple[int, str]] = []
        self.activations: list[tuple[Statement, str]] = []
        self.functions: dict[str, str] = {}
        self.after_test = self.is_conditional = False
        self.name = name
        self.is_named = is_named

    def read(self) -> None:
        """Read the whole script."""
        options = translate_options(self.script.options, self.state.shape)
        self.state.shape, self.found = options.shape, list(options.translations)
        self.state.keys.update(options.keys)
        self.state.env.update(self.state.keys.pop("env", {}))
        own_name = re.sub(r"[^\w-]+", "-", options.keys.get("name", "")).strip("-")
        self.name = self.name if self.is_named else own_name or self.name
        for option in self.script.late_options:
            self.add(option.line, str(option), Fate.LEFT_OUT, "below the first command: sbatch does not read it")
        for statement in self.script.statements:
            self.read_statement(statement)
        bare = any(job.keys["image"].startswith(BARE_PREFIX) for job in self.jobs)
        for line, text in self.modules:
            self.add(line, text, *self.fate_of_modules(frozenset(text.split()[2:]), bare=bare))
        for statement, environment in self.activations:
            self.add(statement.line, statement.text, *self.fate_of_activation(environment, bare=bare))
        if self.jobs and all(job.keys["launcher"] == "none" for job in self.jobs):
            self.found = [_without_tasks(each) for each in self.found]

    def fate_of_modules(self, names: frozenset[str], *, bare: bool) -> tuple[Fate, str]:
        """Return what becomes of ``module load NAMES``, and why."""
        if bare:
            return Fate.UNTRANSLATED, "no container: load it in your shell, the job inherits it"
        plain = {name.partition("/")[0] for name in names}
        loaded = {name.partition("/")[0] for name in self.site.modules.load}
        if plain & RUNTIME_MODULES and not plain & loaded:
            return Fate.UNTRANSLATED, "the profile does not load it: add it to load in [modules] of the profile"
        if plain and plain <= loaded:
            return Fate.REPLACED, f"the profile of {self.site.name} loads it"
        if plain and self.site.binds and all(map(BIND_MODULE.fullmatch, plain)):
            return Fate.REPLACED, f"the profile of {self.site.name} mounts the folders of the host that jobs need"
        return Fate.LEFT_OUT, "the image has the software"

    def fate_of_activation(self, environment: str, *, bare: bool) -> tuple[Fate, str]:
        """Return what becomes of a command that activates an environment of the host, and why."""
        if not environment:
            return Fate.LEFT_OUT, "it prepares the shell of the script"
        if not bare:
            return Fate.UNTRANSLATED, f"the image must contain the packages of {environment}"
        if environment == self.state.prefix:
            return Fate.KEPT, f'image = "{BARE_PREFIX}{environment}"'
        return Fate.UNTRANSLATED, "no container: activate it in your shell, the job inherits it"

    def add(self, line: int, text: str, fate: Fate, note: str, *, end: int = 0, lost_programs: str = "") -> None:
        """Record a translation."""
        self.found.append(translate(line, text, fate, note, end=end, lost_programs=lost_programs))

    def read_statement(self, statement: Statement) -> None:
        """Translate one statement."""
        self.is_conditional = statement.condition == "||" or (
            statement.condition == "&&" and (self.is_conditional or self.after_test)
        )
        self.after_test = False
        match statement.kind:
            case "assignment" if self.is_conditional:
                self.state.conditional |= {name for name, _ in statement.assigned}
                self.add(statement.line, statement.text, Fate.UNTRANSLATED, CONDITIONAL)
            case "assignment":
                for name, words in statement.assigned:
                    self.assign(statement, name, words)
                if not statement.assigned:
                    self.add(statement.line, statement.text, Fate.LEFT_OUT, "it sets no variable")
            case "command":
                self.read_command(statement)
            case "compound":
                self.read_compound(statement)

    def assign(self, statement: Statement, name: str, words: tuple[Word, ...]) -> None:
        """Translate an assignment, or only remember its value if it is not exported."""
        inside = INSIDE.sub("", name)
        if inside in SET_BY_ARGOSY:
            return self.add(statement.line, statement.text, Fate.REPLACED, SET_BY_ARGOSY[inside])
        expanded = tuple(each for word in words for each in expand(_quoted(word), self.state.values))
        self.state.values[name] = expanded
        if not statement.exported:
            fate, note = self.fate_of_variable(statement, name, expanded)
            lost = self.lost_in_value(expanded) if fate is Fate.LEFT_OUT else ""
            if lost:
                fate, note = Fate.UNTRANSLATED, "it starts a program: write a job for it"
            return self.add(statement.line, statement.text, fate, note, lost_programs=lost)
        if inside == "PATH" and (found := PREFIX.match(" ".join(source_text(word) for word in expanded))):
            self.state.prefix = found[1]
        if inside in HOST_PATHS:
            return self.add(statement.line, statement.text, Fate.LEFT_OUT, "the image has its own paths")
        value = " ".join(source_text(word) for word in expanded)
        if name in BINDS:
            self.state.binds += [bind for bind in value.split(",") if bind]
            return self.add(statement.line, statement.text, Fate.KEPT, f"bind = {value}")
        return self.export(statement, inside, expanded, value)

    def lost_in_value(self, words: tuple[Word, ...]) -> str:
        """Name the programs that ``$(…)`` starts in a value which no job uses; ``python -c`` only computes a value."""
        texts = (computing_commands(part) for word in words for part in word)
        names = (started_programs(text, self.state.values) for text in texts if " -c " not in text)
        return " and ".join(name for name in names if name)

    def fate_of_variable(self, statement: Statement, name: str, words: tuple[Word, ...]) -> tuple[Fate, str]:
        """Return what becomes of a variable that is not exported, and why."""
        if any(part.kind == "shell" and NODES.search(part.text) for word in words for part in word):
            return Fate.REPLACED, "Argosy finds the nodes of the job"
        use = re.compile(rf"\$\{{?[#!]?{re.escape(name)}\b")
        users = [each for each in self.script.statements if each != statement and use.search(each.text)]
        if not users:
            return Fate.LEFT_OUT, "the script does not use it"
        if all(each.kind == "compound" for each in users):
            return Fate.LEFT_OUT, "only loops and conditions use it"
        return Fate.REPLACED, "its value is put where it is used"

    def export(self, statement: Statement, name: str, words: tuple[Word, ...], value: str) -> None:
        """Translate an exported variable."""
        setting = self.profile.get(name)
        if setting and setting.value == value and is_certain(setting, self.site, self.state.shape):
            return self.add(statement.line, statement.text, Fate.REPLACED, f"the profile of {self.site.name} sets it")
        if all(plain_text(word) is not None for word in words):
            self.state.env[name] = value
            other = f"; {describe_setting(setting, self.site)}" if setting else ""
            return self.add(statement.line, statement.text, Fate.KEPT, f'env.{name} = "{value}"{other}')
        if any(part.kind == "shell" for word in words for part in word):
            if NODES.search(value):
                return self.add(statement.line, statement.text, Fate.REPLACED, "Argosy finds the nodes of the job")
            note = "a command computes the value: set the variable yourself, and pass it with --env NAME"
            return self.add(statement.line, statement.text, Fate.UNTRANSLATED, note)
        self.state.prelude.append(f"export {name}={_double_quoted(words)}")
        return self.add(statement.line, statement.text, Fate.KEPT, "the shell of each rank sets it")

    def read_compound(self, statement: Statement) -> None:
        """Report a loop, a condition, a function or a here-document: it is not translated."""
        first = statement.text.split("\n", 1)[0]
        if first.startswith(("[", "((")) and not statement.commands:
            self.after_test = True
            return self.add(statement.line, first, Fate.LEFT_OUT, PURPOSES[Role.TEST])
        self.state.conditional |= set(ASSIGNED.findall(statement.text))
        harmless = self.harmless_functions()
        programs = started_programs(statement.text, self.state.values, harmless)
        if function := FUNCTION.match(statement.text):
            self.functions[function[1]] = programs
        roles = {ROLES.get(name.rsplit("/", 1)[-1], Role.PROGRAM) for name in {*statement.commands} - {*harmless}}
        self.after_test = Role.TEST in roles
        if not programs and NODES.search(statement.text):
            return self.add(statement.line, first, Fate.REPLACED, "Argosy finds the nodes of the job")
        if not programs and statement.commands and roles <= HARMLESS | {Role.MODULE}:
            fate = (Fate.UNTRANSLATED, WRITTEN) if WRITES.search(statement.text) else (Fate.LEFT_OUT, NO_PROGRAM)
            return self.add(statement.line, first, *fate)
        return self.report_block(statement, first, programs)

    def report_block(self, statement: Statement, first: str, programs: str) -> None:
        """Report a compound statement that the user has to translate."""
        kind = first.split(" ", 1)[0]
        lines = f"lines {statement.line} to {statement.end}" if statement.end > statement.line else "this line"
        hint = "; a loop over runs is a job array: --array" if kind in {"for", "while"} else ""
        if "<<" in statement.text and kind not in BLOCKS:
            hint = "; put the text into a file: the program reads it by < FILE"
        lost = programs and programs + BLOCKS.get(kind, "")
        note = f"translate {lines} yourself{hint}"
        self.add(statement.line, first, Fate.UNTRANSLATED, note, end=statement.end, lost_programs=lost)

    def read_command(self, statement: Statement) -> None:
        """Translate a command: the start of a program, preparation, or output."""
        text, program = statement.text, read_program(statement, self.state.values)
        first = source_text(statement.words[0]) if statement.words else ""
        role = classify(program, self.harmless_functions())
        self.after_test = role is Role.TEST
        if program.name in self.functions:
            return self.call_function(statement, program.name)
        if self.is_conditional and role not in HARMLESS:
            lost = program_name(program) if role in {Role.PROGRAM, Role.LOST} else ""
            return self.add(statement.line, text, Fate.UNTRANSLATED, CONDITIONAL, lost_programs=lost)
        if ACTIVATION.match(text):
            return self.activate(statement, first)
        return self.translate_role(statement, program, role)

    def translate_role(self, statement: Statement, program: Program, role: Role) -> None:
        """Translate a command by its role."""
        text = statement.text
        match role:
            case Role.PROGRAM:
                self.start(statement, program)
            case Role.LOST:
                note = program.obstacle or ADVICE.get(
                    program.name, "Argosy cannot translate it: write a job for each program"
                )
                self.add(statement.line, text, Fate.UNTRANSLATED, note, lost_programs=program_name(program))
            case Role.FOLDER:
                self.change_folder(statement)
            case Role.MODULE:
                self.modules.append((statement.line, text))
            case Role.PRINT if WRITES.search(statement.redirects):
                self.add(statement.line, text, Fate.UNTRANSLATED, NODE_FILE if NODES.search(text) else WRITTEN)
            case Role.CONTROL if program.name == "trap" and (signals := handled_signals(program.texts[1:])):
                note = f"the job passes {signals} to each rank: handle it in the program"
                self.add(statement.line, text, Fate.UNTRANSLATED, note)
            case Role.PRINT | Role.CONTROL | Role.TEST:
                self.add(statement.line, text, Fate.LEFT_OUT, PURPOSES[role])
            case Role.FILES if not self.jobs:
                self.prepare(statement, program)
            case _:
                self.add(statement.line, text, Fate.UNTRANSLATED, self.advise(program.name, role))

    def harmless_functions(self) -> list[str]:
        """Return the functions of the script that start no program."""
        return [name for name, programs in self.functions.items() if not programs]

    def call_function(self, statement: Statement, name: str) -> None:
        """Translate the call of a function of the script."""
        if programs := self.functions[name]:
            note = f"the function {name} starts it: write a job for each program"
            return self.add(statement.line, statement.text, Fate.UNTRANSLATED, note, lost_programs=programs)
        return self.add(statement.line, statement.text, Fate.LEFT_OUT, f"the function {name} starts no program")

    def activate(self, statement: Statement, first: str) -> None:
        """Remember an activated environment."""
        words = [source_text(each) for word in statement.words[1:] for each in expand(word, self.state.values)]
        found = next((found[1] for word in words if (found := ENVIRONMENT.match(word))), self.state.prefix)
        self.state.prefix = found
        self.activations.append((statement, environment_of(first, words)))

    def advise(self, name: str, role: Role) -> str:
        """Return what to do about a command that is not translated."""
        if role is Role.SOURCE:
            return "the file is not read: put its variables into env; a program that it starts needs its own job"
        if role is Role.INSTALL:
            return ADVICE.get(name, "add the packages to the environment file of the image")
        if self.jobs:
            return "it runs after the program: make it a separate job with --after"
        return "if the job needs it, add it to before = [...]"

    def change_folder(self, statement: Statement) -> None:
        """Translate ``cd``."""
        words = [each for word in statement.words[1:] for each in expand(word, self.state.values)]
        folder = source_text(words[0]) if words else "~"
        if folder.startswith(("/", "$", "~")):
            self.state.keys.pop("chdir", None)
            self.state.prelude = [each for each in self.state.prelude if not each.startswith("cd ")]
        below = SUBMIT_FOLDER.sub(".", folder)
        if below == ".":
            self.add(statement.line, statement.text, Fate.REPLACED, "Argosy starts in the folder of the launch")
        elif below != folder and "$" not in below:
            self.state.keys["chdir"] = below
            self.add(statement.line, statement.text, Fate.KEPT, f'chdir = "{below}"')
        elif folder.startswith("/") and "$" not in folder:
            self.state.keys["chdir"] = folder
            self.add(statement.line, statement.text, Fate.KEPT, f'chdir = "{folder}"')
        elif all(part.kind != "shell" for word in words for part in word):
            self.state.prelude.append(f"cd {_double_quoted(tuple(words))}")
            self.add(statement.line, statement.text, Fate.KEPT, "the shell of each rank changes the folder")
        else:
            self.add(statement.line, statement.text, Fate.UNTRANSLATED, "set chdir to the folder")

    def prepare(self, statement: Statement, program: Program) -> None:
        """Translate a command on files before the program into ``before``."""
        if any(part.kind == "shell" and "$" in part.text for word in program.words for part in word):
            note = "a command computes a part of it: do it in the program"
            self.add(statement.line, statement.text, Fate.UNTRANSLATED, note)
            return
        line = shell_line(program.words)
        self.state.before.append(line)
        self.add(statement.line, statement.text, Fate.KEPT, f"before = {line}")

    def start(self, statement: Statement, program: Program) -> None:
        """Translate the start of a program into a job."""
        name = f"{self.name}-{len(self.jobs) + 1}" if self.jobs else self.name
        job, translations = make_job(name, statement, program, self.state)
        self.found += translations
        if self.jobs and not statement.background:
            note = f"it runs after line {self.jobs[-1].line}: launch {name} with --after and the number of that job"
            self.add(statement.line, f"[job.{name}]", Fate.UNTRANSLATED, note)
        self.jobs.append(job)


def _without_tasks(option: Translation) -> Translation:
    """Correct the translation of ``--nodes`` and ``--ntasks`` in a script that has no launcher."""
    if not SEVERAL.match(option.text) or option.fate is not Fate.KEPT:
        return option
    return replace(option, fate=Fate.LEFT_OUT, note="the script starts its program once, on the first node")


def _quoted(word: Word) -> Word:
    """Return a word of an assignment: the shell does not split it."""
    return tuple(Part(part.kind, part.text, part.default, quoted=True) for part in word)


def _double_quoted(words: tuple[Word, ...]) -> str:
    """Render words for sh in double quotes, with their variables."""
    parts = [
        re.sub(r'(["\\`$])', r"\\\1", part.text) if part.kind == "text" else f"${{{part.text}}}"
        for word in words
        for part in word
    ]
    return '"' + "".join(parts) + '"'
