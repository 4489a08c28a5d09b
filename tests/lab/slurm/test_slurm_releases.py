"""Slurm 22.05 with bubblewrap: the same launches on the oldest release, and on machines without Apptainer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = [pytest.mark.lab, pytest.mark.soak]  # a second Debian is made for it

FOUR = ("--nodes", "2", "--ranks", "4", "--launcher", "srun")
SLEEPER = ("python", str(Path(__file__).with_name("sleeper.py")))


@pytest.fixture
def old_desk(new_desk: Callable[..., AbstractContextManager[Desk]]) -> Iterator[Desk]:
    with new_desk("--bookworm") as desk:
        yield desk


def test_slurm_22_05_gives_the_same_ranks_arguments_codes_and_warnings(old_desk: Desk) -> None:
    desk = old_desk
    assert desk.sh("sbatch --version").stdout.startswith("slurm-wlm 22.05")
    told = desk.tell(*FOUR, "--env", "X_A=`id` $HOME", words=("a  b", "", "*"))
    assert [(row["rank"], row["host"]) for row in told] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    assert len({(*row["words"], *row["hostile"].values()) for row in told}) == 1
    assert {row["set"]["MASTER_ADDR"] for row in told} == {"node1"}

    failing = ("sh", "-c", '[ "$RANK" != 3 ] || exit 42; sleep 600')
    failed = desk.follow(*FOUR, command=failing, check=False)
    assert failed.code == 42
    assert "rank 3 on node2 failed first (code 42)" in failed.stderr.splitlines()[-1]

    job = desk.submit(*FOUR, command=(*SLEEPER, "300"))
    desk.until_written(job, "ready", 4)
    assert [row["state"] for row in json.loads(desk.argosy("jobs", "--json").stdout)] == ["RUNNING"]
    desk.sh(f"scancel --batch --signal=USR1 {job}")
    desk.until_written(job, "saved after SIGUSR1", 4)
    desk.argosy("cancel", job)
    assert desk.wait(job) == "CANCELLED"
