"""Tables fit the terminal, and nothing is cut in a pipe."""

from __future__ import annotations

import pytest

from argosy.cli.cmd_explain import render_explained
from argosy.cli.output import NO_LIMIT, output_width, render_table
from argosy.launch.explain import ExplainedValue

ROWS = [("site", "lumi-g", "from the file of the user"), ("account", "p", "short")]


def test_a_table_has_aligned_columns() -> None:
    assert render_table(ROWS, 80) == "site     lumi-g  from the file of the user\naccount  p       short"


def test_the_last_cell_continues_in_its_column_on_a_terminal() -> None:
    rows = [("site", "lumi-g", "a reason that is longer than the rest of the line and wraps")]
    assert render_table(rows, 50).splitlines() == [
        "site  lumi-g  a reason that is longer than the",
        "              rest of the line and wraps",
    ]


def test_a_cell_without_room_continues_below_and_a_path_stays_whole() -> None:
    path = "/scratch/" + "x" * 40
    assert render_table([("a" * 30, f"at {path}")], 40).splitlines() == ["a" * 30, "      at", f"      {path}"]


def test_nothing_is_wrapped_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)
    monkeypatch.setenv("COLUMNS", "60")
    assert output_width() == NO_LIMIT
    row = ExplainedValue("job", "--account", "v" * 60, "a long reason " * 20, "option")
    assert [len(lines) for lines in render_explained([row], output_width(), evidence=False)] == [1]


def test_a_terminal_has_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "97")
    assert output_width() == 97
    monkeypatch.setenv("COLUMNS", "10")
    assert output_width() == 40


def test_reasons_follow_on_the_next_line_if_columns_do_not_fit() -> None:
    row = ExplainedValue("job", "--account", "p", "the reason", "option", "https://a; https://b")
    assert render_explained([row], 40, evidence=True) == [
        ["  --account = p", "      the reason [option]", "      https://a", "      https://b"]
    ]


def test_a_long_cell_moves_the_rest_of_its_row_below_and_no_column_shifts() -> None:
    path = "/scratch/" + "x" * 40
    rows = [("bind", "/a", "option", "requested"), ("bind", path, "site", "the reason of the site")]
    assert render_table(rows, 80).splitlines() == [
        "bind  /a  option  requested",
        f"bind  {path}",
        "          site    the reason of the site",
    ]
    assert [line.index("re") for line in render_table(rows, NO_LIMIT).splitlines()] == [65, 69]


def test_all_values_of_an_explanation_have_one_form() -> None:
    rows = [
        ExplainedValue("job", "--account", "p", "short", "option"),
        ExplainedValue("container", "bind", "/scratch/" + "x" * 40, "a long reason " * 4, "option"),
    ]
    narrow = [lines[0] for lines in render_explained(rows, 40, evidence=False)]
    assert [" = " in line for line in narrow] == [True, True]
    wide = render_explained(rows, 80, evidence=False)
    assert wide[0] == ["  --account  p  option  short"]
    assert [line.index("option") for line in wide[1] if "option" in line] == [wide[0][0].index("option")]
