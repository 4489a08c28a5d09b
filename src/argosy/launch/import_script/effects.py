"""The effects of single statements of a job script on its job, and the reasons that an import gives; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from argosy.core.records import replace
from argosy.launch.import_script.classify import handled_signals
from argosy.launch.import_script.model import Fate, Translation
from argosy.launch.import_script.program import Program
from argosy.launch.import_script.roles import Role
from argosy.launch.import_script.settings import RENDEZVOUS
from argosy.launch.import_script.variables import NODES
from argosy.slurm.script_reader import Statement

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
UNEXPORTS = re.compile(r"export\s+-\w*n|(declare|typeset)\s+\+\w*x")
UNEXPORTED = "the program does not get the variable: unset it in the program"
PATTERNS = re.compile(r"shopt\s+-\w*s.*\b(null|fail|ext|dot|nocase)glob|shopt.*globstar|set\s.*(-[a-z]*f\b|noglob)")
"""Commands that change the expansion of words."""

WRITTEN = "it writes a file: if the job needs the file, write it before the launch"
WRITTEN_IN_JOB = "it writes a file whose name or text only the job knows: add the command to before = [...]"
OF_JOB = re.compile(r"\$\{?SLURM_")
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


def effect_of(program: Program) -> str:
    """Return what a command that controls the shell does for the program, and what to do; empty if nothing."""
    if PATTERNS.match(" ".join(program.texts)):
        return "it changes how the shell reads * and other signs"
    if program.name == "alias" and program.words[1:]:
        return "it gives a command another name: write the command where the script uses the name"
    signals = handled_signals(program.texts[1:]) if program.name == "trap" else ""
    return f"the job passes {signals} to each rank: handle it in the program" if signals else ""


def written_file(statement: Statement) -> str:
    """Return what to do about a command that writes a file."""
    if NODES.search(statement.text):
        return NODE_FILE
    return WRITTEN_IN_JOB if OF_JOB.search(statement.text) else WRITTEN


def without_tasks(option: Translation) -> Translation:
    """Correct the translation of ``--nodes`` and ``--ntasks`` in a script that has no launcher."""
    if not SEVERAL.match(option.text) or option.fate is not Fate.KEPT:
        return option
    if option.text.startswith("--ntasks"):
        return replace(option, note="see cpus_per_rank in the table: the program has the cores of all tasks")
    return replace(option, fate=Fate.LEFT_OUT, note="the script starts its program once, on the first node")
