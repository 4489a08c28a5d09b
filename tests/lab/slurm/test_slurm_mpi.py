"""MPI over two nodes: mpi4py in an image that holds Open MPI and MPICH, started by Slurm's wire-up and by mpiexec."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.conftest import Lab
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

FOUR = ("--nodes", "2", "--ranks", "4", "--launcher", "mpi")
PROGRAM = ("python", str(Path(__file__).with_name("mpi_tell.py")))
HYDRA = '#!/bin/sh\nexec /usr/bin/mpiexec.hydra "$@"\n'


@pytest.fixture
def mpi_desk(desk: Desk, mpi_image: Path) -> Desk:
    """Give a desk with that image."""
    return desk.with_image(mpi_image)


@pytest.mark.parametrize(("kind", "wire_up"), [("openmpi", "pmix"), ("mpich", "mpiexec")])
def test_ranks_of_two_nodes_add_up_by_mpi(mpi_desk: Desk, kind: str, wire_up: str) -> None:
    if wire_up == "pmix" and not mpi_desk.cluster.has_mpi(wire_up):
        pytest.skip("the Slurm of this root file system has no plugin for PMIx")
    options = (*FOUR, "--env", f"MPI4PY_MPIABI={kind}")
    if wire_up == "mpiexec":
        plain = (mpi_desk.cluster.shared / "site.toml").read_text()
        mpi_desk.write("site.toml", plain + '[launcher]\nmpiexec = "hydra"\n')
        mpi_desk.write("mpiexec", HYDRA)
        path = {"PATH": f"{mpi_desk.folder}:/usr/local/bin:/usr/bin:/bin"}
        words = ["launch", mpi_desk.image, "--site", f"{mpi_desk.folder}/site.toml", *options, "--follow"]
        # Debian 12's MPICH waits in MPI_Finalize now and then, here too; its time limit ends it then.
        done = mpi_desk.argosy(*words, "--time", "1", "--", *PROGRAM, env=path, check=False)
    else:
        done = mpi_desk.follow(*options, "--mpi", wire_up, command=PROGRAM)
    told = mpi_desk.told(done.stdout)
    assert [(row["rank"], row["size"], row["sum"]) for row in told] == [(rank, 4, 6) for rank in range(4)]
    assert [row["host"] for row in told] == ["node1", "node1", "node2", "node2"]
    assert {row["library"] for row in told} == {"Open MPI" if kind == "openmpi" else "MPICH"}
    for rank, row in enumerate(told):
        assert row["set"] == {
            "RANK": str(rank),
            "WORLD_SIZE": "4",
            "LOCAL_RANK": str(rank % 2),
            "LOCAL_WORLD_SIZE": "2",
            "NODE_RANK": str(rank // 2),
            "MASTER_ADDR": "node1",
            "SLURM_PROCID": str(rank),
            "SLURM_NTASKS": "4",
            "SLURM_LOCALID": str(rank % 2),
            "SLURM_NTASKS_PER_NODE": "2",
            "SLURM_NODEID": str(rank // 2),
        }
    assert "verdict: ranks: 4 of 4 started on 2 nodes" in done.stdout


def test_mpich_meets_by_pmi2(lab: Lab, new_desk: Callable[..., AbstractContextManager[Desk]]) -> None:
    program = str(Path(__file__).with_name("mpi_sum.py"))
    # The lab's own root file system has an MPICH that ends under PMI-2; Debian 12's waits in MPI_Finalize.
    with new_desk("--bind", f"{lab.root}:/root-image:ro") as desk:
        options = (*FOUR, "--mpi", "pmi2")
        done = desk.with_path("/root-image").follow(*options, command=("python3", program, "mpich"))
    told = desk.told(done.stdout)
    assert [(row["rank"], row["size"], row["sum"]) for row in told] == [(rank, 4, 6) for rank in range(4)]
    assert [row["host"] for row in told] == ["node1", "node1", "node2", "node2"]
    assert [row["set"]["NODE_RANK"] for row in told] == ["0", "0", "1", "1"]
