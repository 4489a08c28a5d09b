"""What a layer says is gone: read out of listings of unsquashfs, and put where unsquashfs left it out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.core.errors import CheckFailed
from argosy.images.squashfs.pack import is_whiteout, parse_whiteouts, restore_whiteouts, write_whiteout

LISTING = """\
drwxr-xr-x root/root                26 2026-11-21 13:02 /
crw-r--r-- root/root             0,  0 2026-11-21 13:02 /usr/bin/x y
crw-r--r-- root/root             1,  3 2026-11-21 13:02 /dev/null
-rw-r--r-- 0/0                       0 2026-11-21 13:02 /c 0, 0 2026-11-21 13:02 /z
crw------- 2001/2001         0,  0 2026-11-21 13:02 /etc/motd
"""


def test_only_devices_of_number_zero_mark_what_is_gone() -> None:
    assert parse_whiteouts(LISTING) == ("usr/bin/x y", "etc/motd")


def test_marks_are_put_where_they_are_missing_and_nowhere_else(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "there").touch()
    (tree / "out").symlink_to(tmp_path)
    restore_whiteouts(tree, ("usr/bin/x y", "there", "out/victim", "../victim"))
    marks = [path for path in (tree / "usr/bin/x y", tree / "usr/bin/.wh.x y") if os.path.lexists(path)]
    assert len(marks) == 1
    assert (tree / "there").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {"tree"}


def test_where_the_kernel_forbids_the_device_the_other_mark_is_written_or_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", forbid)
    restore_whiteouts(tmp_path, ("gone",))
    assert [path.name for path in tmp_path.iterdir()] == [".wh.gone"]
    with pytest.raises(CheckFailed, match="this kernel does not allow whiteouts") as caught:
        write_whiteout(tmp_path / "gone")
    assert "Operation not permitted" in caught.value.evidence


def test_a_mark_is_known_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    assert not is_whiteout(tmp_path / "plain")
    assert not is_whiteout(Path("/dev/null"))
