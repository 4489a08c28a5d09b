"""`argosy sites new` on a real cluster: the profile that it writes launches there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab


def test_a_profile_made_by_asking_the_cluster_launches_two_nodes_there(desk: Desk) -> None:
    said = desk.argosy("sites", "new", "asked", "--on-node", "--json").stdout
    assert json.loads(said)["open_questions"]
    assert "0 found" in desk.argosy("sites", "lint", "argosy-sites/asked.toml").stderr
    node = desk.sh("argosy sites show asked").stdout
    for line in ("node.cores = 8", "node.gpus = 2", "node.gpu_vendor = nvidia", "runtime.name = apptainer"):
        assert line in node
    words = ("launch", desk.image, "--site", "asked", "--nodes", "2", "--gpus-per-node", "2", "--launcher", "srun")
    rows = desk.told(desk.argosy(*words, "--follow", "--", *desk.telling).stdout)
    assert [row["rank"] for row in rows] == [0, 1, 2, 3]
