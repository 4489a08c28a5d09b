"""Keep the state of the script's shell while its statements are read in order, and commands on files of jobs; pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec

from argosy.core.records import replace
from argosy.launch.import_script.classify import computed_variables
from argosy.launch.import_script.expressions import COMMAND, FIRST_NODE, expressions, users, uses_any
from argosy.launch.import_script.model import Fate, Note, Outcome, shorten
from argosy.launch.import_script.shape import SlurmShape
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import Word, WordPart, source_text

LAUNCHED = "${SLURM_SUBMIT_DIR}"
"""The folder of the launch, in a command of a job."""

ABSOLUTE = re.compile(r'cd(?: "(?:/|\$\{(?:SLURM_SUBMIT_DIR|HOME)\}).*)?')
"""A ``cd`` that has the same effect in every folder."""


class Preparation(msgspec.Struct, frozen=True):
    """A command on files."""

    line: str
    moves: tuple[str, ...] = ()
    """The ``cd`` commands that lead to its folder from the first folder of the script."""
    number: int = 0
    """Line of the script."""


def made_again(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return the words of ``mkdir`` with ``-p``: a script continues if the folder exists, and a job would stop."""
    options = [source_text(word) for word in words[1:]]
    if any(re.fullmatch(r"--parents|-[a-zA-Z]*p[a-zA-Z]*", each) for each in options):
        return words
    return (words[0], (WordPart("text", "-p"),), *words[1:])


def render_preparations(preparations: Sequence[Preparation], *, start: Sequence[str] | None, first: str) -> list[str]:
    """Render ``before``, whose lines one shell runs: each line with the ``cd`` commands that its folder needs.

    Parameters
    ----------
    start
        The commands that lead to the folder where the job starts; None if the script was not there yet.
    first
        The first folder of the script; empty for that of the launch.
    """
    lines: list[str] = []
    for each in preparations:
        lines += [*_path(each.moves, start, first or LAUNCHED), each.line]
        start = each.moves
    return lines


def _path(moves: tuple[str, ...], here: Sequence[str] | None, first: str) -> Iterator[str]:
    """Yield the commands that lead from a folder to another one."""
    if here is not None and moves[: len(here)] == tuple(here):
        yield from moves[len(here) :]
        return
    if not (moves and ABSOLUTE.fullmatch(moves[0])):
        yield f'cd "{first}"'
    yield from moves


SUBMIT_FOLDER = re.compile(r"\A\$(?:\{SLURM_SUBMIT_DIR(?::-(?:[^{}]|\{\w+\})*)?\}|SLURM_SUBMIT_DIR\b)")
"""The folder of the launch, as a job script writes it; a relative path in argosy.toml begins there."""

OWN_FOLDER = re.compile(r"\A\$(?:\{PWD\}|PWD\b)")
"""The folder of the script's shell."""

OWN_HOME = re.compile(r"~(?=/|$)")
"""The home folder of the user."""

LONGEST = 1 << 17
"""Longest argument of a program on Linux, in bytes (MAX_ARG_STRLEN)."""

ELSEWHERE = ("/", "$", "~")
"""First characters of a path that does not begin in the folder of the shell."""


SETS_ALL = re.compile(r"\bset(?: [-+]\w+)*? [-+](?:[a-z]*a[a-z]*|o allexport)(?:[ ;\n]|$)")
ALL_EXPORTED = re.compile(r"set(?: [-+]\w+)*? ([-+])(?:[a-z]*a[a-z]*|o allexport)(?: |$)")
"""The option of ``set`` that exports all variables."""


class FixedValue(msgspec.Struct, frozen=True):
    """The value that a job gets of a variable, although later lines of the script may change the variable."""

    name: str
    value: str
    places: tuple[str, ...]
    """The lines that may change it, for example ``line 3``."""

    @property
    def note(self) -> Note:
        """Report the value and the lines."""
        places = " and ".join(filter(None, (", ".join(self.places[:-1]), self.places[-1])))
        note = f"fixed at {shorten(self.value) or 'an empty value'}; {places} can change it"
        return f"${self.name}", Fate.UNTRANSLATED, f"{note}: write the value into the table"


