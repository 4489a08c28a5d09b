"""Entries of a base layer are used for the image file that they were read from, and never if they are damaged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.builder.base_layer import ENTRIES, recall_entries, remember_entries
from argosy.images.sif.write import FileSlice
from argosy.images.tree_digests import Entries, describe_entries, digest_entries


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    tree = tmp_path / "tree"
    (tree / "opt/a b").mkdir(parents=True)
    (tree / "opt/a b/file").write_text("text")
    (tree / "opt/link").symlink_to("a b")
    (tree / os.fsdecode(b"opt/\xff")).touch()
    return describe_entries(tree)


@pytest.fixture
def packed(tmp_path: Path) -> FileSlice:
    image = tmp_path / "image.sif"
    image.write_bytes(bytes(100))
    return FileSlice(image, 10, 80)


def test_entries_are_recalled_in_their_order(tmp_path: Path, packed: FileSlice, entries: Entries) -> None:
    remember_entries(packed, entries, tmp_path)
    recalled = recall_entries(packed, digest_entries(entries), tmp_path)
    assert recalled is not None
    assert list(recalled.items()) == list(entries.items())


def test_another_content_or_another_file_has_no_entries(tmp_path: Path, packed: FileSlice, entries: Entries) -> None:
    remember_entries(packed, entries, tmp_path)
    content = digest_entries(entries)
    assert recall_entries(packed, f"sha256:{'0' * 64}", tmp_path) is None
    assert recall_entries(FileSlice(packed.path, 20, 70), content, tmp_path) is None
    copy = tmp_path / "copy.sif"
    copy.write_bytes(packed.path.read_bytes())
    assert recall_entries(FileSlice(copy, 10, 80), content, tmp_path) is None
    packed.path.write_bytes(bytes(101))
    assert recall_entries(packed, content, tmp_path) is None


@pytest.mark.parametrize("damage", ["changed", "short", "cut", "empty"])
def test_damaged_entries_are_not_used_and_are_replaced(
    tmp_path: Path, packed: FileSlice, entries: Entries, damage: str
) -> None:
    remember_entries(packed, entries, tmp_path)
    [file] = (tmp_path / ENTRIES).iterdir()
    data = file.read_bytes()
    damaged = {
        "changed": data.replace(b"link", b"lonk"),
        "short": data[:-1],
        "cut": data[: len(data) // 2],
        "empty": b"",
    }
    file.write_bytes(damaged[damage])
    assert recall_entries(packed, digest_entries(entries), tmp_path) is None
    remember_entries(packed, entries, tmp_path)
    assert recall_entries(packed, digest_entries(entries), tmp_path) == entries


def test_a_cache_that_cannot_be_written_remembers_nothing(tmp_path: Path, packed: FileSlice, entries: Entries) -> None:
    (tmp_path / ENTRIES).write_text("in the way")
    remember_entries(packed, entries, tmp_path)
    assert recall_entries(packed, digest_entries(entries), tmp_path) is None
