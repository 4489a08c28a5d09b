"""Quote arguments and render shell commands; the only module that quotes for a shell.

A `Word` is one argument of a command: plain text, which reaches the program unchanged, or a `ShellExpr`, which the
shell expands when the script runs (``$MASTER_ADDR``). Commands stay sequences of words until a script is rendered.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec

SHORT_OPTION = re.compile(r"(-[A-Za-z]|--(env|mount|volume|pwd|workdir))\Z")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ShellExpr(msgspec.Struct, frozen=True):
    """An expression that the shell expands at run time, inside double quotes, so the result is not split."""

    expression: str
    """The text between the double quotes, for example ``$node_rank`` or ``$host:$port``."""


class ShellFunction(str):
    """A sh program that is passed as one argument; a rendered script defines it once, as a variable with its name.

    The programs avoid single quotes, so that quoting leaves them readable in a script.
    """

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Create the program from its name and text."""
        self = super().__new__(cls, text)
        self.name = name
        return self


Word = str | ShellExpr

SCRIPTS = Path(__file__).with_name("scripts")
_NO_VALUES: Mapping[str, str] = MappingProxyType({})


def read_function(file: Path, name: str, values: Mapping[str, str] = _NO_VALUES) -> ShellFunction:
    """Read a sh program that ships with Argosy.

    Parameters
    ----------
    name
        Name of the variable that holds the program in a rendered script.
    values
        Values for the placeholders: ``@KEY@`` is replaced by the value of ``KEY``.
    """
    text = read_shell(file) + "\n"
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return ShellFunction(name, text)


CALL = '"$0" "$@"'
"""Last line of helpers: ``sh -c HELPERS NAME ARGUMENTS`` calls the function NAME."""


class ShellHelper(ShellFunction):
    """A shell function from a ``.sh`` file with the functions that it needs.

    ``sh -c HELPER NAME ARGUMENTS`` calls it.
    """

    __slots__ = ("definitions",)
    definitions: tuple[str, ...]

    def __new__(cls, name: str, definitions: tuple[str, ...]) -> Self:
        """Create the program from its name and the definitions of functions."""
        self = super().__new__(cls, name, "\n".join((*definitions, CALL)) + "\n")
        self.definitions = definitions
        return self


