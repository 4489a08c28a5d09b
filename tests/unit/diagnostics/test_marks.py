"""What marks a line of a log: each mark fits its own example and no other of its kind does."""

from __future__ import annotations

import re

import pytest

from argosy.diagnostics.why.phrases import LineKind, read_marks


@pytest.mark.parametrize("kind", LineKind)
def test_each_mark_alone_of_its_kind_fits_its_example(kind: LineKind) -> None:
    table = read_marks()[kind]
    flags = re.IGNORECASE if table.ignore_case else 0
    alone = [(mark.example, [mark.pattern]) for mark in table.marks]
    assert [(line, [m.pattern for m in table.marks if re.search(m.pattern, line, flags)]) for line, _ in alone] == alone
    assert all(kind.matches(line) for line, _ in alone)


@pytest.mark.parametrize("kind", LineKind)
def test_each_kind_says_what_its_lines_mean(kind: LineKind) -> None:
    assert read_marks()[kind].says.endswith(".")


def test_a_kind_matches_lines_with_one_of_its_marks_only() -> None:
    assert LineKind.DONE.matches("All done.")
    assert not LineKind.DONE.matches("done with step 3")
    assert LineKind.REFUSED.matches("Connection REFUSED")
    assert not LineKind.REPORTED.matches("a critical point")


def test_each_kind_of_line_has_marks() -> None:
    assert set(read_marks()) == set(LineKind)


def test_no_pattern_depends_on_the_place_of_its_groups() -> None:
    patterns = [mark.pattern for table in read_marks().values() for mark in table.marks]
    assert [pattern for pattern in patterns if re.search(r"\\[1-9]", pattern)] == []
