"""Find the name that a user probably meant, for "did you mean" hints."""

from __future__ import annotations

from collections.abc import Iterable

CANDIDATES = 10


def suggest_word(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return the known name that is most similar to `word`, ignoring case; empty if none is similar enough.

    Of the similar names, the one with the fewest typing errors wins.

    Parameters
    ----------
    likeness
        Minimal similarity between 0 and 1, as computed by `difflib`.
    """
    import difflib  # noqa: PLC0415 - only needed after a mistake of the user

    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word.casefold(), list(folded), n=CANDIDATES, cutoff=likeness)
    return folded[min(near, key=lambda name: count_edits(word.casefold(), name))] if near else ""


def did_you_mean(word: str, known: Iterable[str], otherwise: str, *, form: str = "{}") -> str:
    """Return the hint for an unknown name.

    Parameters
    ----------
    otherwise
        The hint if no known name is similar.
    form
        How the name is written, for example ``--runtime {}``.
    """
    near = suggest_word(word, known)
    # Not format(): the form may contain the name of a file, and that a brace.
    return f"did you mean {form.replace('{}', near)}?" if near else otherwise


def count_edits(one: str, other: str) -> int:
    """Count the typing errors between two words: a letter too many, missing or wrong, and two letters swapped.

    This is the optimal string alignment distance: https://en.wikipedia.org/wiki/Damerau-Levenshtein_distance
    """
    above: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        before, above, row = above, row, [i]
        for j, wanted in enumerate(other, 1):
            edits = min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                edits = min(edits, before[j - 2] + 1)
            row.append(edits)
    return row[-1]
