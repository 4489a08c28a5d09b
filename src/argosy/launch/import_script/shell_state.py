"""Keep the state of the script's shell while its statements are read in order; pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, count
from typing import Any

import msgspec

from argosy.launch.import_script.before import Preparation
from argosy.launch.import_script.classify import computed_variables
from argosy.launch.import_script.expressions import renamed, users, uses_any
from argosy.launch.import_script.model import Fate
from argosy.launch.import_script.options import Shape
from argosy.slurm.script_reader import Statement, read_commands
from argosy.slurm.script_words import Part, Word, source_text

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


ALL_EXPORTED = re.compile(r"set(?: [-+]\w+)*? ([-+])(?:[a-z]*a[a-z]*|o allexport)(?: |$)")
"""The option of ``set`` that exports all variables."""


class ShellState(msgspec.Struct):
    """The state of the script's shell at a line, and the options of the job.

    Attributes
    ----------
    numbers
        Variables of Slurm that the job does not have, with the script's numbers.
    values
        Variables with their values.
    env
        Exported variables for the program.
    exported
        Names of all exported variables.
    exports_all
        Whether each assignment exports its variable (``set -a``).
    prelude
        Commands that the shell of each rank runs before the program.
    host_paths
        Commands that set PATH and the like; only a program without a container needs them.
    before
        Commands on files that Argosy runs once before the ranks of the next program start.
    prepared
        How many of them a program already has that still runs.
    prefix
        Folder of the active environment of the host.
    path_prefix
        Folder whose programs PATH has first; it may be an environment.
    folder
        Folder of the shell, from the folder of the launch; empty if it is this one.
    moves
        The ``cd`` commands that lead to this folder from the first folder of the script.
    start
        Those that lead to the folder where the job starts; None if the script was not there yet.
    first
        The first folder of the script, from ``#SBATCH --chdir``; empty for that of the launch.
    stack
        The folders to which ``popd`` returns, as `folder`.
    is_lost
        Whether a command computes the folder of the shell, so that it is not known.
    is_moving
        Whether the script changes its folder.
    conditional
        Variables that a loop, a condition or a command such as ``read`` sets.
    changed
        Exported variables whose value contains that of the user's shell: the shell of a rank has the new one.
    waits_for_one
        Whether the script starts one program with ``&``, and waits for it.
    """

    shape: Shape = Shape()
    keys: dict[str, Any] = {}
    numbers: Mapping[str, str] = {}
    values: dict[str, tuple[Word, ...]] = {}
    env: dict[str, str] = {}
    exported: set[str] = set()
    exports_all: bool = False
    prelude: list[str] = []
    host_paths: list[str] = []
    binds: list[str] = []
    before: list[Preparation] = []
    prepared: int = 0
    prefix: str = ""
    path_prefix: str = ""
    folder: str = ""
    moves: tuple[str, ...] = ()
    start: tuple[str, ...] | None = ()
    first: str = ""
    stack: list[str] = []
    is_lost: bool = False
    is_moving: bool = False
    conditional: set[str] = set()
    changed: set[str] = set()
    waits_for_one: bool = False

    @property
    def rank_values(self) -> Mapping[str, tuple[Word, ...]]:
        """Variables with their values, without those whose value the shell of a rank has."""
        return {name: value for name, value in self.values.items() if name not in self.changed}

    def observe(self, command: Sequence[str]) -> None:
        """Note the variables that a command such as ``read`` sets, and ``set -a``."""
        self.compute(computed_variables(command))
        if found := ALL_EXPORTED.match(" ".join(command)):
            self.exports_all = found[1] == "-"

    def compute(self, names: Iterable[str]) -> None:
        """Note variables that a loop, a condition or a command sets, so that their values are not known."""
        for name in names:
            self.keep_old_value(name)
            self.conditional.add(name)

    def set_value(self, name: str, words: tuple[Word, ...]) -> None:
        """Set a variable; its value is not known if it contains one that is not."""
        if not uses_any(words, self.conditional):
            self.conditional.discard(name)
        self.values[name] = words

    def keep_old_value(self, name: str, *, always: bool = False) -> str:
        """Give a variable's value another name in the expressions that use it, before the value changes.

        Return the other name; empty if nothing uses the value, unless `always`.
        """
        found = users(name, self.values)
        if name not in self.values or not (found or always):
            return ""
        old = next(each for each in (f"{name}_was{number}" for number in count(1)) if each not in self.values)
        self.values[old] = self.values[name]
        self.conditional |= {old} if name in self.conditional else set()
        self.values.update({each: renamed(self.values[each], name, old) for each in found})
        return old

    def forget(self, name: str) -> None:
        """Forget the exported value of a variable, and that it was unset."""
        self.env.pop(name, None)
        self.exported.discard(name)
        self.changed.discard(name)
        lines = (each for each in self.prelude if each != f"unset {name}")
        self.prelude = [each for each in lines if not each.startswith(f"export {name}=")]

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
        submitted, below = Part("variable", "SLURM_SUBMIT_DIR", quoted=True), posixpath.normpath(self.folder)
        folder: Word = (submitted, Part("text", f"/{below}", quoted=True)) if self.folder else (submitted,)
        if below.startswith("/"):
            folder = (Part("text", below, quoted=True),)
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


def exports_all_at_end(text: str, *, before: bool) -> bool:
    """Return whether ``set -a`` applies behind a compound statement; `before` is whether it applied before it."""
    if text.startswith("("):
        return before  # a subshell
    for command in read_commands(text):
        if found := ALL_EXPORTED.match(command.text):
            before = found[1] == "-"
    return before


def waits_for_one(statements: Iterable[Statement]) -> bool:
    """Return whether a script starts one program with ``&`` and waits for it, for example to handle signals."""
    names = [source_text(each.words[0]) for each in statements if each.words]
    return "wait" in names and sum(each.background for each in statements) == 1


def changes_folder(statements: Iterable[Statement]) -> bool:
    """Return whether a script changes its folder."""
    return any(each.words and source_text(each.words[0]) in {"cd", "pushd"} for each in statements)


def change_folder(state: ShellState, words: tuple[Word, ...]) -> tuple[Fate, str]:
    """Translate ``cd`` with its expanded arguments; return what becomes of it, and why."""
    folder, command = source_text(words[0]) if words else "~", f"cd {double_quoted(words)}" if words else "cd"
    is_below = not folder.startswith(ELSEWHERE)
    is_known = all(part.kind != "shell" or OWN_HOME.match(part.text) for word in words for part in word)
    state.is_lost = not is_known or (state.is_lost and is_below)
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
        return Fate.REPLACED, "Argosy starts in the folder of the launch"
    if folder.startswith(("/", "$")) and "$" not in below:
        state.keys["chdir"], state.start = below, state.moves
        return Fate.KEPT, f'chdir = "{below}"'
    if is_known:
        state.prelude.append(f"{command} || exit")
        return Fate.KEPT, "the shell of each rank changes the folder"
    return Fate.UNTRANSLATED, "set chdir to the folder"


def leave_folder(state: ShellState) -> tuple[Fate, str]:
    """Translate ``popd``; return what becomes of it, and why."""
    folder = state.stack.pop() if state.stack else "$"
    if state.first or "$" in folder or "~" in folder:
        state.is_lost = True
        return Fate.UNTRANSLATED, "set chdir to the folder"
    path: Word = (Part("text", folder, quoted=True),)
    below: Word = (
        Part("variable", "SLURM_SUBMIT_DIR", quoted=True),
        Part("text", f"/{folder}".rstrip("/"), quoted=True),
    )
    return change_folder(state, (path if folder.startswith("/") else below,))


def double_quoted(words: Iterable[Word]) -> str:
    """Render words for sh in double quotes, with their variables."""
    return '"' + "".join(_quoted_part(part) for word in words for part in word) + '"'


def _quoted_part(part: Part) -> str:
    match part.kind:
        case "text":
            return re.sub(r'(["\\`$])', r"\\\1", part.text)
        case "variable":
            return part.reference
    # Between quotes, the shell does not replace ~ by the home folder.
    return re.sub(rf"^{OWN_HOME.pattern}", "${HOME}", part.text)
