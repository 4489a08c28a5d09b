"""What other users may read."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from argosy.core.shared_folders import give_to_group, is_public


def test_a_file_is_public_if_each_user_may_read_it_and_enter_the_folders_above() -> None:
    base = Path(tempfile.mkdtemp(dir="/tmp"))  # the folders above tmp_path are private
    try:
        base.chmod(0o755)
        private, image = base / "private", base / "private/a.sif"
        private.mkdir()
        image.touch()
        image.chmod(0o644)
        private.chmod(0o755)
        assert is_public(image)
        assert is_public(private)
        private.chmod(0o700)
        assert not is_public(image)
        private.chmod(0o711)
        image.chmod(0o640)
        assert not is_public(image)
    finally:
        shutil.rmtree(base)


@pytest.fixture
def linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in a prefix that is a hard link, with another group than the prefix shall have."""
    (tmp_path / "cache").write_bytes(b"image")
    (tmp_path / "cache").chmod(0o640)
    (tmp_path / "version").mkdir()
    os.link(tmp_path / "cache", tmp_path / "version/image.sif")
    monkeypatch.setattr(os, "chown", lambda *_args, **_options: None)
    return tmp_path / "version/image.sif"


def test_a_hard_link_becomes_a_copy_which_no_planted_link_redirects(linked: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    linked.with_name(".image.sif.copy").symlink_to(victim)
    give_to_group(linked, 12345)
    assert (linked.read_bytes(), linked.is_symlink(), linked.stat().st_nlink) == (b"image", False, 1)
    assert linked.stat().st_mode & 0o777 == 0o640
    assert victim.read_text() == "mine"


def test_a_copy_that_fails_leaves_nothing(linked: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_files: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfileobj", fail)
    give_to_group(linked, 12345)
    assert [each.name for each in linked.parent.iterdir()] == ["image.sif"]
