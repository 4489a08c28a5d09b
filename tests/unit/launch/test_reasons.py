"""The reasons in a script: each value's own, on one line, and none lost."""

from __future__ import annotations

from argosy.core.model import Choice, ChoiceKey, Mark, Variable
from argosy.launch.script.head import render_choices, render_exports, split_choices

EXPORTS = (Variable("APPTAINERENV_ADDR", "a"), Variable("APPTAINERENV_X", "1"), Variable("APPTAINERENV_Y", "2"))


def test_the_reason_of_a_variable_is_beside_its_export_only() -> None:
    rows = (Choice("nodes", "2", "requested", "option"), Choice("X", "1", "because", "site s"))
    head, beside = split_choices(rows, EXPORTS)
    assert head == rows[:1]
    assert list(render_exports(EXPORTS, beside)) == [
        "export APPTAINERENV_ADDR=a",
        "export APPTAINERENV_X=1  # because",
        "export APPTAINERENV_Y=2",
    ]


def test_variables_with_one_reason_have_it_above_them() -> None:
    _, beside = split_choices((Choice("X, Y", "1", "because", "site s"),), EXPORTS)
    assert list(render_exports(EXPORTS[1:], beside)) == ["# because", "export APPTAINERENV_X=1 APPTAINERENV_Y=2"]


def test_a_reason_of_several_variables_stays_in_the_head_unless_all_are_exported() -> None:
    row = Choice("X, Z", "1", "because", "site s")
    assert split_choices((row,), EXPORTS) == ((row,), {})


def test_a_long_reason_is_its_first_clause_and_never_cut() -> None:
    row = Choice("X", "1", f"short and whole; {'more ' * 40}", "site s")
    _, beside = split_choices((row,), EXPORTS)
    assert list(render_exports(EXPORTS[1:2], beside)) == ["export APPTAINERENV_X=1  # short and whole"]
    rows = [Choice("runtime", "edf", row.why, "site s"), Choice("launcher", "srun", "for " * 60, "site s")]
    assert list(render_choices(rows)) == ["#   runtime = edf: short and whole"]


def test_the_head_explains_unrequested_values_beginning_with_omitted_ones() -> None:
    rows = (
        Choice("nodes", "2", "requested", "option"),
        Choice("partition", "x", "requested", "option"),
        Choice("mode", "cray", "the usual one", "site s"),
        Choice("X", "not set", "only for nodes > 1", "site s", mark=Mark.UNSET),
        Choice("--qos", "q", "not used: no queue", "option", mark=Mark.UNUSED),
    )
    assert list(render_choices(rows)) == [
        "#   X = not set: only for nodes > 1",
        "#   --qos = q: not used: no queue",
        "#   mode = cray: the usual one",
    ]


def test_a_reason_that_is_too_long_is_shortened_to_its_first_clause_or_left_out() -> None:
    clause, word = (
        Choice("mode", "cray", f"usual; {'so ' * 60}", "site s"),
        Choice("mode", "cray", "so " * 60, "site s"),
    )
    assert list(render_choices([clause])) == ["#   mode = cray: usual"]
    assert list(render_choices([word])) == []


def test_a_long_value_does_not_hide_its_reason() -> None:
    row = Choice(ChoiceKey.ASSUMED, "/appl/" + "x" * 80, "the image is not on this machine", "assumed")
    assert list(render_choices([row])) == ["#   assumed: the image is not on this machine"]


def test_a_doubtful_choice_comes_first_and_is_never_shortened() -> None:
    doubtful = Choice("nodes", "0", "so " * 60, "default", mark=Mark.DOUBTFUL)
    lines = list(render_choices([Choice("mode", "cray", "did you mean laif", "site s"), doubtful]))
    assert " ".join(line.removeprefix("#").strip() for line in lines[:-1]) == f"nodes = 0: {'so ' * 60}".strip()
    assert lines[-1] == "#   mode = cray: did you mean laif"


def test_a_users_line_break_does_not_end_a_comment() -> None:
    (line,) = render_choices([Choice("mode", "1\nrm -rf /", "asked\nfor", "site s")])
    assert "\n" not in line
