"""What a user probably meant."""

from __future__ import annotations

import pytest

from argosy.core.suggest import suggest_word

KNOWN = ("lumi-g", "mn5-acc", "Dawn")


@pytest.mark.parametrize(
    ("word", "meant"), [("lumig", "lumi-g"), ("LUMI-G", "lumi-g"), ("dwan", "Dawn"), ("perlmutter", ""), ("", "")]
)
def test_the_nearest_name_is_suggested_in_any_case(word: str, meant: str) -> None:
    assert suggest_word(word, KNOWN) == meant
