"""Translate a hand-written job script into jobs of ``argosy.toml``, and say what became of each of its lines; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from argosy.core.errors import UsageError
from argosy.core.model import BARE_PREFIX
from argosy.core.os_errors import reading
from argosy.core.script_reader import JobScript, Part, Statement, Word, expand, plain_text, read_job_script, source_text
from argosy.launch.import_script.heterogeneous import refuse_heterogeneous
from argosy.launch.import_script.model import Fate, ImportedJob, ImportedScript, Translation
from argosy.launch.import_script.options import Shape, shape_keys, translate_options
from argosy.launch.import_script.program import Program, command_of, shell_line
from argosy.launch.import_script.programs import (
    ACTIVATION,
    CONTROL,
    INSTALLERS,
    PRINTS,
    environment_of,
    program_name,
    read_program,
    started_programs,
    starts_program,
    unread_program,
)
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
    "CUDA_VISIBLE_DEVICES": "Argosy gives each rank its GPUs",
    "ROCR_VISIBLE_DEVICES": "Argosy gives each rank its GPUs",
    "HIP_VISIBLE_DEVICES": "Argosy gives each rank its GPUs",
}
HOST_PATHS = frozenset({"PATH", "LD_LIBRARY_PATH", "CONDA_PREFIX", "VIRTUAL_ENV", "LD_PRELOAD", "CUDA_HOME"})
MODULES = frozenset({"module", "ml", "spack"})
INSIDE = re.compile(r"(APPTAINERENV|SINGULARITYENV)_")
BINDS = frozenset({"APPTAINER_BIND", "APPTAINER_BINDPATH", "SINGULARITY_BIND", "SINGULARITY_BINDPATH"})
PREFIX, ENVIRONMENT = re.compile(r"(/[^:$]+)/bin:"), re.compile(r"(/[^$]+?)(/bin/activate)?$")
"""Folder of a host's environment in a value of PATH, and in a command that activates it."""

ASSIGNED = re.compile(r"(?:^|[\s;])([A-Za-z_]\w*)=")
"""A variable that a loop or condition sets."""

ARGUMENT = re.compile(r"\$\{?[\d@*#]")
"""An argument of the job script itself."""

BLOCKS: Mapping[str, str] = {
    **dict.fromkeys(("for", "while", "until"), " in a loop"),
    **dict.fromkeys(("if", "case"), " in a condition"),
}
"""First word of a compound statement -> its description."""

FILES = frozenset("mkdir cp rsync ln touch tar unzip".split())  # noqa: SIM905
"""Commands on files that Argosy can run once before the ranks start."""

NODES = re.compile(r"scontrol show hostname|hostname\b|SLURM_(JOB_)?NODELIST")
"""Commands that find the nodes of a job."""

SHELL = re.compile(r"#!\s*\S*(/env\s+(-\S+\s+)*)?(\S*/)?(ba|da|k|z)?sh\b")
"""First line of a job script."""

WIDEST = 60
"""Longest text of a statement in a translation, in characters."""


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
    reader = _Reader(script, site or Site())
    reader.read()
    stem = re.sub(r"[^\w.-]+", "-", path.rsplit("/", 1)[-1].rsplit(".", 1)[0]).strip("-.") or "job"
    first = name or re.sub(r"[^\w-]+", "-", reader.keys.get("name", "")).strip("-") or stem
    jobs = tuple(
        ImportedJob(first if not number else f"{first}-{number + 1}", keys, *start)
        for number, (keys, start) in enumerate(zip(reader.jobs, reader.starts, strict=True))
    )
    return ImportedScript(path, jobs, tuple(sorted(reader.found, key=lambda each: each.line)))


SUBMIT_FOLDER = re.compile(r"\A\$(?:\{(?:PWD|SLURM_SUBMIT_DIR)\}|(?:PWD|SLURM_SUBMIT_DIR)\b)")
"""The folder of the launch, as a job script writes it; a relative path in argosy.toml begins there."""


RUNTIME_MODULES = frozenset({"apptainer", "singularity", "singularityce", "singularity-ce"})
BIND_MODULE = re.compile(r"(?:lumi-aif-)?singularity-\w[\w-]*")
"""Modules of LUMI that only set SINGULARITY_BIND, for example singularity-userfilesystems."""


