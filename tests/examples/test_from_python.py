"""The example that uses the Python interface builds, launches and passes the program's exit code on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "from_python.py"


def start(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run((sys.executable, PROGRAM, *words), capture_output=True, text=True, check=False, cwd=folder)


def test_without_arguments_it_prints_its_usage(tmp_path: Path) -> None:
    ended = start("environment.yml", folder=tmp_path)
    assert ended.returncode == 2
    assert "Usage: python from_python.py" in ended.stderr


def test_an_error_is_one_message_without_a_traceback(tmp_path: Path) -> None:
    ended = start("missing.yml", "x.sif", "--", "true", folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr.startswith("cannot continue: ")
    assert "missing.yml" in ended.stderr


@pytest.mark.real
def test_an_image_is_built_and_its_ranks_are_launched(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("")
    ended = start("requirements.txt", "x.sif", "--", "sh", "-c", "echo one rank", folder=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "2 ranks, 2 per node" in ended.stdout
    assert ended.stdout.count("one rank") == 2