class ShellState(msgspec.Struct):
    """The state of the script's shell at a line, and the options of the job."""

    shape: SlurmShape = SlurmShape()
    keys: dict[str, Any] = {}
    numbers: Mapping[str, str] = {}
    """Variables of Slurm that the job does not have, with the script's numbers."""
    values: dict[str, tuple[Word, ...]] = {}
    """Variables with their values."""
    env: dict[str, str] = {}
    """Exported variables for the program."""
    exported: set[str] = set()
    """Names of all exported variables."""
    exports_all: bool = False
    """Whether each assignment exports its variable (``set -a``)."""
    prelude: list[str] = []
    """Commands that the shell of each rank runs before the program."""
    host_paths: list[str] = []
    """Commands that set PATH and the like; only a program without a container needs them."""
    binds: list[str] = []
    before: list[Preparation] = []
    """Commands on files that Argosy runs once before the ranks of the next program start."""
    prepared: int = 0
    """How many of them a program already has that still runs."""
    prefix: str = ""
    """Folder of the active environment of the host."""
    path_prefix: str = ""
    """Folder whose programs PATH has first; it may be an environment."""
    folder: str = ""
    """Folder of the shell, from the folder of the launch; empty if it is this one."""
    moves: tuple[str, ...] = ()
    """The ``cd`` commands that lead to this folder from the first folder of the script."""
    start: tuple[str, ...] | None = ()
    """Those that lead to the folder where the job starts; None if the script was not there yet."""
    first: str = ""
    """The first folder of the script, from ``#SBATCH --chdir``; empty for that of the launch."""
    is_lost: bool = False
    """Whether a command computes the folder of the shell, so that it is not known."""
    is_moving: bool = False
    """Whether the script changes its folder, or starts a program in a folder of its container."""
    conditional: set[str] = set()
    """Variables that a loop, a condition or a command such as ``read`` sets."""
    fixed: dict[str, tuple[FixedValue, ...]] = {}
    """Variables with the values in them that a loop, a condition or a command such as ``read`` may change."""
    changed: set[str] = set()
    """Exported variables whose value contains the earlier one: only the shell of a rank has it."""
    waits_for_one: bool = False
    """Whether the script starts one program with ``&``, and waits for it."""

    def observe(self, command: Sequence[str], place: str) -> None:
        """Note the variables that a command such as ``read`` sets, and ``set -a``."""
        self.compute(computed_variables(command), place)
        if found := ALL_EXPORTED.match(" ".join(command)):
            self.exports_all = found[1] == "-"

    def compute(self, names: Iterable[str], place: str) -> None:
        """Note variables that a loop, a condition or a command sets, so that their values are not known.

        `place` names its lines; it is empty for the definition of a function, which sets them only if it is called.
        """
        names = tuple(names)
        self.fix(names, place)
        for name in names:
            self.outdate(name)
            self.conditional.add(name)

    def set_value(self, name: str, words: tuple[Word, ...]) -> None:
        """Set a variable; its value is not known if it contains one that is not."""
        if not uses_any(words, self.conditional):
            self.conditional.discard(name)
        self.values[name] = words

    def fix(self, names: Iterable[str], place: str) -> None:
        """Note that the lines of `place` may change the values that variables have; empty: no line does."""
        for name in names if place else ():
            words = self.values.get(name, ())
            is_named = any(COMMAND.search(part.text) for part in expressions(words))  # another note names it
            if name not in self.values or is_named or any(FIRST_NODE in word for word in words):
                continue
            others = {each.name: each for each in self.fixed.get(name, ())}
            value = " ".join(map(source_text, words))
            own = others.pop(name, FixedValue(name, value, ()))
            own = replace(own, places=tuple(dict.fromkeys((*own.places, place))))
            self.fixed[name] = (*others.values(), own)

    def fixed_values(self, words: Iterable[Word]) -> tuple[FixedValue, ...]:
        """Return the values in words that other lines may change."""
        used = (part.text for word in words for part in word if part.kind == "variable" and part.text in self.values)
        return tuple(dict.fromkeys(chain.from_iterable(self.fixed.get(name, ()) for name in used)))

    def fixed_notes(self, words: Iterable[Word], exported: Iterable[str] = ()) -> list[Note]:
        """Report the values in words, and in exported variables, that other lines may change."""
        names = ((WordPart("variable", name),) for name in exported)
        return [each.note for each in self.fixed_values((*words, *names))]

    def outdate(self, name: str) -> None:
        """Forget the values whose expressions use the present value of a variable, before that changes."""
        for each in users(name, self.values):
            del self.values[each]
            self.conditional.add(each)

    def lose_folder(self, *, is_lost: bool = True) -> None:
        """Note whether a command computes the folder of the shell, so that ``$PWD`` is not known."""
        self.is_lost = is_lost
        (self.conditional.add if is_lost else self.conditional.discard)("PWD")

    def forget(self, name: str) -> bool:
        """Forget the exported value of a variable; return whether the shell of a rank uses it, so that it is kept."""
        use = re.compile(rf"\$\{{?[#!]?{name}\b|\(\(.*\b{name}\b|^{name}=")
        is_used = any(use.search(line) for line in self.prelude if not line.startswith(f"export {name}="))
        self.exported.discard(name)
        self.changed.discard(name)
        if not is_used:
            self.env.pop(name, None)
            for lines in (self.prelude, self.host_paths):
                lines[:] = [
                    each for each in lines if each != f"unset {name}" and not each.startswith(f"export {name}=")
                ]
        return is_used

    def start_program(self, *, background: bool) -> None:
        """Note that a program has the commands on files so far; those that run at the same time need them, too."""
        self.prepared = len(self.before)
        if not background:
            self.forget_prepared()

    def forget_prepared(self) -> None:
        """Forget the commands on files that an earlier job runs."""
        del self.before[: self.prepared]
        self.prepared = 0

    def with_folder(self, word: Word) -> Word:
        """Replace ``$PWD`` in a value by the folder at this line, since a later ``cd`` must not change the value."""
        if not self.is_moving or self.folder.startswith(("$", "~")):
            return word
        submitted, below = WordPart("variable", "SLURM_SUBMIT_DIR", quoted=True), posixpath.normpath(self.folder)
        folder: Word = (submitted, WordPart("text", f"/{below}", quoted=True)) if self.folder else (submitted,)
        if below.startswith("/"):
            folder = (WordPart("text", below, quoted=True),)
        parts = (folder if part.kind == "variable" and part.text == "PWD" else (part,) for part in word)
        return tuple(chain.from_iterable(parts))

    def path_of(self, path: str) -> str:
        """Return a path of the script as argosy.toml contains it."""
        path = OWN_FOLDER.sub(".", path)
        is_address = "://" in path or path.startswith("bare:")
        if self.folder and path and not is_address and not path.startswith(ELSEWHERE):
            path = posixpath.normpath(f"{self.folder}/{path}")
        return SUBMIT_FOLDER.sub(".", path)

    def bind_of(self, bind: str) -> str:
        """Return a bind mount of the script as argosy.toml contains it."""
        source, colon, inside = bind.partition(":")
        return f"{self.path_of(source)}{colon}{inside}"


