"""What marks a line of a log: each mark fits its own example and no other of its kind does; a bad table is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from argosy.core.errors import UsageError
from argosy.diagnostics.why.marks import DATA, LineKind, LogMark, MarkTable, compile_marks, read_marks


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


def write_table(folder: Path, old: str, new: str) -> Path:
    """Write the table with another text in the place of the first `old`."""
    text = DATA.read_text(encoding="utf-8")
    assert old in text
    file = folder / "marks.toml"
    file.write_text(text.replace(old, new, 1), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("pattern = '^all good\\b'\nexample", "pattern = '^all good\\b'\nsample", ["well", "^all good", "sample"]),
        ("pattern = '^all good\\b'\n", "", ["well", "pattern"]),
        ("[done]\nsays", "[done]\nsaid", ["done", "said"]),
        ("[done]", "[gone]", ["gone"]),
        ("[done]", "[done", ["Expected", "line"]),
    ],
)
def test_a_wrong_key_is_refused_with_the_name_of_its_mark(tmp_path: Path, old: str, new: str, named: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        read_marks(write_table(tmp_path, old, new))
    assert [word for word in named if word not in refused.value.evidence] == []


@pytest.mark.parametrize("pattern", ["an (open bracket", "(?i)a flag for the whole expression"])
def test_a_pattern_that_is_not_a_regular_expression_is_named(pattern: str) -> None:
    marks = tuple(LogMark(pattern=each, example="x") for each in ("x", pattern))
    with pytest.raises(UsageError) as refused:
        compile_marks("well", MarkTable(says="It went well.", marks=marks))
    assert f"well, the mark {pattern!r}" in refused.value.evidence


def test_no_pattern_depends_on_the_place_of_its_groups() -> None:
    patterns = [mark.pattern for table in read_marks().values() for mark in table.marks]
    assert [pattern for pattern in patterns if re.search(r"\\[1-9]", pattern)] == []
