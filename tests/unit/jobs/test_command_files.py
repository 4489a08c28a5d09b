"""The record of the files that a command names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from argosy.jobs.command_files import (
    FILES,
    MOST_BYTES,
    find_command_files,
    is_in_image,
    read_command_files,
    write_command_files,
)


def test_the_files_of_a_command_are_recorded_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()\n")
    command = ("python", "train.py", "--config", "missing.yaml", "train.py", "-v", "x" * 5000, "\0", str(tmp_path))
    write_command_files(tmp_path, command, str(tmp_path))
    (found,) = read_command_files(str(tmp_path))
    assert (found.path, found.bytes, len(found.sha256)) == (str(tmp_path / "train.py"), 8, 64)


def test_a_changed_file_differs_and_an_equal_copy_does_not(tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text("1")
    (first,) = find_command_files(("train.py",), str(tmp_path))
    os.utime(file, (1, 1))
    (later,) = find_command_files(("train.py",), str(tmp_path))
    assert first.same_as(later)
    file.write_text("2")
    (changed,) = find_command_files(("train.py",), str(tmp_path))
    assert not first.same_as(changed)


def test_the_content_of_a_large_file_is_not_read_and_files_of_the_image_are_left_out(tmp_path: Path) -> None:
    with (tmp_path / "data.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    os.mkfifo(tmp_path / "pipe")
    (found,) = find_command_files(("/usr/bin/env", "pipe", "./data.bin"), str(tmp_path))
    assert (found.bytes, found.sha256) == (MOST_BYTES + 1, "")
    assert found.same_as(found)


@pytest.mark.parametrize(
    "path", ["/usr/users/ada/train.py", "/library/ada/train.py", "/libs/train.py", "/home/ada/usr/bin/train.py"]
)
def test_homes_beside_the_folders_of_a_system_are_outside_the_image(path: str) -> None:
    assert not is_in_image(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/usr/bin/env",
            "/bin/sh",
            "/lib64/ld.so",
            "/usr/lib/python3/site.py",
            "/usr/local/bin/train",
            "/usr/share/x",
        ),
        *("/opt/argosy/env/bin/python", "/proc/self/exe"),
    ],
)
def test_files_of_a_system_are_in_the_image(path: str) -> None:
    assert is_in_image(path)


def test_a_damaged_or_missing_record_has_no_files(tmp_path: Path) -> None:
    assert read_command_files("") == ()
    assert read_command_files(str(tmp_path)) == ()
    (tmp_path / FILES).write_text('[{"path": 3}]')
    assert read_command_files(str(tmp_path)) == ()
    write_command_files(tmp_path / "none", ("true",), "/")
    assert not (tmp_path / "none").exists()
