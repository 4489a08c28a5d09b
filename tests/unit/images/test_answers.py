"""Remembered output of commands: for which file and command it is used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from argosy.core.process import Argv, Reply
from argosy.images.part_digest import remembered

COUNT = ("count", "files")


class Asked:
    """Counts how often a command runs, and prints that number."""

    def __init__(self, code: int = 0, doing: Callable[[], object] = lambda: None) -> None:
        self.code, self.times, self.doing = code, 0, doing

    def __call__(self) -> Reply:
        self.times += 1
        self.doing()
        return Reply(self.code, f"{self.times}\n", "")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.sif"
    file.write_bytes(b"a base")
    return file


def test_a_command_runs_once_for_a_file(base: Path, tmp_path: Path) -> None:
    run = Asked()
    assert [remembered(tmp_path, base, COUNT, run).stdout for _ in range(3)] == ["1\n"] * 3


@pytest.mark.parametrize(("argv", "offset"), [(("count", "folders"), 0), (("count files",), 0), (COUNT, 4096)])
def test_another_command_or_part_has_an_answer_of_its_own(base: Path, tmp_path: Path, argv: Argv, offset: int) -> None:
    remembered(tmp_path, base, COUNT, Asked())
    run = Asked()
    remembered(tmp_path, base, argv, run, offset=offset)
    assert run.times == 1


def test_the_path_of_a_command_may_be_no_utf8(base: Path, tmp_path: Path) -> None:
    run = Asked()
    assert [remembered(tmp_path, base, ("/home/\udce9/uv",), run).stdout for _ in range(2)] == ["1\n"] * 2


def test_a_changed_file_is_asked_again(base: Path, tmp_path: Path) -> None:
    remembered(tmp_path, base, COUNT, Asked())
    base.write_bytes(b"a base with one file more")
    run = Asked()
    remembered(tmp_path, base, COUNT, run)
    assert run.times == 1


def test_a_file_that_changes_meanwhile_has_no_answer(base: Path, tmp_path: Path) -> None:
    run = Asked(doing=lambda: base.write_bytes(base.read_bytes() + b"."))
    assert [remembered(tmp_path, base, COUNT, run).stdout for _ in range(2)] == ["1\n", "2\n"]


def test_a_failure_is_not_remembered(base: Path, tmp_path: Path) -> None:
    run = Asked(code=1)
    assert [remembered(tmp_path, base, COUNT, run).code for _ in range(2)] == [1, 1]
    assert run.times == 2


@pytest.mark.parametrize("text", [b"", b"{", b"{}", b"[]"])
def test_a_damaged_answer_is_not_used(base: Path, tmp_path: Path, text: bytes) -> None:
    remembered(tmp_path, base, COUNT, Asked())
    (memo,) = (tmp_path / "answers").iterdir()
    memo.write_bytes(text)
    run = Asked()
    assert remembered(tmp_path, base, COUNT, run).stdout == "1\n"
    assert run.times == 1
