"""`make` as an ordinary user: what is missing is named in one line, and nothing is made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.machines import python_program

SETUP = Path(__file__).parents[2] / "tools/setup"


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
