"""DeepSpeed finds the ranks that Argosy starts, and its own launcher is refused with the command to use instead."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.examples.conftest import kept_venv
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.soak]


@pytest.fixture(scope="module")
def deepspeed(examples: Path) -> Path:
    """Give a virtual environment with DeepSpeed, which is made once."""
    lines = (examples / "deepspeed/requirements.txt").read_text().splitlines()
    return kept_venv([line for line in lines if not line.startswith("#")])


def launch(venv: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    # On CPUs, DeepSpeed compiles its collectives at the first start; a killed compiler leaves a lock behind.
    own = {"TORCH_EXTENSIONS_DIR": str(folder / "extensions"), "CUDA_VISIBLE_DEVICES": ""}
    words = (sys.executable, "-m", "argosy.cli", "launch", "bare:", "--site", "local", "--ranks", "2", "--", *command)
    return subprocess.run(
        words,
        cwd=folder,
        env=os.environ | own | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        timeout=4 * PATIENCE_S,
        check=False,
    )


def test_the_ranks_of_a_launch_train_together(deepspeed: Path, examples: Path, tmp_path: Path) -> None:
    done = launch(deepspeed, tmp_path, "python", str(examples / "deepspeed/train.py"))
    assert done.returncode == 0, done.stderr
    (loss,) = re.findall(r"^2 ranks on cpu, ZeRO stage 1: loss ([0-9.]+) after 200 steps$", done.stdout, re.MULTILINE)
    assert float(loss) < 0.1


def test_deepspeeds_own_launcher_is_refused_with_the_command_to_use(deepspeed: Path, tmp_path: Path) -> None:
    done = launch(deepspeed, tmp_path, "deepspeed", "--num_gpus", "2", "train.py", "--steps", "3")
    assert done.returncode == 125
    assert "deepspeed starts ranks itself" in done.stderr
    assert "-- python train.py --steps 3" in done.stderr
