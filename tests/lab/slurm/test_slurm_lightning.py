"""Lightning over two nodes: it finds its ranks by torchrun's variables, and by Slurm's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

TRAIN = str(Path(__file__).parents[3] / "examples/lightning/train.py")


# Each rank loads torch and Lightning, on two cores: so every test run has the default launcher and a rank per node.
@pytest.mark.parametrize(
    ("launcher", "ranks", "steps"),
    [
        ("torchrun", 2, "22"),
        pytest.param("torchrun", 4, "11", marks=pytest.mark.soak),
        pytest.param("srun", 4, "11", marks=pytest.mark.soak),
    ],
)
def test_lightning_shares_its_steps_out_over_two_nodes(
    desk: Desk, lightning_image: Path, launcher: str, ranks: int, steps: str
) -> None:
    options = ("--nodes", "2", "--ranks", str(ranks), "--cpus-per-rank", "2", "--launcher", launcher)
    command = ("python", TRAIN, "--epochs", "2")
    text = desk.with_image(lightning_image).follow(*options, command=command, timeout=PATIENCE_S).stdout
    found = sorted(re.findall(rf"^rank (\d) of {ranks} on (node\d): (\d+) steps an epoch$", text, re.MULTILINE))
    assert found == [(str(rank), f"node{rank * 2 // ranks + 1}", steps) for rank in range(ranks)]
    (accuracy,) = re.findall(rf"^test accuracy ([0-9.]+) · {ranks} ranks$", text, re.MULTILINE)
    assert float(accuracy) > 0.5