class _Reader:
    """Reads the statements of a script in order, and collects jobs and translations."""

    def __init__(self, script: JobScript, site: Site) -> None:
        self.script = script
        self.profile = {setting.name: setting for setting in site.settings}
        self.site = site
        self.found: list[Translation] = []
        self.keys: dict[str, Any] = {"site": site.name} if site.name else {}
        self.shape = Shape()
        self.values: dict[str, tuple[Word, ...]] = {}
        self.env: dict[str, str] = {}
        self.prelude: list[str] = []
        self.binds: list[str] = []
        self.before: list[str] = []
        self.jobs: list[dict[str, Any]] = []
        self.starts: list[tuple[int, str]] = []
        self.modules: list[tuple[int, str]] = []
        self.activations: list[tuple[Statement, str]] = []
        self.prefix = ""
        self.conditional: set[str] = set()

    def read(self) -> None:
        """Read the whole script."""
        options = translate_options(self.script.options, self.shape)
        self.shape, self.found = options.shape, list(options.translations)
        self.keys.update(options.keys)
        for option in self.script.late_options:
            self.say(option.line, str(option), Fate.LEFT_OUT, "below the first command: sbatch does not read it")
        for statement in self.script.statements:
            self.read_statement(statement)
        bare = any(job["image"].startswith(BARE_PREFIX) for job in self.jobs)
        for line, text in self.modules:
            self.say(line, text, *self.fate_of_modules(frozenset(text.split()[2:]), bare=bare))
        for statement, environment in self.activations:
            self.say(statement.line, statement.text, *self.fate_of_activation(environment, bare=bare))

    def fate_of_modules(self, names: frozenset[str], *, bare: bool) -> tuple[Fate, str]:
        """Return what becomes of ``module load NAMES``, and why."""
        if bare:
            return Fate.NOT_READ, "no container: load it in your shell, the job inherits it"
        plain = {name.partition("/")[0] for name in names}
        loaded = {name.partition("/")[0] for name in self.site.modules.load}
        if plain & RUNTIME_MODULES and not plain & loaded:
            return Fate.NOT_READ, "the profile does not load it: add it to load in [modules] of the profile"
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
            return Fate.NOT_READ, f"the image must contain the packages of {environment}"
        if environment == self.prefix:
            return Fate.KEPT, f'image = "{BARE_PREFIX}{environment}"'
        return Fate.NOT_READ, "no container: activate it in your shell, the job inherits it"

    def say(self, line: int, text: str, fate: Fate, note: str, *, end: int = 0, starts: str = "") -> None:
        """Record a translation."""
        shown = re.sub(r"\s*\\?\n\s*", " ", text)
        shown = shown if len(shown) <= WIDEST else f"{shown[: WIDEST - 1]}…"
        self.found.append(Translation(line, shown, fate, note, end, starts))

    def read_statement(self, statement: Statement) -> None:
        """Translate one statement."""
        match statement.kind:
            case "assignment":
                for name, words in statement.assigned:
                    self.assign(statement, name, words)
                if not statement.assigned:
                    self.say(statement.line, statement.text, Fate.LEFT_OUT, "it sets no variable")
            case "command":
                self.read_command(statement)
            case "compound":
                self.read_compound(statement)

    def assign(self, statement: Statement, name: str, words: tuple[Word, ...]) -> None:
        """Translate an assignment, or only remember its value if it is not exported."""
        inside = INSIDE.sub("", name)
        if inside in SET_BY_ARGOSY:
            return self.say(statement.line, statement.text, Fate.REPLACED, SET_BY_ARGOSY[inside])
        expanded = tuple(each for word in words for each in expand(_quoted(word), self.values))
        self.values[name] = expanded
        if not statement.exported:
            return self.say(statement.line, statement.text, *self.fate_of_variable(statement, name, expanded))
        if inside == "PATH" and (found := PREFIX.match(" ".join(source_text(word) for word in expanded))):
            self.prefix = found[1]
        if inside in HOST_PATHS:
            return self.say(statement.line, statement.text, Fate.LEFT_OUT, "the image has its own paths")
        value = " ".join(source_text(word) for word in expanded)
        if name in BINDS:
            self.binds += [bind for bind in value.split(",") if bind]
            return self.say(statement.line, statement.text, Fate.KEPT, f"bind = {value}")
        return self.export(statement, inside, expanded, value)

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
        if setting and setting.value == value and is_certain(setting, self.site, self.shape):
            return self.say(statement.line, statement.text, Fate.REPLACED, f"the profile of {self.site.name} sets it")
        if all(plain_text(word) is not None for word in words):
            self.env[name] = value
            other = f"; {describe_setting(setting, self.site)}" if setting else ""
            return self.say(statement.line, statement.text, Fate.KEPT, f'env.{name} = "{value}"{other}')
        if any(part.kind == "shell" for word in words for part in word):
            if NODES.search(value):
                return self.say(statement.line, statement.text, Fate.REPLACED, "Argosy finds the nodes of the job")
            note = "a command computes the value: set the variable yourself, and pass it with env = NAME"
            return self.say(statement.line, statement.text, Fate.NOT_READ, note)
        self.prelude.append(f"export {name}={_double_quoted(words)}")
        return self.say(statement.line, statement.text, Fate.KEPT, "the shell of each rank sets it")

    def read_compound(self, statement: Statement) -> None:
        """Report a loop, a condition or a function: it is not translated."""
        self.conditional |= set(ASSIGNED.findall(statement.text))
        first = statement.text.split("\n", 1)[0]
        kind = first.split(" ", 1)[0]
        if (
            statement.commands
            and {name.rsplit("/", 1)[-1] for name in statement.commands} <= PRINTS | CONTROL | MODULES
        ):
            return self.say(statement.line, first, Fate.LEFT_OUT, "it only prints, or controls the shell of the script")
        programs = started_programs(statement.text, self.values)
        if NODES.search(statement.text) and not programs:
            return self.say(statement.line, first, Fate.REPLACED, "Argosy finds the nodes of the job")
        lines = f"lines {statement.line} to {statement.end}" if statement.end > statement.line else "this line"
        hint = "; a loop over runs is a job array: --array" if kind in {"for", "while"} else ""
        starts = programs and programs + BLOCKS.get(kind, "")
        note = f"translate {lines} yourself{hint}"
        return self.say(statement.line, first, Fate.NOT_READ, note, end=statement.end, starts=starts)

    def read_command(self, statement: Statement) -> None:
        """Translate a command: the start of a program, preparation, or output."""
        text, program = statement.text, read_program(statement, self.values)
        first = source_text(statement.words[0]) if statement.words else ""
        if first in MODULES:
            self.modules.append((statement.line, text))
        elif ACTIVATION.match(text):
            words = [source_text(each) for word in statement.words[1:] for each in expand(word, self.values)]
            self.prefix = next((found[1] for word in words if (found := ENVIRONMENT.match(word))), self.prefix)
            self.activations.append((statement, environment_of(first, words)))
        elif first == "cd":
            self.change_folder(statement)
        elif program.name in PRINTS:
            self.say(statement.line, text, Fate.LEFT_OUT, "it only prints")
        elif program.name in CONTROL:
            self.say(statement.line, text, Fate.LEFT_OUT, "it controls the shell of the script")
        elif program.is_start and not program.words and not program.unread:
            self.say(statement.line, text, Fate.LEFT_OUT, "it starts no program")
        elif program.is_start or starts_program(program):
            self.start(statement, program)
        elif program.name in FILES and not self.jobs:
            self.prepare(statement, program)
        else:
            note, starts = self.advise(first), unread_program(program)
            self.say(statement.line, text, Fate.NOT_READ, note, end=statement.end, starts=starts)

    def advise(self, name: str) -> str:
        """Return what to do about a command that is not translated."""
        if name in {"source", "."}:
            return "the file is not read: put its variables into env"
        if name in INSTALLERS:
            return "add the packages to the environment file of the image"
        if self.jobs:
            return "it runs after the program: make it a separate job with --after"
        return "if the job needs it, add it to before = [...]"

    def change_folder(self, statement: Statement) -> None:
        """Translate ``cd``."""
        words = [each for word in statement.words[1:] for each in expand(word, self.values)]
        folder = source_text(words[0]) if words else "~"
        below = SUBMIT_FOLDER.sub(".", folder)
        if below == ".":
            self.say(statement.line, statement.text, Fate.REPLACED, "Argosy starts in the folder of the launch")
        elif below != folder and "$" not in below:
            self.keys["chdir"] = below
            self.say(statement.line, statement.text, Fate.KEPT, f'chdir = "{below}"')
        elif folder.startswith("/") and "$" not in folder:
            self.keys["chdir"] = folder
            self.say(statement.line, statement.text, Fate.KEPT, f'chdir = "{folder}"')
        elif all(part.kind != "shell" for word in words for part in word):
            self.prelude.append(f"cd {_double_quoted(tuple(words))}")
            self.say(statement.line, statement.text, Fate.KEPT, "the shell of each rank changes the folder")
        else:
            self.say(statement.line, statement.text, Fate.NOT_READ, "set chdir to the folder")

    def prepare(self, statement: Statement, program: Program) -> None:
        """Translate a command on files before the program into ``before``."""
        if any(part.kind == "shell" and "$" in part.text for word in program.words for part in word):
            note = "a command computes a part of it: do it in the program"
            self.say(statement.line, statement.text, Fate.NOT_READ, note)
            return
        line = shell_line(program.words)
        self.before.append(line)
        self.say(statement.line, statement.text, Fate.KEPT, f"before = {line}")

    def start(self, statement: Statement, program: Program) -> None:
        """Translate the start of a program into a job."""
        if not program.words:
            for note in program.unread:
                self.say(statement.line, statement.text, Fate.NOT_READ, note, starts="a program")
            return
        step = translate_options(program.step_options, self.shape, of_step=True)
        launcher = program.launcher or "none"
        program.prelude[:0] = self.prelude
        command, by_shell = command_of(program)
        keys: dict[str, Any] = {**self.keys, **step.keys}
        keys |= shape_keys(step.shape, launcher, program.processes)
        keys |= {key: value for key, value in program.keys.items() if key != "env"}
        keys["bind"] = self.plain_binds(statement, (*self.binds, *program.keys.get("bind", [])))
        keys["env"] = {**self.env, **self.plain_variables(statement, program.keys.get("env", {}))}
        keys["before"] = list(self.before)
        keys["image"] = self.plain_path(statement, "image", program.keys.get("image", f"{BARE_PREFIX}{self.prefix}"))
        if "$" in self.plain_path(statement, "workdir", keys.get("workdir", "")):
            del keys["workdir"]
        keys["launcher"], keys["command"] = launcher, command
        self.jobs.append({key: value for key, value in keys.items() if value})
        self.starts.append((statement.line, program_name(program)))
        self.report_start(statement, program, keys, by_shell=by_shell)
        self.found += [each for each in step.translations if each.fate is not Fate.KEPT]

    def plain_path(self, statement: Statement, key: str, path: str) -> str:
        """Return a path without the folder of the launch; report one that other variables complete."""
        plain = SUBMIT_FOLDER.sub(".", path) if key == "image" else path
        if "$" in plain:
            self.say(statement.line, f"{key} {path}", Fate.NOT_READ, "the shell sets the variable: write the path")
        return plain

    def plain_binds(self, statement: Statement, binds: Iterable[str]) -> list[str]:
        """Return the bind mounts whose paths are known now; argosy.toml has no variables."""
        plain = [SUBMIT_FOLDER.sub(".", bind) for bind in binds]
        for bind in (bind for bind in plain if "$" in bind):
            self.say(statement.line, f"bind {bind}", Fate.NOT_READ, "the shell sets the variable: write the path")
        return [bind for bind in plain if "$" not in bind]

    def plain_variables(self, statement: Statement, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the container whose values are known now."""
        for name, value in variables.items():
            if "$" in value:
                note = "the job computes the value: set it in the program, which sees the job's SLURM_* variables"
                self.say(statement.line, f"{name}={value}", Fate.NOT_READ, note)
        return {name: value for name, value in variables.items() if "$" not in value}

    def report_start(self, statement: Statement, program: Program, keys: Mapping[str, Any], *, by_shell: bool) -> None:
        """Record the translation of a program's start, and of what it leaves open."""
        note = f"launcher = {keys['launcher']}, command = {' '.join(keys['command'])}"
        self.say(statement.line, statement.text, Fate.KEPT, note)
        for each in program.replaced:
            self.say(statement.line, each.partition(": ")[0], Fate.REPLACED, each.partition(": ")[2])
        for each in program.unread:
            self.say(statement.line, each.partition(": ")[0], Fate.NOT_READ, each.partition(": ")[2])
        if "$" in keys["image"]:
            self.say(statement.line, keys["image"], Fate.NOT_READ, "the script does not set it: write the image's path")
        for part in (part for word in program.words if by_shell for part in word if part.kind == "shell"):
            is_argument = ARGUMENT.match(part.text)
            note = "an argument of the script: write its value" if is_argument else "a shell computes it in each rank"
            self.say(statement.line, part.text, Fate.NOT_READ, note)
        for name in sorted({part.text for word in program.words for part in word if part.kind == "variable"}):
            if name in self.conditional:
                note = "a loop or condition sets it: write its value, or set it in the program"
                self.say(statement.line, f"${name}", Fate.NOT_READ, note)
        if statement.redirects:
            note = "the output goes to the job's output file; set output to change it"
            self.say(statement.line, statement.redirects, Fate.LEFT_OUT, note)
        if statement.background:
            note = "Argosy makes a separate job of each program that runs at the same time"
            self.say(statement.line, "&", Fate.NOT_READ, note)


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
