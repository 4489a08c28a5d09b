"""What a user probably meant."""

from __future__ import annotations

import pytest

from argosy.core.suggest import count_edits, did_you_mean, suggest_word

KNOWN = ("lumi-g", "mn5-acc", "Dawn")


@pytest.mark.parametrize(
    ("word", "meant"), [("lumig", "lumi-g"), ("LUMI-G", "lumi-g"), ("dwan", "Dawn"), ("perlmutter", ""), ("", "")]
)
def test_the_nearest_name_is_suggested_in_any_case(word: str, meant: str) -> None:
    assert suggest_word(word, KNOWN) == meant


@pytest.mark.parametrize(
    ("one", "other", "edits"),
    [
        ("stie", "site", 1),
        ("stie", "time", 2),
        ("", "ab", 2),
        ("ab", "ab", 0),
        ("gups", "gpus", 1),
        ("nodes", "node", 1),
    ],
)
def test_two_swapped_letters_are_one_typing_error(one: str, other: str, edits: int) -> None:
    assert count_edits(one, other) == count_edits(other, one) == edits


def test_the_name_with_the_fewest_typing_errors_wins() -> None:
    assert suggest_word("stie", ["time", "site"]) == "site"


def test_the_form_of_a_hint_may_contain_a_name_with_braces() -> None:
    assert did_you_mean("tset", ["test"], "no", form="a{b}.toml[{}]") == "did you mean a{b}.toml[test]?"
    assert did_you_mean("other", ["test"], "no", form="a{b}.toml[{}]") == "no"
