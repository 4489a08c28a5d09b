"""Represent the words of a shell script with their variables, and expand them as the shell does; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import msgspec

from argosy.core.records import replace

PartKind = Literal["text", "variable", "shell"]


class WordPart(msgspec.Struct, frozen=True):
    """A part of a word."""

    kind: PartKind
    """``text``: plain text; ``variable``: a variable by its name; ``shell``: anything else that the shell expands,
    for example ``$(date)`` or ``*.py``, as it is written."""
    text: str
    """The text, the variable's name, or the expression."""
    default: str | None = None
    """Text after ``:-`` in ``${NAME:-text}`` or ``${NAME:=text}``; None if there is none."""
    quoted: bool = False
    """Whether the part is inside double quotes, so that its value is not split into words."""
    all_elements: bool = False
    """Whether the part is all elements of an array (``${NAME[@]}``); ``$NAME`` is the first one."""
    assigns: bool = False
    """Whether the variable gets the default as its value (``:=``)."""

    @property
    def reference(self) -> str:
        """A variable as it is written in braces, with its default."""
        name = f"{self.text}[@]" if self.all_elements else self.text
        sign = ":=" if self.assigns else ":-"
        return f"${{{name}}}" if self.default is None else f"${{{name}{sign}{self.default}}}"


Word = tuple[WordPart, ...]
"""One word of a command as it is written: ``--nodes=$N`` is the text ``--nodes=`` and the variable ``N``."""

Values = Mapping[str, tuple[Word, ...]]
"""Variables of a script: name -> words.

An array has any number of words, and an unquoted part of it may be several elements.  Any other variable has one word,
whose parts are all quoted, since assignments do not split words.
"""

SET_IN_JOB = re.compile(
    r"(SLURM|PMI|OMPI_)\w*|((NODE|GROUP|LOCAL)_)?RANK|(LOCAL_)?WORLD_SIZE|MASTER_(ADDR|PORT)"
    r"|(CUDA|ROCR|HIP)_VISIBLE_DEVICES|((LD_)?LIBRARY_|PYTHON|MAN|C)?PATH|HOME|USER|LOGNAME|HOSTNAME|PWD|TMPDIR"
)
"""Variables that Slurm, the login or the launcher sets in a job, so that their defaults do not apply."""

GLOB = re.compile(r"(?<!\\)[*?]|^[^=]*(?<![\\$])\[[^\]/]+\]")
"""A pattern of file names.  Behind ``=``, brackets are a list: ``--layers=[1,2]`` is not a file."""

IN_QUOTES = re.compile(r"""(?P<sign>["'])(?P<text>(?:(?!(?P=sign))[^\\])*)(?P=sign)""", re.DOTALL)
"""A default that is in quotes as a whole: ``${NAME:-"a b"}``."""

USED_IN_DEFAULT = re.compile(r"\$(?:(\w+)|\{(\w+)(?::[-=][^{}]*)?\})")
"""A variable in the default of another one."""


def expand(word: Word, values: Values, *, nested: bool = False) -> tuple[Word, ...]:
    """Replace the variables of a word by their values, and split unquoted values into words, as the shell does.

    A variable without a value takes its default, unless only the shell of the job can tell: then it stays as it is.

    Parameters
    ----------
    nested
        Whether the values contain variables that have values, too.
    """
    elements = [part for part in word if part.text or part.kind != "text"]
    if elements and all(part.all_elements and values.get(part.text) == () for part in elements):
        return ()  # bash drops an array without elements, also in quotes
    fields: list[list[WordPart]] = [[]]
    for part in word:
        found = _value(part, values, nested=nested)
        if found is None:
            fields[-1].append(part)
            continue
        for number, each in enumerate(found):
            if number:
                fields.append([])
            for inner in each:
                _append(fields, inner, split=not _is_one_word(part, values))
    kept = [tuple(field) for field in fields if field]
    return tuple(kept)


def _value(part: WordPart, values: Values, *, nested: bool) -> tuple[Word, ...] | None:
    if part.kind != "variable":
        return ((part,),)
    if _is_set(part, values):
        found = values[part.text] if part.all_elements else values[part.text][:1]
        if not part.all_elements and any(not each.quoted and each.kind != "text" for word in found for each in word):
            return ((WordPart("shell", f"${{{part.text}[0]}}", quoted=part.quoted),),)
        if nested:
            others = {name: value for name, value in values.items() if name != part.text}
            found = tuple(piece for word in found for piece in expand(word, others, nested=True))
        return found or ((WordPart("text", "", quoted=True),),)
    if default := taken_default(part, values):
        return ((WordPart("text", default, quoted=part.quoted),),)
    return ((replace(part, default=_expand_default(part, values)),),) if part.default else None


def _is_set(part: WordPart, values: Values) -> bool:
    """Return whether the script gives a variable a value; an empty one takes the default."""
    found = values.get(part.text)
    return found is not None and (not part.default or any(map(source_text, found)))


def taken_default(part: WordPart, values: Values) -> str:
    """Return the default that a variable without a value takes; empty if it depends on the shell of the job."""
    is_known = part.kind != "variable" or _is_set(part, values) or SET_IN_JOB.fullmatch(part.text)
    default = "" if is_known else _expand_default(part, values)
    return "" if "$" in default else without_quotes(default, quoted=part.quoted) or ""


def without_quotes(default: str, *, quoted: bool) -> str | None:
    """Return a default without its quotes; between double quotes, ``'`` is a character.  None if it needs a shell."""
    found = IN_QUOTES.fullmatch(default)
    if found and (found["sign"] == '"' or not quoted):
        return found["text"]
    return None if re.search(r'["\\]' if quoted else r"[\"'\\]", default) else default


def _is_one_word(part: WordPart, values: Values) -> bool:
    """Return whether the value of a variable is not split into words."""
    is_default = part.default is not None and not _is_set(part, values)
    return part.kind != "variable" or part.quoted or (is_default and bool(IN_QUOTES.fullmatch(part.default or "")))


def _expand_default(part: WordPart, values: Values) -> str:
    """Return the default of a variable with the values of the script's own variables."""

    def value(found: re.Match[str]) -> str:
        words = values.get(found[1] or found[2])
        return source_text(words[0]) if words else found[0]

    return USED_IN_DEFAULT.sub(value, part.default or "")


def _append(fields: list[list[WordPart]], part: WordPart, *, split: bool) -> None:
    if not split or part.kind != "text":
        fields[-1].append(replace(part, quoted=part.quoted and not split))
        return
    pieces = part.text.split()
    if part.text[:1].isspace() and fields[-1]:
        fields.append([])
    for number, piece in enumerate(pieces):
        if number:
            fields.append([])
        fields[-1].append(_pattern(piece) if is_glob(piece) else WordPart("text", piece, quoted=True))
    if part.text[-1:].isspace() and pieces:
        fields.append([])


def is_glob(text: str) -> bool:
    """Return whether the shell replaces unquoted text by the files whose names match it."""
    return bool(GLOB.search(text))


def _pattern(text: str) -> WordPart:
    """Return a pattern from the value of a variable, in which the shell expands nothing else."""
    return WordPart("shell", re.sub(r"[^\w*?\[\]!,.:/=@%+^-]", r"\\\g<0>", text))


def plain_text(word: Word) -> str | None:
    """Return the text of a word; None if it contains a variable or another expression of the shell."""
    return "".join(part.text for part in word) if all(part.kind == "text" for part in word) else None


def source_text(word: Word) -> str:
    """Return the text of a word with its variables and expressions as they are written, without quotes."""
    return "".join(part.reference if part.kind == "variable" else part.text for part in word)
