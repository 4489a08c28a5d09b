"""Find the name that a user probably meant, for "did you mean" hints."""

from __future__ import annotations

from collections.abc import Iterable


def suggest_word(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str:
    """Return the known name that is most similar to `word`, ignoring case; empty if none is similar enough.

    Parameters
    ----------
    likeness
        Minimal similarity between 0 and 1, as computed by `difflib`.
    """
    import difflib  # noqa: PLC0415 - only needed after a mistake of the user

    folded = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word.casefold(), list(folded), n=1, cutoff=likeness)
    return folded[near[0]] if near else ""
