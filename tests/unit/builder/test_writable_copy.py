"""Changes of a base: mount points are removed, and links never lead out of the copy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from argosy.builder.backends.writable_copy import apply_changes, drop_mount_points, move_changes
from argosy.images.squashfs.pack import write_whiteout


def test_empty_mount_points_are_removed_and_others_stay(tmp_path: Path) -> None:
    for folder in ("data/me/wheels", "opt/full", "etc"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "data/me/a.whl").touch()
    (tmp_path / "opt/full/file").write_text("x")
    (tmp_path / "etc/link").symlink_to("nowhere")
    drop_mount_points(tmp_path, ("/data/me/wheels", "/data/me/a.whl", "/opt/full", "/etc/link", "/not/there"))
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "etc",
        "etc/link",
        "opt",
        "opt/full",
        "opt/full/file",
    ]


def test_a_removed_file_below_a_link_is_not_removed_on_this_machine(tmp_path: Path) -> None:
    upper, tree, outside = tmp_path / "upper", tmp_path / "tree", tmp_path / "outside"
    for folder in (upper / "opt", tree, outside):
        folder.mkdir(parents=True)
    (outside / "file").touch()
    (tree / "opt").symlink_to(outside)
    write_whiteout(upper / "opt/file")
    apply_changes(upper, tree)
    assert (outside / "file").exists()


def test_an_empty_folder_below_a_link_is_not_removed_on_this_machine(tmp_path: Path) -> None:
    upper, outside = tmp_path / "upper", tmp_path / "outside"
    (outside / "wheels").mkdir(parents=True)
    upper.mkdir()
    (upper / "data").symlink_to(outside)
    drop_mount_points(upper, ("/data/wheels",))
    assert (outside / "wheels").is_dir()


@contextmanager
def without_privileges(folder: Path) -> Iterator[None]:
    """Own a folder as a user whom modes of folders bind; root becomes such a user for the block."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    os.chown(folder, nobody, -1)
    os.seteuid(nobody)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_change_replaces_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the folders above may be closed to other users
    upper, tree = Path("upper"), Path("tree")
    with without_privileges(tmp_path):
        upper.mkdir()
        (upper / "data").write_text("a file now")
        (tree / "data").mkdir(parents=True)
        (tree / "data/file").touch()
        (tree / "data").chmod(0o555)
        assert move_changes(upper, tree)
    assert (tree / "data").read_text() == "a file now"
