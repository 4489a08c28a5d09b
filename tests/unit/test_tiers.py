"""The table of the soak's tests names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiers import SOAK, is_soak

TESTS = Path(__file__).parents[1]


def test_a_test_is_soak_by_its_node_id() -> None:
    assert is_soak("tests/docs/test_docs.py::test_x[docs/how-to/wrap.md]")
    assert not is_soak("tests/docs/test_docs.py::test_x[README.md]")


@pytest.mark.parametrize("pattern", SOAK)
def test_every_row_of_the_table_matches_a_test(pattern: str) -> None:
    file, _, name = pattern.partition("::")
    function = re.compile(name.partition(r"\[")[0])
    folder = TESTS / "lab" if file.startswith("slurm") else TESTS
    paths = [path for path in folder.rglob("test_*.py") if re.match(file, str(path.relative_to(folder)))]
    names = [each for path in paths for each in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8"))]
    assert [each for each in names if function.match(each)], f"{pattern} matches no test: correct tests/tiers.py"