def read_shell(file: Path) -> str:
    """Read the definitions of a ``.sh`` file, without directives for shellcheck."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("# shellcheck "))


@cache
def _read_functions(file: Path) -> Mapping[str, tuple[str, ...]]:
    """Return the text of each function of a ``.sh`` file -> its names; blank lines separate the functions."""
    texts = read_shell(file).strip().split("\n\n")
    return {text: tuple(re.findall(r"^(\w+)\(\)", text, re.MULTILINE)) for text in texts}


def choose_functions(file: Path, caller: str) -> tuple[str, ...]:
    """Return the functions of a ``.sh`` file that a text calls, and those that these call, in the order of the file."""
    functions = _read_functions(file)
    chosen: set[str] = set()
    added = {caller}
    while added:
        called = set(re.findall(r"\w+", "\n".join(added)))
        added = {text for text, names in functions.items() if text not in chosen and called.intersection(names)}
        chosen |= added
    return tuple(text for text in functions if text in chosen)


def load_helper(file: Path, name: str) -> ShellHelper:
    """Load the function `name` from a ``.sh`` file, and the functions of the file that it calls."""
    return ShellHelper(name, choose_functions(file, name))


def escape_colons(words: Sequence[Word]) -> tuple[Word, ...]:
    """Return a command that srun, salloc and mpiexec start as one program, even if an argument is ``:``.

    These launchers read a lone ``:`` as the separator of several programs (srun(1), heterogeneous steps).
    """
    if ":" not in words:
        return tuple(words)
    restore = read_function(SCRIPTS / "colons.sh", "colons")
    return ("/bin/sh", "-c", restore, "argosy-colons", *(f"{w}:" if _is_colons(w) else w for w in words))


def _is_colons(word: Word) -> bool:
    return isinstance(word, str) and bool(word) and not word.strip(":")


def quote(word: Word) -> str:
    """Render one argument so that any POSIX shell passes it to the program unchanged.

    CR LF is rendered through printf, because sbatch rejects scripts that contain it anywhere.
    """
    if isinstance(word, ShellExpr):
        return f'"{word.expression}"'
    first, *others = word.split("\r\n")
    return shlex.quote(first) + "".join("\"$(printf '\\r')\"" + shlex.quote(f"\n{other}") for other in others)


def safe_path(path: str) -> str:
    """Render a file path so that no program reads it as an option."""
    return quote(f"./{path}" if path.startswith("-") else path)


def as_comment(text: str) -> str:
    """Replace line breaks and control characters with blanks, so that the text stays inside one comment."""
    return "".join(c if c.isprintable() else " " for c in text)


def in_double_quotes(text: str) -> str:
    """Escape plain text for use next to expressions in a `ShellExpr`."""
    return re.sub(r'([$`"\\])', r"\\\1", text)


def join(words: Iterable[Word]) -> str:
    """Render a command line."""
    return " ".join(map(quote, words))


def text_of(word: Word) -> str:
    """Return the text of a word; of a `ShellExpr`, the expression."""
    return word.expression if isinstance(word, ShellExpr) else word


def join_words(words: Iterable[Word], separator: str = " ", *, escape: Callable[[str], str] = str) -> Word:
    """Join several words into one; the result is a `ShellExpr` if any of them is.

    Parameters
    ----------
    escape
        Applied to the plain words of a `ShellExpr`: without it, they must not contain characters that a shell expands
        inside double quotes.
    """
    all_words = tuple(words)
    if not any(isinstance(word, ShellExpr) for word in all_words):
        return separator.join(map(text_of, all_words))
    return ShellExpr(
        separator.join(text_of(word) if isinstance(word, ShellExpr) else escape(word) for word in all_words)
    )


def render_command(words: Iterable[Word], *, indent: str = "", width: int = 112) -> str:
    """Render a command over several lines; a one-letter option stays on the line of its value."""
    lines: list[str] = []
    current = short = ""
    for text in map(quote, words):
        piece = f"{short} {text}" if short else text
        short = piece if SHORT_OPTION.match(text) else ""
        if short:
            continue
        if current and len(indent) + len(current) + 1 + len(piece) > width:
            lines.append(current)
            current = "    " + piece
        else:
            current = f"{current} {piece}" if current else piece
    rest = f"{current} {short}".strip() if short else current
    return " \\\n".join(indent + line for line in [*lines, rest])


def render_assignment(name: str, value: Word) -> str:
    """Render ``NAME=value``.

    Raises
    ------
    ValueError
        If the name is not a valid shell variable name.
    """
    if not NAME.match(name):
        raise ValueError(f"not a variable name: {name!r}")
    return f"{name}={quote(value)}"


def literal_argv(words: Iterable[Word]) -> tuple[str, ...]:
    """Return the arguments of a command that runs without a shell.

    Raises
    ------
    ValueError
        If an argument is a `ShellExpr`.
    """
    out = tuple(words)
    expressions = [word for word in out if isinstance(word, ShellExpr)]
    if expressions:
        raise ValueError(f"only a shell can expand {expressions[0].expression!r}")
    return tuple(word for word in out if isinstance(word, str))


def extract_functions(words: Iterable[Word]) -> tuple[tuple[ShellFunction, ...], tuple[Word, ...]]:
    """Split a command into its sh programs and the command with a variable in place of each program."""
    programs: dict[str, ShellFunction] = {}
    out: list[Word] = []
    for word in words:
        if isinstance(word, ShellFunction):
            programs.setdefault(word.name, word)
            out.append(ShellExpr(f"${word.name}"))
        else:
            out.append(word)
    return tuple(programs.values()), tuple(out)


def render_functions(programs: Iterable[ShellFunction]) -> list[str]:
    """Render sh programs as variable assignments for the beginning of a script."""
    return [f"{program.name}={quote(program.rstrip())}" for program in programs]


class Helpers(msgspec.Struct, frozen=True):
    """The shell functions that a script sends to other nodes and into containers."""

    definitions: tuple[str, ...] = ()
    """The text of each function."""
    texts: tuple[ShellFunction, ...] = ()
    """Programs that are passed as text; the script stores each in a variable."""


SHELLS = ("sh", "/bin/sh")


def collect_helpers(words: Sequence[Word]) -> tuple[Helpers, tuple[Word, ...]]:
    """Return the shell functions of a command, and the command with variables in place of the functions."""
    definitions: dict[str, None] = {}
    texts: dict[str, ShellFunction] = {}
    out = list(words)
    for place, word in enumerate(words):
        if not isinstance(word, ShellFunction):
            continue
        if not isinstance(word, ShellHelper) and (words[place - 1] != "-c" or words[place - 2] not in SHELLS):
            texts.setdefault(word.name, word)
            out[place] = ShellExpr(f"$argosy_{word.name}")
            continue
        wrapped = (f"{word.name}() {{\n{word.rstrip()}\n}}",)
        definitions |= dict.fromkeys(word.definitions if isinstance(word, ShellHelper) else wrapped)
        out[place : place + 2] = [ShellExpr("$argosy_helpers"), word.name]
    return Helpers(tuple(definitions), tuple(texts.values())), tuple(out)


def merge_helpers(*several: Helpers) -> Helpers:
    """Merge the shell functions of several commands, without duplicates."""
    return Helpers(
        tuple(dict.fromkeys(text for each in several for text in each.definitions)),
        tuple(dict.fromkeys(text for each in several for text in each.texts)),
    )


def render_helpers(helpers: Helpers) -> Iterator[str]:
    """Yield the lines of a script that store shell functions in variables, by here-documents."""
    if helpers.definitions:
        yield "argosy_helpers=$(cat <<'HELPERS'"
        for definition in helpers.definitions:
            yield from (definition, "")
        yield CALL
        yield "HELPERS"
        yield ")"
    for text in helpers.texts:
        yield f"argosy_{text.name}=$(cat <<'{text.name.upper()}'"
        yield text.rstrip()
        yield text.name.upper()
        yield ")"


def format_command(argv: Sequence[str], shown: set[str]) -> str:
    """Render a command for verbose output; a script among the arguments is shown in full only once.

    Parameters
    ----------
    shown
        Scripts that were shown before; those of this command are added.
    """
    scripts = {argument for argument in argv if "\n" in argument}
    first = next((index for index, argument in enumerate(argv) if argument in scripts), 0)
    lead = ""
    if argv[first] in shown and "--" in argv[first:]:
        lead, argv = "… ", argv[argv.index("--", first) :]
    texts = [f"{argument.splitlines()[0]} …" if argument in shown else argument for argument in argv]
    shown |= scripts
    return lead + shlex.join(texts)
