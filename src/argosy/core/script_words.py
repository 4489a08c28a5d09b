"""Represent the words of a shell script with their variables, and expand them as the shell does; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from argosy.core.records import replace

PartKind = Literal["text", "variable", "shell"]


class Part(msgspec.Struct, frozen=True):
    """A part of a word.

    Attributes
    ----------
    kind
        ``text``: plain text; ``variable``: a variable by its name; ``shell``: anything else that the shell expands,
        for example ``$(date)`` or ``*.py``, as it is written.
    text
        The text, the variable's name, or the expression.
    default
        Text after ``:-`` in ``${NAME:-text}``; None if there is none.
    quoted
        Whether the part is inside double quotes, so that its value is not split into words.
    all_elements
        Whether the part is all elements of an array (``${NAME[@]}``); ``$NAME`` is the first one.
    """

    kind: PartKind
    text: str
    default: str | None = None
    quoted: bool = False
    all_elements: bool = False

    @property
    def reference(self) -> str:
        """The name of a variable as it is written in braces."""
        return f"{self.text}[@]" if self.all_elements else self.text


Word = tuple[Part, ...]
"""One word of a command as it is written: ``--nodes=$N`` is the text ``--nodes=`` and the variable ``N``."""

Values = Mapping[str, tuple[Word, ...]]
"""Variables of a script: name -> words; an array has several words, any other variable has one."""


def expand(word: Word, values: Values, *, nested: bool = False) -> tuple[Word, ...]:
    """Replace the variables of a word by their values, and split unquoted values into words, as the shell does.

    A variable without a value takes its default, or stays as it is.

    Parameters
    ----------
    nested
        Whether the values contain variables that have values, too.
    """
    fields: list[list[Part]] = [[]]
    for part in word:
        found = _value(part, values, nested=nested)
        if found is None:
            fields[-1].append(part)
            continue
        for number, each in enumerate(found):
            if number:
                fields.append([])
            for inner in each:
                _append(fields, inner, split=part.kind == "variable" and not part.quoted)
    kept = [tuple(field) for field in fields if field]
    return tuple(kept)


def _value(part: Part, values: Values, *, nested: bool) -> tuple[Word, ...] | None:
    if part.kind != "variable":
        return ((part,),)
    if part.text in values:
        elements = values[part.text] if part.all_elements else values[part.text][:1]
        found = tuple(map(quoted_word, elements))
        if nested:
            others = {name: value for name, value in values.items() if name != part.text}
            found = tuple(piece for word in found for piece in expand(word, others, nested=True))
        return found or ((Part("text", "", quoted=True),),)
    if part.default is not None and "$" not in part.default:
        return ((Part("text", part.default.strip("\"'"), quoted=part.quoted),),)
    return None


def quoted_word(word: Word) -> Word:
    """Return a word whose values are not split: those of assignments, and values that are split where they are used."""
    return tuple(replace(part, quoted=True) for part in word)


def _append(fields: list[list[Part]], part: Part, *, split: bool) -> None:
    if not split or part.kind != "text":
        fields[-1].append(replace(part, quoted=part.quoted and not split))
        return
    pieces = part.text.split()
    if part.text[:1].isspace() and fields[-1]:
        fields.append([])
    for number, piece in enumerate(pieces):
        if number:
            fields.append([])
        fields[-1].append(Part("text", piece, quoted=True))
    if part.text[-1:].isspace() and pieces:
        fields.append([])


def plain_text(word: Word) -> str | None:
    """Return the text of a word; None if it contains a variable or another expression of the shell."""
    return "".join(part.text for part in word) if all(part.kind == "text" for part in word) else None


def source_text(word: Word) -> str:
    """Return the text of a word with its variables and expressions as they are written, without quotes."""
    return "".join(f"${{{part.reference}}}" if part.kind == "variable" else part.text for part in word)
