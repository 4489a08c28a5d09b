"""Setting up a machine: what is missing is named in one line, and the lab uses the mirror of apt."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.machines import python_program

REPO = Path(__file__).parents[2]
SETUP = REPO / "tools/setup"


def test_without_root_the_missing_packages_are_named_in_one_line(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "id").write_text("#!/bin/sh\necho 2001\n")
    (programs / "bwrap").write_text("#!/bin/sh\n")
    for path in programs.iterdir():
        path.chmod(0o755)
    words = ("/bin/sh", str(SETUP), sys.executable, str(tmp_path / "venv"))
    said = subprocess.run(words, capture_output=True, text=True, check=False, env={"PATH": str(programs)})
    assert (said.returncode, said.stdout) == (4, "")
    (line,) = said.stderr.splitlines()
    assert line.startswith("setup: these Debian packages are missing; as root: apt-get install -y squashfs-tools ")
    assert "bubblewrap" not in line
    assert not (tmp_path / "venv").exists()


def test_lint_and_unit_tests_need_few_packages(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "id").write_text("#!/bin/sh\necho 2001\n")
    (programs / "id").chmod(0o755)
    words = ("/bin/sh", str(SETUP), sys.executable, str(tmp_path / "venv"), "check")
    said = subprocess.run(words, capture_output=True, text=True, check=False, env={"PATH": str(programs)})
    assert (said.returncode, said.stdout) == (4, "")
    assert said.stderr.endswith("apt-get install -y bubblewrap squashfs-tools shellcheck git\n")


@pytest.mark.parametrize("name", ["gawk", "mawk"])
def test_the_mirror_of_apt_is_found_with_every_awk(tmp_path: Path, name: str) -> None:
    awk = shutil.which(name)
    if awk is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "awk").symlink_to(awk)
    stubs = "os_release() { echo debian trixie; }; apt-get() { echo http://mirror.example.org/debian/ trixie main; }"
    script = f". '{REPO}/lab/lib/mirror.sh'; {stubs}; find_mirror"
    said = subprocess.run(
        ("/bin/bash", "-euc", script), capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)}
    )
    assert (said.stdout, said.stderr) == ("http://mirror.example.org/debian\n", "")


@pytest.mark.parametrize("folder", ["a folder, it's one", "/".join(["long" * 20] * 3)])
def test_a_stub_runs_if_the_path_of_python_is_long_or_has_blanks(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / folder / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    monkeypatch.setattr("sys.executable", str(python))
    program = tmp_path / "program"
    program.write_text(python_program("import sys\nprint(sys.argv[1:])\n"))
    program.chmod(0o755)
    assert subprocess.run((program, "a  b"), capture_output=True, text=True, check=True).stdout == "['a  b']\n"
