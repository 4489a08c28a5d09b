"""Findings are rendered one a line; colours are for terminals only."""

from __future__ import annotations

import pytest

from argosy.cli import output
from argosy.core.findings import FileFinding, Finding, State, has_failed, render_findings

GOOD, BAD = Finding("runtime", State.OK, "apptainer 1.4"), Finding("GPUs", State.FAIL, "none", "ask for some")
FAULT = FileFinding(
    "port", State.FAIL, "port 1", "derive it", path="a.sh", line=2, why="jobs collide", source="https://x.org"
)


def test_findings_are_aligned_with_their_hints_below() -> None:
    text = "ok       runtime  apptainer 1.4\nfail     GPUs     none\n                  -> ask for some"
    assert render_findings((GOOD, BAD)) == text


def test_text_that_does_not_fit_the_terminal_continues_in_its_column() -> None:
    finding = Finding(
        "GPUs", State.FAIL, "none was found on this machine at all", "ask the support team for some of them"
    )
    assert render_findings((finding,), columns=45).splitlines() == [
        "fail     GPUs  none was found on this machine",
        "               at all",
        "               -> ask the support team for",
        "                  some of them",
    ]


def test_a_fault_in_a_file_begins_with_its_place() -> None:
    assert (
        render_findings((FAULT,)) == "a.sh:2: fail: port 1 [port]\n    jobs collide (https://x.org)\n    -> derive it"
    )


def test_colour_changes_nothing_but_the_state() -> None:
    assert render_findings((BAD,), colour=True).startswith("\x1b[31mfail   \x1b[0m  GPUs")


def test_only_a_failed_check_counts_as_failed() -> None:
    states = (State.OK, State.WARN, State.UNKNOWN)
    assert not has_failed(Finding("x", state, "") for state in states)
    assert has_failed((GOOD, BAD))


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_are_for_terminals_without_no_color(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,  # noqa: FBT001 - a parameter of the test
    no_color: str,
    coloured: bool,  # noqa: FBT001 - likewise
) -> None:
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    assert output.print_findings((BAD,), as_json=False) == 7
    # click itself strips colours that a pipe should not get, so the decision is tested without it.
    assert output.use_colour() is coloured
    assert "none" in capsys.readouterr().out
