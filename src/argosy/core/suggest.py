"""Name the known word that a user probably meant; every "did you mean" comes from here."""

from __future__ import annotations

from collections.abc import Iterable


def suggest_word(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Give the known word nearest to `word`, upper or lower case alike, or nothing where none is like it.

    Parameters
    ----------
    likeness
        Between 0 (anything will do) and 1 (the same), as `difflib` counts it.
    """
    import difflib  # noqa: PLC0415 - needed by a typo only, and every start would pay for it

    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word.casefold(), list(folded), n=1, cutoff=likeness)
    return folded[near[0]] if near else ""
