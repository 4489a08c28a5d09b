"""The reasons in a script: each value's own, on one line, and none lost."""

from __future__ import annotations

from argosy.core.model import Choice, Variable
from argosy.launch.script.reasons import WIDTH, render_choices, render_exports, split_choices

EXPORTS = (Variable("APPTAINERENV_ADDR", "a"), Variable("APPTAINERENV_X", "1"), Variable("APPTAINERENV_Y", "2"))


def test_the_reason_of_a_variable_stands_beside_it_and_nowhere_else() -> None:
    rows = (Choice("nodes", "2", "asked for", "option"), Choice("X", "1", "because", "site s"))
    head, beside = split_choices(rows, EXPORTS)
    assert head == rows[:1]
    assert list(render_exports(EXPORTS, beside)) == [
        "export APPTAINERENV_ADDR=a",
        "export APPTAINERENV_X=1  # because [site]",
        "export APPTAINERENV_Y=2",
    ]


def test_variables_with_one_reason_have_it_above_them() -> None:
    _, beside = split_choices((Choice("X, Y", "1", "because", "site s"),), EXPORTS)
    assert list(render_exports(EXPORTS[1:], beside)) == [
        "# because [site]",
        "export APPTAINERENV_X=1 APPTAINERENV_Y=2",
    ]


def test_a_reason_of_several_variables_stays_in_the_head_where_one_of_them_is_not_exported() -> None:
    row = Choice("X, Z", "1", "because", "site s")
    assert split_choices((row,), EXPORTS) == ((row,), {})


def test_neighbours_with_one_reason_share_a_line_while_they_fit() -> None:
    rows = [Choice(f"option {n}", "1", "asked for", "option") for n in range(3)]
    assert list(render_choices(rows)) == ["#   option 0 = 1, option 1 = 1, option 2 = 1: asked for [option]"]
    many = [Choice(f"option {n}", "1", "asked for", "option") for n in range(30)]
    assert len(list(render_choices(many))) == len(many)


def test_a_long_reason_is_cut_and_keeps_its_source() -> None:
    (line,) = render_choices([Choice("bind", "/a " * 60, "for " * 60, "site s")])
    assert len(line) <= WIDTH
    assert line.endswith("… [site]")
    assert "/a …: for" in line


def test_a_users_line_break_does_not_end_a_comment() -> None:
    (line,) = render_choices([Choice("X", "1\nrm -rf /", "asked\nfor", "option")])
    assert "\n" not in line
