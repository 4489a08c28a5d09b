"""Words of shell text: the one place that quotes; it never runs anything.

A `Word` is either plain text, which reaches the program exactly as it is, or `ShellExpr`, an expression that the shell
expands when the script runs (``$MASTER_ADDR``).  Scripts are made of words until the last moment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec

SHORT_OPTION = re.compile(r"-[A-Za-z]\Z")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class ShellExpr(msgspec.Struct, frozen=True):
    """Text that the shell expands at run time, within double quotes, so never split again.

    Attributes
    ----------
    expression
        What stands between the double quotes, as ``$node_rank`` or ``$host:$port``.
    """

    expression: str


class ShellFunction(str):
    """A sh program that travels as one word; scripts write it down once, under its name.

    Written without single quotes, so that it stands in a script as it is.
    """

    __slots__ = ("name",)
    name: str

    def __new__(cls, name: str, text: str) -> Self:
        """Make the word."""
        self = super().__new__(cls, text)
        self.name = name
        return self


Word = str | ShellExpr

COLONS = ShellFunction(
    "colons",
    """\
# Each word of colons alone came with one more: a lone one separates programs for srun and mpiexec.
for argosy_word do
    shift
    case $argosy_word in "" | *[!:]*) ;; *) argosy_word=${argosy_word#:} ;; esac
    set -- "$@" "$argosy_word"
done
unset argosy_word
exec "$@"
""",
)


def escape_colons(words: Sequence[Word]) -> tuple[Word, ...]:
    """Give words that srun, salloc or mpiexec may start: a lone ``:`` among theirs begins another program (srun(1))."""
    if ":" not in words:
        return tuple(words)
    return ("/bin/sh", "-c", COLONS, "argosy-colons", *(f"{w}:" if _is_colons(w) else w for w in words))


def _is_colons(word: Word) -> bool:
    return isinstance(word, str) and bool(word) and not word.strip(":")


def quote(word: Word) -> str:
    """Render one word so that any POSIX shell gives it to the program unchanged.

    sbatch takes no script with CR LF in it, in whichever place.
    """
    if isinstance(word, ShellExpr):
        return f'"{word.expression}"'
    first, *others = word.split("\r\n")
    return shlex.quote(first) + "".join("\"$(printf '\\r')\"" + shlex.quote(f"\n{other}") for other in others)


def safe_path(path: str) -> str:
    """Render the path of a file so that no program takes it for an option."""
    return quote(f"./{path}" if path.startswith("-") else path)


def as_comment(text: str) -> str:
    """Keep a user's text within its comment: no line breaks, no control characters."""
    return "".join(c if c.isprintable() else " " for c in text)


def in_double_quotes(text: str) -> str:
    """Write plain text so that it may stand beside expressions in a `ShellExpr`."""
    return re.sub(r'([$`"\\])', r"\\\1", text)


def join(words: Iterable[Word]) -> str:
    """Render a command line."""
    return " ".join(map(quote, words))


def join_words(words: Iterable[Word]) -> Word:
    """Give several words as one, with blanks between them; late where one of them is.

    Plain words must hold nothing that a shell expands within double quotes.
    """
    all_words = tuple(words)
    text = " ".join(word.expression if isinstance(word, ShellExpr) else word for word in all_words)
    return ShellExpr(text) if any(isinstance(word, ShellExpr) for word in all_words) else text


def render_command(words: Iterable[Word], *, indent: str = "", width: int = 112) -> str:
    """Render a command over several lines, as a person would write it: an option of one letter stays with its value."""
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
    """Render ``NAME=value``; the name must be one a shell takes."""
    if not NAME.match(name):
        raise ValueError(f"not a variable name: {name!r}")
    return f"{name}={quote(value)}"


def literal_argv(words: Iterable[Word]) -> tuple[str, ...]:
    """Give the words of a command that holds nothing late; what is run here and now has none."""
    out = tuple(words)
    late = [word for word in out if isinstance(word, ShellExpr)]
    if late:
        raise ValueError(f"only a shell knows {late[0].expression!r}")
    return tuple(word for word in out if isinstance(word, str))


def extract_functions(words: Iterable[Word]) -> tuple[tuple[ShellFunction, ...], tuple[Word, ...]]:
    """Take the programs out of a command: give them, and the command with their names as variables in their places."""
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
    """Render programs as the assignments that a script begins with."""
    return [f"{program.name}={quote(program.rstrip())}" for program in programs]


def format_command(words: Sequence[str], told: set[str]) -> str:
    """Render a command for somebody who reads along: a script among its words is shown only the first time.

    Parameters
    ----------
    told
        Scripts that were shown; those of this command are added.
    """
    scripts = {word for word in words if "\n" in word}
    first = next((place for place, word in enumerate(words) if word in scripts), 0)
    lead = ""
    if words[first] in told and "--" in words[first:]:
        lead, words = "… ", words[words.index("--", first) :]
    shown = [f"{word.splitlines()[0]} …" if word in told else word for word in words]
    told |= scripts
    return lead + shlex.join(shown)
