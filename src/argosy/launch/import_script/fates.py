"""Decide what becomes of single statements: modules, environments, files, signals, GPU wrappers; and say why; pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from argosy.core.model import BARE_PREFIX
from argosy.core.records import replace
from argosy.launch.import_script.classify import handled_signals, is_unknown
from argosy.launch.import_script.environment import RENDEZVOUS
from argosy.launch.import_script.model import Fate, Outcome
from argosy.launch.import_script.program import Role, ScriptProgram
from argosy.launch.import_script.variables import NODES
from argosy.sites.profile import Site
from argosy.slurm.bash_tree import without_texts
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import source_text

BLOCKS: Mapping[str, str] = {
    **dict.fromkeys(("for", "while", "until"), " in a loop"),
    **dict.fromkeys(("if", "case"), " in a condition"),
}
"""First word of a compound statement -> its description."""

WRITES = re.compile(r"(?<![&\d>])>>?\s*(?![&>\s]|/dev/)|\btee\s+(?!/dev/)")
"""Output that goes into a file."""

EXPORT = re.compile(r"\bexport\s|\b(declare|typeset)\s+-\w*x")
RENDEZVOUS_EXPORT = re.compile(rf"\bexport\s+({'|'.join(RENDEZVOUS)})\b")
"""An assignment in a loop or condition that a job does not need, because Argosy sets the variable."""

CONDITIONAL = "it depends on the result of the command before it: do it in the program, or write its job yourself"
ENDED = "the script ends before it"
ENDS = "the script can end here: check the condition before the launch, or in the program"
EXPORTS = "a condition decides whether later variables are exported: export those that the program needs"
WAITS = "Argosy does not know for which programs it waits: launch the jobs that need them with --after"
UNEXPORTS = re.compile(r"export\s+-\w*n|(declare|typeset)\s+\+\w*x")
UNEXPORTED = "the program does not get the variable: unset it in the program"
PATTERNS = re.compile(r"shopt\s+-\w*s.*\b(null|fail|ext|dot|nocase)glob|shopt.*globstar|set\s.*(-[a-z]*f\b|noglob)")
"""Commands that change the expansion of words."""

WRITTEN = "it writes a file: if the job needs the file, write it before the launch"
WRITTEN_IN_JOB = "it writes a file whose name or text only the job knows: add the command to before = [...]"
HOST_NAME = re.compile(r"\$\(hostname\b[^()]*\)|`hostname\b[^`]*`")
"""The name of the node as a part of another text, for example of a line of results."""

HOST_FILE = re.compile(r"(>|\btee\b)\s*[^\s>]*(host|node|machine)(?!name\b)")
"""A file of the nodes by its name, for example ``> hostfile``."""

OF_JOB = re.compile(r"\$\{?SLURM_")
NODE_FILE = "it writes a file of the nodes: Argosy's launchers do not need it; if the program does, write it there"
PURPOSES: Mapping[Role, str] = {
    Role.PRINT: "it only prints",
    Role.CONTROL: "it controls the shell of the script",
    Role.TEST: "it only tests a condition",
}
"""Role -> the reason why a job does not need the command."""

NO_WRAPPER = "the shell of each rank selects its GPU, as this script does"

WRAPPER_DOCUMENT = re.compile(r"cat\b[^\n]*<<-?\s*\\?['\"]?(\w+)['\"]?[^\n]*\n(?P<body>.*)\n\s*\1\s*", re.DOTALL)
WRAPPER_FILE = re.compile(r"(?<!<)>\s*(?P<name>[^\s<>]+)")
WRAPPER_BODY = re.compile(
    r"(?:\s*#[^\n]*\n|\s*\n)*"
    r"\s*(?:export\s+)?(?P<variable>(?:ROCR|HIP|CUDA)_VISIBLE_DEVICES)=\\?\$(?:SLURM_LOCALID|\{SLURM_LOCALID\})\s*\n"
    r"(?:\s*#[^\n]*\n|\s*\n)*"
    r"\s*exec\s+\"?\\?\$[*@]\"?\s*"
)


def effect_of(program: ScriptProgram) -> str:
    """Return what a command that controls the shell does for the program, and what to do; empty if nothing."""
    if PATTERNS.match(" ".join(program.texts)):
        return "it changes how the shell reads * and other signs"
    if program.name == "alias" and program.words[1:]:
        return "it gives a command another name: write the command where the script uses the name"
    signals = handled_signals(program.texts[1:]) if program.name == "trap" else ""
    return f"the job passes {signals} to each rank: handle it in the program" if signals else ""


def fate_of_harmless(statement: Statement, *, can_end: bool) -> Outcome:
    """Return what becomes of a compound statement that starts no program; `can_end`: ``exit`` may end the script."""
    if can_end and "exit" in statement.commands:
        return Outcome(Fate.UNTRANSLATED, ENDS)
    if WRITES.search(without_texts(statement.text)):
        return Outcome(Fate.UNTRANSLATED, written_file(statement))
    return Outcome(Fate.LEFT_OUT, "it only prints, or controls the shell of the script")


def written_file(statement: Statement) -> str:
    """Return what to do about a command that writes a file."""
    text = statement.text
    if NODES.search(text if HOST_FILE.search(text) else HOST_NAME.sub("", text)):
        return NODE_FILE
    return WRITTEN_IN_JOB if OF_JOB.search(text) or HOST_NAME.search(text) else WRITTEN


ADVICE = {
    "ray": "Argosy starts Ray on all nodes: set launcher = ray in the job of the program",
    **dict.fromkeys(
        ("apptainer", "singularity", "bsc_singularity", "docker", "podman", "podman-hpc", "shifterimg"),
        "do it once before the launch: build the image with argosy build, or pull it",
    ),
    "sbatch": "it submits another script: import that script, too",
}
"""Name of a command that is not translated -> what to do."""


def advise(name: str, role: Role, *, is_late: bool) -> str:
    """Return what to do about a command that is not translated; `is_late`: it is behind a program."""
    if role is Role.SOURCE:
        return "the file is not read: put its variables into env; a program that it starts needs its own job"
    if role is Role.INSTALL:
        return ADVICE.get(name, "add the packages to the environment file of the image")
    if is_late:
        return "it runs after the program: make it a separate job with --after"
    return "if the job needs it, add it to before = [...]"


def advise_on_lost(program: ScriptProgram) -> str:
    """Return what to do about a command that starts a program which Argosy cannot translate."""
    if program.words and is_unknown(program.words[0]):
        usual = f"the script does not say which program {program.texts[0]} is: write its name"
    else:
        usual = "Argosy cannot translate it: write a job for each program"
    return program.obstacle or ADVICE.get(program.name, usual)


HEAD = re.compile(r"(?:.|\n)*?\bdo\b")
ARGUMENTS = re.compile(r"\$\{?[#@*1-9]|\bgetopts\b|^for\s+\w+\s*(;|$)", re.MULTILINE)
"""The condition of a loop, and the arguments of the script in it; ``for NAME`` without ``in`` reads them, too."""


def advise_on_loop(statement: Statement) -> str:
    """Return what to do about a ``for`` or ``while`` loop."""
    head = HEAD.match(without_texts(statement.text))
    if (head and ARGUMENTS.search(head[0])) or "shift" in statement.commands:
        return "; it reads the arguments of the script: write the values into the table"
    return "; a loop over runs is a job array: --array"


RUNTIME_MODULES = frozenset({"apptainer", "singularity", "singularityce", "singularity-ce"})
BIND_MODULE = re.compile(r"(?:lumi-aif-)?singularity-\w[\w-]*")
"""Modules of LUMI that only set SINGULARITY_BIND, for example singularity-userfilesystems."""

PRINTING = frozenset({"list", "avail", "av", "spider", "show", "display", "whatis", "help", "keyword", "key"})
"""Commands of ``module`` that only print."""


def only_prints(command: Sequence[str]) -> bool:
    """Return whether a command of ``module`` or ``ml`` only prints, for example ``module -t list``."""
    name, *arguments = command
    words = [each for each in arguments if not each.startswith("-")]
    return words[0] in PRINTING if words else name in {"module", "ml"}


def fate_of_modules(names: frozenset[str], site: Site, *, bare: bool) -> Outcome:
    """Return what becomes of ``module load NAMES``; a `bare` job has no container."""
    if bare:
        return Outcome(Fate.UNTRANSLATED, "no container: load it in your shell, the job inherits it")
    plain = {name.partition("/")[0] for name in names}
    loaded = {name.partition("/")[0] for name in site.modules.load}
    if plain & RUNTIME_MODULES and not plain & loaded:
        return Outcome(Fate.UNTRANSLATED, "the profile does not load it: add it to load in [modules] of the profile")
    if plain and plain <= loaded:
        return Outcome(Fate.REPLACED, f"the profile of {site.name} loads it")
    if plain and site.binds and all(map(BIND_MODULE.fullmatch, plain)):
        return Outcome(Fate.REPLACED, f"the profile of {site.name} mounts the folders of the host that jobs need")
    return Outcome(Fate.LEFT_OUT, "the image has the software")


def fate_of_activation(environment: str, prefix: str, *, bare: bool) -> Outcome:
    """Return what becomes of a command that activates an environment; `prefix` is that of the jobs."""
    if not environment:
        return Outcome(Fate.LEFT_OUT, "it prepares the shell of the script")
    if not bare:
        return Outcome(Fate.UNTRANSLATED, f"the image must contain the packages of {environment}")
    if environment == prefix:
        return Outcome(Fate.KEPT, f'image = "{BARE_PREFIX}{environment}"')
    return Outcome(Fate.UNTRANSLATED, "no container: activate it in your shell, the job inherits it")


def fate_of_host_path(images: Collection[str], guess: str) -> Outcome:
    """Return what becomes of PATH and the like; `guess` is the folder that PATH names first, if it becomes an image."""
    if guess and f"{BARE_PREFIX}{guess}" in images:
        return Outcome(
            Fate.KEPT, f'image = "{BARE_PREFIX}{guess}": if it has no bin/python, choose another environment'
        )
    if any(image.startswith(BARE_PREFIX) for image in images):
        return Outcome(Fate.KEPT, "the shell of each rank sets it")
    return Outcome(Fate.LEFT_OUT, "the image has its own paths")


class GpuWrapper(msgspec.Struct, frozen=True):
    """A script that sets the variable of visible GPUs to the rank's number on its node, and executes its arguments.

    An example is ``select_gpu`` in LUMI's documentation: the job script writes it, makes it executable, and starts the
    program with it (https://docs.lumi-supercomputer.eu/runjobs/scheduled-jobs/lumig-job/).
    """

    name: str
    """Its path as the job script writes it, without ``./``."""
    variable: str


def read_gpu_wrapper(text: str) -> GpuWrapper | None:
    """Read ``cat << EOF > FILE`` if it writes such a script."""
    document = WRAPPER_DOCUMENT.fullmatch(text.strip())
    target = WRAPPER_FILE.search(text.split("\n", 1)[0])
    body = WRAPPER_BODY.fullmatch(document["body"]) if document else None
    return GpuWrapper(_plain(target["name"]), body["variable"]) if body and target else None


def without_wrapper(statement: Statement, wrappers: Mapping[str, GpuWrapper]) -> tuple[Statement, GpuWrapper | None]:
    """Return a command without the script that selects the GPU, and that script; None if it does not start one."""
    for at, word in enumerate(statement.words):
        if _plain(source_text(word)) in wrappers and statement.words[at + 1 :] and "srun" in _names(statement, at):
            words = (*statement.words[:at], *statement.words[at + 1 :])
            return replace(statement, words=words), wrappers[_plain(source_text(word))]
    return statement, None


def set_visible_gpu(program: ScriptProgram, wrapper: GpuWrapper) -> None:
    """Let the shell of each rank set the variable."""
    line = f"export {wrapper.variable}=$SLURM_LOCALID"
    program.prelude.append(line)
    program.replaced.append(f"./{wrapper.name}: the shell of each rank runs '{line}'")


def is_about_wrapper(program: ScriptProgram, wrappers: Mapping[str, GpuWrapper]) -> bool:
    """Return whether a command only makes these scripts executable, or removes them."""
    files = [
        _plain(each)
        for each in program.texts[1:]
        if each[:1] not in {"-", "+"} and not re.match(r"[ugoa]*[+=]|\d+$", each)
    ]
    return program.name in {"chmod", "rm"} and bool(files) and all(each in wrappers for each in files)


def _names(statement: Statement, end: int) -> set[str]:
    return {source_text(word) for word in statement.words[:end]}


def _plain(path: str) -> str:
    """Return a path in one form: ``$DIR/select_gpu`` for ``"${DIR}"/select_gpu``."""
    return re.sub(r"\$\{(\w+)\}", r"$\1", re.sub("[\"']", "", path)).removeprefix("./")
