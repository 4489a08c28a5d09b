"""The file system of a path, as the kernel lists it: with any bytes in the names of mount points."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from argosy.core.mounts import file_system_type

MOUNT = 'mount -t tmpfs none "$1" && shift && exec "$@"'
ASK = """
import pathlib, sys
from argosy.core.mounts import in_memory
print(*(in_memory(pathlib.Path(each)) for each in sys.argv[1:]))
"""
ANYONE = ("unshare", "--mount", "--user", "--map-root-user", "--")


def test_the_type_of_a_file_system_is_that_of_the_innermost_mount(tmp_path: Path) -> None:
    assert file_system_type(Path("/proc/self")) == "proc"
    assert file_system_type(tmp_path) not in {"", "proc"}


@pytest.mark.parametrize("name", [b"donn\xe9es", b"my scratch", b"a\\040b\nc", "\x85\u2028".encode()])
def test_a_mount_point_of_any_name_is_found(tmp_path: Path, name: bytes) -> None:
    if subprocess.run((*ANYONE, "mount", "-t", "tmpfs", "none", str(tmp_path)), check=False).returncode:
        pytest.skip("needs user namespaces")
    point = os.fsencode(tmp_path) + b"/" + name
    os.mkdir(point)  # noqa: PTH102 - bytes
    ask = (sys.executable, "-c", ASK, point + b"/x", os.fsencode(tmp_path))
    done = subprocess.run((*ANYONE, "sh", "-c", MOUNT, "sh", point, *ask), capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", str(file_system_type(tmp_path) in {"tmpfs", "ramfs"})]
