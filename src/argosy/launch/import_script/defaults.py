"""Report the defaults of variables (``${LR:-0.1}``) that an import puts into a job; pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from argosy.launch.import_script.model import Fate, Note
from argosy.slurm.script_reader import Statement
from argosy.slurm.script_words import Values, Word, taken_default

COMPUTED = "the script computes it: write its value, or set it in the program"
"""Reason why the value of a variable that a loop, a condition or ``read`` sets is not known."""


def statement_words(statement: Statement) -> tuple[Word, ...]:
    """Return the words of a command, of its input, and of the variables that precede it."""
    before = (word for _, words in statement.assigned for word in words)
    return (*before, *statement.words, *statement.inputs)


def default_notes(
    words: Iterable[Word], values: Values, computed: Collection[str] = (), *, exported: str = ""
) -> Iterator[Note]:
    """Report the variables of the user's shell whose defaults a job gets: later values of them do not reach it.

    Parameters
    ----------
    computed
        Variables that a loop, a condition or a command such as ``read`` sets.
    exported
        The variable that gets the words as its value, if it is exported.
    """
    for part in (part for word in words for part in word):
        name, default = part.text, taken_default(part, values)
        if not default:
            continue
        if name in computed:
            yield f"${name}", Fate.UNTRANSLATED, COMPUTED
            continue
        remedy = f"with --env {name}=VALUE" if name == exported else "in the table"
        note = f"fixed at {default}, whatever {name} is in your shell: change it {remedy}"
        yield part.reference, Fate.UNTRANSLATED, note
