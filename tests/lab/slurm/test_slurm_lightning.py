"""Lightning over two nodes: it finds its ranks by torchrun's variables, and by Slurm's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

TRAIN = str(Path(__file__).parents[3] / "examples/lightning/train.py")


# Four ranks load torch and Lightning on two cores, so only the default launcher runs in every test run.
@pytest.mark.parametrize("launcher", [pytest.param("srun", marks=pytest.mark.soak), "torchrun"])
def test_lightning_shares_its_steps_out_over_two_nodes(desk: Desk, lightning_image: Path, launcher: str) -> None:
    options = ("--nodes", "2", "--ranks", "4", "--cpus-per-rank", "2", "--launcher", launcher)
    command = ("python", TRAIN, "--epochs", "3")
    text = desk.with_image(lightning_image).follow(*options, command=command, timeout=400).stdout
    found = sorted(re.findall(r"^rank (\d) of 4 on (node\d): (\d+) steps an epoch$", text, re.MULTILINE))
    assert found == [(str(rank), f"node{rank // 2 + 1}", "11") for rank in range(4)]
    (accuracy,) = re.findall(r"^test accuracy ([0-9.]+) · 4 ranks$", text, re.MULTILINE)
    assert float(accuracy) > 0.5
