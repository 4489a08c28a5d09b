"""A begun SIF file: the result has the same bytes, and a file that does not fit is not used."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from argosy.images.sif.begin import BegunFile, Copy
from argosy.images.sif.write import (
    FileSlice,
    NewPart,
    partition_offset,
    plan_json_part,
    plan_system_part,
    whole_of,
    write_sif,
)


@pytest.fixture
def base(tmp_path: Path) -> FileSlice:
    """Return a file in place of a base."""
    file = tmp_path / "base"
    file.write_bytes(bytes(range(256)) * 1000)
    return whole_of(file)


def write(folder: Path, parts: Sequence[NewPart], *copies: Sequence[Copy]) -> tuple[bytes, bool]:
    """Write a SIF file; return its bytes, and whether it is the begun file."""
    folder.mkdir()
    path = folder / "new.sif"
    with BegunFile(path) as begun:
        for each in copies:
            begun.copy(each)
        begun._wait()
        before = {file.stat().st_ino for file in folder.iterdir()}
        write_sif(path, parts, uuid=uuid.UUID(int=1), time=0, arch="amd64", begun=begun)
    assert [file.name for file in folder.iterdir()] == ["new.sif"]
    return path.read_bytes(), path.stat().st_ino in before


def test_a_begun_file_has_the_bytes_of_one_that_is_written_at_once(tmp_path: Path, base: FileSlice) -> None:
    described = plan_json_part("base", b"{}")
    pieces = (b"new superblock", base.slice_at(14, base.length - 14), b"tables")
    parts = [described, plan_system_part(pieces, arch="amd64"), plan_json_part("lock", b"{}")]
    plain, _ = write(tmp_path / "plain", parts)
    at = partition_offset((described,)) + 14
    assert write(tmp_path / "begun", parts, [(at, base.slice_at(14, base.length - 14))]) == (plain, True)


def test_a_begun_file_gets_more_copies_later(tmp_path: Path, base: FileSlice) -> None:
    half = base.length // 2
    pieces = (base.slice_at(0, half), b"tables", base.slice_at(half, 9))
    parts = [plan_system_part(pieces, arch="amd64")]
    plain, _ = write(tmp_path / "plain", parts)
    at = partition_offset(())
    first, second = (at, pieces[0]), (at + half + 6, pieces[2])
    assert write(tmp_path / "begun", parts, [first], [first, second]) == (plain, True)


def test_a_begun_file_with_other_content_is_not_used(tmp_path: Path, base: FileSlice) -> None:
    parts = [plan_system_part(base, arch="amd64")]
    plain, _ = write(tmp_path / "plain", parts)
    assert write(tmp_path / "moved", parts, [(partition_offset(()) + 1, base)]) == (plain, False)
    assert write(tmp_path / "shorter", parts, [(partition_offset(()), base.slice_at(0, 9))]) == (plain, False)


def test_a_copy_that_fails_is_made_again(tmp_path: Path, base: FileSlice) -> None:
    parts = [plan_system_part(base, arch="amd64")]
    plain, _ = write(tmp_path / "plain", parts)
    gone = FileSlice(tmp_path / "gone", 0, 1)
    assert write(tmp_path / "begun", parts, [(partition_offset(()), base), (0, gone)]) == (plain, False)


def test_a_build_without_output_leaves_no_begun_file(tmp_path: Path, base: FileSlice) -> None:
    output = tmp_path / "out" / "new.sif"
    output.parent.mkdir()
    with BegunFile(output) as begun:
        begun.copy([(0, base)])
    assert list(output.parent.iterdir()) == []
