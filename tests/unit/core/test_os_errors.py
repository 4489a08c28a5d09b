"""A file that the user named and that cannot be read is an error with a hint."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest

from argosy.core.errors import DiskFull, UsageError
from argosy.core.os_errors import ELSEWHERE, naming_option, reading, translate_os_errors


def test_a_missing_file_has_the_hint_of_a_similar_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.sh").touch()
    with pytest.raises(UsageError, match=r"no such file: trian\.sh") as caught, reading("trian.sh"):
        Path("trian.sh").read_bytes()
    assert caught.value.hint == "did you mean train.sh?"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError) as caught, translate_os_errors(tmp_path):
        (tmp_path / "file/mount/x").mkdir()
    assert caught.value.what == f"{tmp_path}/file is a file, not a folder"
    assert "ARGOSY_CACHE" in caught.value.hint


def test_a_folder_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Is a directory") as caught, reading(tmp_path):
        tmp_path.read_bytes()
    assert str(tmp_path) in caught.value.evidence


def test_pipes_sockets_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for special in (tmp_path / "pipe", tmp_path / "socket", Path("/dev/zero")):
            with pytest.raises(UsageError, match=f"{special} is a device or a pipe"), reading(special):
                pytest.fail("it was read")


def test_a_pipe_that_a_shell_has_opened_is_read() -> None:
    ours, theirs = os.pipe()
    os.close(theirs)
    with reading(f"/dev/fd/{ours}"):
        assert Path(f"/dev/fd/{ours}").read_bytes() == b""
    os.close(ours)


@pytest.mark.parametrize(("folder", "option"), [("prefix", "--prefix"), ("prefix2", ELSEWHERE), ("cache", ELSEWHERE)])
def test_a_full_disk_names_the_option_of_its_own_folder(tmp_path: Path, folder: str, option: str) -> None:
    full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / folder / "versions/1"))
    with (
        pytest.raises(DiskFull) as caught,
        naming_option(tmp_path / "prefix", "--prefix"),
        translate_os_errors(tmp_path / folder),
    ):
        raise full
    assert caught.value.hint.endswith(f" with {option}")