def waits_for_one(statements: Iterable[Statement]) -> bool:
    """Return whether a script starts one program with ``&`` and waits for it, for example to handle signals."""
    names = [source_text(each.words[0]) for each in statements if each.words]
    return "wait" in names and sum(each.background for each in statements) == 1


WORKDIR = re.compile(r"--(pwd|cwd|workdir|container-workdir)\b")


def changes_folder(statements: Iterable[Statement]) -> bool:
    """Return whether a script changes its folder, or starts a program in a folder of its container."""
    return any((each.words and source_text(each.words[0]) == "cd") or WORKDIR.search(each.text) for each in statements)


def change_folder(state: ShellState, words: tuple[Word, ...]) -> Outcome:
    """Translate ``cd`` with its expanded arguments; return what becomes of it, and why."""
    folder, command = source_text(words[0]) if words else "~", f"cd {double_quoted(words)}" if words else "cd"
    is_below = not folder.startswith(ELSEWHERE)
    is_known = all(part.kind != "shell" or OWN_HOME.match(part.text) for word in words for part in word)
    state.lose_folder(is_lost=not is_known or (state.is_lost and is_below))
    if is_below or OWN_FOLDER.match(folder):
        state.moves = (*state.moves, command)
    else:
        state.moves, state.folder = (command,), ""
    if not is_below:
        state.keys.pop("chdir", None)
        state.start = None if state.first else ()
        state.prelude = [each for each in state.prelude if each != "cd" and not each.startswith("cd ")]
    below = state.path_of("${OLDPWD}" if folder == "-" else folder)
    is_back = bool(state.folder) and is_below
    state.folder = "" if below == "." else below
    if below == "." and not is_back:
        state.moves = state.moves if state.first else ()
        return Outcome(Fate.REPLACED, "Argosy starts in the folder of the launch")
    if folder.startswith(("/", "$")) and "$" not in below:
        state.keys["chdir"], state.start = below, state.moves
        return Outcome(Fate.KEPT, f'chdir = "{below}"')
    if is_known:
        state.prelude.append(f"{command} || exit")
        return Outcome(Fate.KEPT, "the shell of each rank changes the folder")
    return Outcome(Fate.UNTRANSLATED, "set chdir to the folder")


def double_quoted(words: Iterable[Word]) -> str:
    """Render words for sh in double quotes, with their variables."""
    return '"' + "".join(_quoted_part(part) for word in words for part in word) + '"'


def _quoted_part(part: WordPart) -> str:
    match part.kind:
        case "text":
            return re.sub(r'(["\\`$])', r"\\\1", part.text)
        case "variable":
            return part.reference
    # Between quotes, the shell does not replace ~ by the home folder.
    return re.sub(rf"^{OWN_HOME.pattern}", "${HOME}", part.text)
