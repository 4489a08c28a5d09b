"""Values remembered in files of the cache: whose files are used, and what happens to damaged ones."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from argosy.core.cache import read_memo, remember_text, write_memo


class Value(msgspec.Struct, frozen=True):
    name: str


def test_a_value_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_memo(tmp_path / "cache/values/a", (Value("é"), Value("b")))
    assert read_memo(tmp_path / "cache/values/a", tuple[Value, ...]) == (Value("é"), Value("b"))


@pytest.mark.parametrize("data", [b"", b"{", b'{"name": 1}', b'{"name": "\xff"}', b"[]", b"[" * 100_000])
def test_a_damaged_value_is_ignored(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a").write_bytes(data)
    assert read_memo(tmp_path / "a", Value) is None


def test_a_value_that_json_cannot_store_is_not_remembered(tmp_path: Path) -> None:
    write_memo(tmp_path / "a", Value(os.fsdecode(b"caf\xe9")))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_a_value_of_another_user_is_used_only_on_request(tmp_path: Path) -> None:
    write_memo(tmp_path / "a", Value("planted"))
    os.chown(tmp_path / "a", 4711, 4711)
    assert read_memo(tmp_path / "a", Value) is None
    assert read_memo(tmp_path / "a", Value, trust_others=True) == Value("planted")


def test_an_answer_that_cannot_be_stored_is_returned(tmp_path: Path) -> None:
    asked: list[str] = []

    def ask() -> str:
        asked.append("once more")
        return "answer"

    assert remember_text(tmp_path, ask) == "answer", "a folder has the name of the file"
    assert [remember_text(tmp_path / "cache/answer", ask) for _ in range(3)] == ["answer"] * 3
    assert len(asked) == 2
