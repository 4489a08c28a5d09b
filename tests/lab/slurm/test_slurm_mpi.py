"""MPI over two nodes, started by Slurm's own wire-up: Open MPI by PMIx, MPICH by PMI-2, libraries within the image."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from tests.lab.conftest import Lab
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

PROGRAM = str(Path(__file__).with_name("mpi_sum.py"))


@pytest.fixture
def mpi_desk(lab: Lab, new_desk: Callable[..., AbstractContextManager[Desk]]) -> Iterator[Desk]:
    """Give a desk whose image is the lab's own root file system, which has both."""
    with new_desk("--bind", f"{lab.root}:/root-image:ro") as desk:
        yield desk.with_path("/root-image")


@pytest.mark.parametrize(("kind", "wire_up"), [("openmpi", "pmix"), ("mpich", "pmi2")])
def test_ranks_of_two_nodes_add_up_and_know_who_they_are(mpi_desk: Desk, kind: str, wire_up: str) -> None:
    options = ("--nodes", "2", "--ranks", "4", "--launcher", "mpi", "--mpi", wire_up)
    done = mpi_desk.follow(*options, command=("python3", PROGRAM, kind))
    told = mpi_desk.told(done.stdout)
    assert [(row["rank"], row["size"], row["sum"]) for row in told] == [(rank, 4, 6) for rank in range(4)]
    assert [row["host"] for row in told] == ["node1", "node1", "node2", "node2"]
    for rank, row in enumerate(told):
        assert row["set"] == {
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "LOCAL_RANK": str(rank % 2),
            "NODE_RANK": str(rank // 2),
            "MASTER_ADDR": "node1",
        }
