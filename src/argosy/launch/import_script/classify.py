"""Decide whether a command of a job script starts a program of the job, and which; pure.

A command that `ROLES` does not list is a program of the job, so that none is lost.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, pairwise

from argosy.launch.import_script.layers import read_program
from argosy.launch.import_script.program import COMPUTING, HARMLESS, ROLES, SUBCOMMANDS, Role, ScriptProgram
from argosy.slurm.bash_tree import without_texts
from argosy.slurm.script_reader import parse_commands
from argosy.slurm.script_words import Values, Word, WordPart, source_text

STARTS = re.compile(
    r"(?<![\w-])(torchrun|torch\.distributed|accelerate launch|deepspeed|python[\d.]*(?=\s|$)|mpirun|mpiexec|srun)"
    r"(?!\w)"
)
"""Text that starts a program, for example in the arguments of ``xargs`` or in a here-document."""

INTERPRETER = re.compile(r"i?python[\d.]*|bash|sh|julia|Rscript|perl")
"""Programs whose first argument is the file that they run."""

SUBSTITUTION = re.compile(r"\$\(([^(].*)\)|`(.*)`", re.DOTALL)

ASSIGNED = re.compile(r"(?:^|[\s;(])(?:for\s+([A-Za-z_]\w*)\b|([A-Za-z_]\w*)\+?=(?!=))")
"""A variable that a loop or condition sets."""

DEFAULTED = re.compile(r"\$\{([A-Za-z_]\w*):?=")
"""A variable that gets its default as its value: ``${NAME:=text}``."""

ARITHMETIC = re.compile(r"\(\((.*?)\)\)", re.DOTALL)
COUNTED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)|(?:\+\+|--)\s*([A-Za-z_]\w*)")
"""A variable that arithmetic sets: ``((TOTAL = N * 8))``, ``((i++))``."""

OWN_FOLDER = re.compile(r"(?!/(usr/)?(local/)?s?bin/).*/")
"""Folder of a program that is not one of the system: ``./sort`` is not ``sort``."""

DECLARES = re.compile(r"(local|declare|typeset)\b(?!\s+-\w*g)")
"""A command that declares variables of a function."""

BUILTINS = frozenset({"hash", "read", "local", "let", "jobs", "test", "shift", "set", "alias", "declare", "continue"})
"""Commands of the shell, which a launcher does not start: it starts a program of this name."""

ASKS = frozenset({"--version", "-V", "-version", "--help", "-h"})
"""Arguments with which a program only prints."""


def classify(program: ScriptProgram, harmless: Collection[str]) -> Role:
    """Return the role of a command that was taken apart.

    `harmless` has the names of functions that start no program.
    """
    role = _own_role(program, harmless)
    return Role.LOST if role in HARMLESS and _computing_programs(program, harmless) else role


def lost_programs(program: ScriptProgram) -> str:
    """Name the programs that a command starts, for example ``eval.py`` for ``echo "$(python eval.py)"``."""
    return _computing_programs(program, ()) or program_name(program)


def _computing_programs(program: ScriptProgram, harmless: Collection[str]) -> str:
    """Name the programs that ``$(…)`` in the arguments starts; the values of variables belong to other lines."""
    texts = (computing_commands(part) for word in program.written for part in word)
    names = (started_programs(text, program.values, harmless) for text in texts if text)
    return " and ".join(name for name in names if name)


def computed_variables(words: Sequence[str]) -> set[str]:
    """Return the variables that a command such as ``read A B`` sets."""
    name, *arguments = words or ("",)
    if name == "printf" and arguments[:1] == ["-v"]:
        return set(arguments[1:2])
    found = (re.match(r"[A-Za-z_]\w*", each) for each in arguments) if name in COMPUTING else ()
    return {each[0] for each in found if each}


def assigned_variables(text: str) -> set[str]:
    """Return the variables that a compound statement sets."""
    found = {
        *filter(None, chain.from_iterable(ASSIGNED.findall(without_texts(text)))),
        *DEFAULTED.findall(text),
        *counted_variables(text),
    }
    for command in parse_commands(text):
        found |= computed_variables([source_text(word) for word in command.words])
    return found


def local_variables(text: str) -> set[str]:
    """Return the variables that a function declares for itself."""
    declared = (each for each in parse_commands(text) if DECLARES.match(each.text))
    return {name for each in declared for name, _ in each.assigned}


def counted_variables(text: str) -> set[str]:
    """Return the variables that arithmetic sets: ``((TOTAL = N * 8))``, ``$((i++))``."""
    numbers = ARITHMETIC.findall(text)
    return {name for each in numbers for names in COUNTED.findall(each) for name in names if name}


def handled_signals(arguments: Sequence[str]) -> str:
    """Name the signals that ``trap HANDLER SIGNAL...`` handles; empty if it ignores or resets them."""
    if not arguments or arguments[0] in {"", "-", ":"}:
        return ""
    names = (each.removeprefix("SIG") for each in arguments[1:])
    return " and ".join(each for each in names if each not in {"EXIT", "ERR", "DEBUG", "RETURN", "0"})


def _own_role(program: ScriptProgram, harmless: Collection[str]) -> Role:
    """Return the role of a command without the commands of ``$(…)`` in its arguments."""
    if program.obstacle:
        return Role.LOST
    if not program.words:
        return Role.LOST if program.is_start else Role.CONTROL
    if program.name == "trap" and started_programs("".join(program.texts[1:2]), program.values, harmless):
        return Role.LOST
    return _role_of(program)


def _role_of(program: ScriptProgram) -> Role:
    name, arguments = program.name, program.texts[1:]
    if role := SUBCOMMANDS.get((name, *arguments[:1])):
        return role
    if name.startswith("python") and arguments[:2] in (["-m", "pip"], ["-m", "venv"]):
        return Role.INSTALL
    role = ROLES.get(name, Role.PROGRAM)
    is_own = OWN_FOLDER.match(program.texts[0]) or (program.is_start and name in BUILTINS)
    if role in HARMLESS:
        return Role.PROGRAM if is_own else role
    if len(arguments) == 1 and arguments[0] in ASKS:
        return Role.PRINT
    if program.is_start:
        return Role.PROGRAM
    return Role.LOST if is_unknown(program.words[0]) or _passes_start(name, arguments) else role


def is_unknown(word: Word) -> bool:
    """Return whether only the shell knows a program, for example ``${MPIRUN}``; ``~/bin/python`` is known."""
    return len(word) == 1 and word[0].kind != "text" and not word[0].text.startswith("~/")


def _passes_start(name: str, arguments: Sequence[str]) -> bool:
    """Return whether ``find … -exec`` or ``xargs`` starts a program of the job."""
    match name:
        case "find":
            pairs = pairwise(arguments)
            return any(option in {"-exec", "-execdir"} and ROLES.get(after) is None for option, after in pairs)
        case "xargs":
            return bool(arguments) and not ROLES.keys() & set(arguments)
    return False


def computing_commands(part: WordPart) -> str:
    """Return the commands of ``$(COMMANDS)``; empty for any other part of a word."""
    found = SUBSTITUTION.fullmatch(part.text) if part.kind == "shell" else None
    return (found[1] or found[2]) if found else ""


def started_programs(text: str, values: Values, harmless: Collection[str] = ()) -> str:
    """Name the programs that shell text starts, at any depth; empty if it starts none."""
    names = [each for each in dict.fromkeys(_program_names(text, values, harmless)) if each not in harmless]
    rest = text
    for statement in parse_commands(text):
        rest = rest.replace(statement.text, "")
    if not names and STARTS.search(rest):  # a here-document, or text that is not valid bash
        return "a program"
    return " and ".join(names)


def _program_names(text: str, values: Values, harmless: Collection[str]) -> Iterator[str]:
    for statement in parse_commands(text):
        if not statement.words:
            continue
        program = read_program(statement, values)
        if _own_role(program, harmless) in {Role.PROGRAM, Role.LOST}:
            yield program_name(program)


def program_name(program: ScriptProgram) -> str:
    """Return the file or module that a command starts: ``train.py`` for ``python -u train.py --lr 1``."""
    if program.obstacle or not program.words:
        return "a program"
    files = [each for each in program.texts[1:] if not each.startswith("-")]
    is_interpreter = INTERPRETER.fullmatch(program.name) and files and "-c" not in program.texts
    return files[0] if is_interpreter else program.texts[0]
