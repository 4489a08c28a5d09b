"""Ranks on real nodes: who runs where, what each is told, and the examples as users start them."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

EXAMPLES = Path(__file__).parents[3] / "examples"
FOUR = ("--nodes", "2", "--ranks", "4")
TWO_EACH = ["node1", "node1", "node2", "node2"]


PRINT = "import json, os; print(json.dumps([dict(os.environ), sorted(os.sched_getaffinity(0))]))"
OF_THE_JOB = re.compile(
    r"SLURM_(TASK_PID|CPU_BIND|CPU_BIND_LIST|(SRUN|STEP)_\w+PORT\w*|JOBID|JOB_(ID|SLUID|START_TIME|END_TIME))|\w+_PORT\Z"
    r"|JAX_COORDINATOR_ADDRESS|NCCL_DEBUG_FILE|(APPTAINER|SINGULARITY)\w*|OLDPWD|_\Z"
)
"""Variables that differ between two jobs, and the masks that srun was given."""


@pytest.mark.parametrize(
    "shape",
    [
        (*FOUR, "--cpus-per-rank", "2"),
        FOUR,
        pytest.param(("--nodes", "1", "--ranks", "4"), marks=pytest.mark.soak),
        pytest.param((*FOUR, "--exclusive", "--mem", "1G"), marks=pytest.mark.soak),
    ],
    ids=["cores", "no cores", "one node", "whole nodes"],
)
def test_a_rank_sees_the_same_in_a_container_of_its_node_and_in_its_own(desk: Desk, shape: tuple[str, ...]) -> None:
    seen: dict[str, list[tuple[dict[str, str], int]]] = {}
    for per in ("node", "rank"):
        log = ("--log-dir", per)  # srun passes on lines of 1,024 bytes
        launcher = ("--launcher", "srun", "--container-per", per)
        gpus = {"SBATCH_GPUS_PER_NODE": "2"}  # sbatch reads it, but the profile has no GPUs to plan with
        job = desk.submit(*shape, *log, *launcher, command=("python", "-c", PRINT), env=gpus)
        assert desk.wait(job) == "COMPLETED", desk.output(job)
        rows = [json.loads((desk.here / per / job / f"rank-{rank}.log").read_text()) for rank in range(4)]
        seen[per] = [(variables, len(cores)) for variables, cores in rows]
    for (node, node_cores), (rank, rank_cores) in zip(seen["node"], seen["rank"], strict=True):
        names = {
            name
            for name in node.keys() | rank.keys()
            if not OF_THE_JOB.match(name) and node.get(name) != rank.get(name)
        }
        assert {name: (node.get(name), rank.get(name)) for name in names} == {}
        assert node_cores == rank_cores


def test_lines_begin_with_their_rank_as_srun_writes_it(desk: Desk) -> None:
    for per in ("node", "rank"):
        launcher = ("--launcher", "srun", "--container-per", per, "--label")
        done = desk.follow("--nodes", "2", "--ranks", "4", *launcher, command=("python", "-c", "print('out')"))
        assert {f"{rank}: out" for rank in range(4)} <= set(done.stdout.splitlines())


@pytest.mark.parametrize("launcher", ["srun", "none"])
def test_rank_r_runs_on_node_r_div_n(desk: Desk, launcher: str) -> None:
    told = desk.tell(*FOUR, "--launcher", launcher)
    assert [row["rank"] for row in told] == [0, 1, 2, 3]
    assert [row["host"] for row in told] == TWO_EACH


LIGHTNING_READS = ("SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS_PER_NODE")
JAX_READS = ("SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


@pytest.mark.parametrize("launcher", ["srun", "none"])
def test_each_rank_gets_the_variables_that_programs_read(desk: Desk, launcher: str) -> None:
    told = desk.tell(*FOUR, "--cpus-per-rank", "2", "--launcher", launcher)
    assert len(told) == 4
    for number, row in enumerate(told):
        given = row["set"]
        assert [given[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK")] == [
            str(number),
            str(number % 2),
            str(number // 2),
        ]
        assert [given[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")] == ["4", "2", "2"]
        assert [given[name] for name in LIGHTNING_READS] == ["4", str(number), str(number % 2), str(number // 2), "2"]
        assert [given[name] for name in JAX_READS] == ["node[1-2]", "4", str(number), str(number % 2)]
        assert given["MASTER_ADDR"] == "node1"
        assert given["JAX_COORDINATOR_ADDRESS"] == f"node1:{given['MASTER_PORT']}"
        assert 20000 <= int(given["MASTER_PORT"]) < 30000
        assert len(row["cores"]) == 2


def test_torchrun_gives_the_same_ranks_to_the_same_nodes(torch_desk: Desk) -> None:
    told = torch_desk.tell(*FOUR, "--cpus-per-rank", "2")
    assert [row["host"] for row in told] == TWO_EACH
    assert [row["set"]["LOCAL_RANK"] for row in told] == ["0", "1", "0", "1"]
    assert {row["set"]["MASTER_ADDR"] for row in told} == {"node1"}
    assert {row["set"]["OMP_NUM_THREADS"] for row in told} == {"2"}


def test_ranks_follow_the_node_list_if_names_sort_differently(
    new_desk: Callable[..., AbstractContextManager[Desk]], torch_image: Path
) -> None:
    with new_desk("--hosts", "zeta,alpha") as desk:
        told = desk.tell(*FOUR, "--launcher", "srun")
        order = [row["host"] for row in told]
        assert sorted(order) == ["alpha", "alpha", "zeta", "zeta"]
        assert order[0] == order[1] == told[0]["set"]["MASTER_ADDR"]
        shared_out = desk.with_image(torch_image).tell(*FOUR, "--cpus-per-rank", "2")
        assert [row["host"] for row in shared_out] == order


@pytest.mark.parametrize(
    ("ranks", "shape"),
    [pytest.param(1, ("--ranks", "1"), marks=pytest.mark.soak), (4, (*FOUR, "--launcher", "srun"))],
)
def test_pi_is_pi_on_one_rank_and_on_four(torch_desk: Desk, ranks: int, shape: tuple[str, ...]) -> None:
    program = ("python", str(EXAMPLES / "pi/pi.py"), "--steps", "100000")
    text = torch_desk.follow(*shape, "--cpus-per-rank", "2", command=program).stdout
    found = re.search(r"^pi = ([0-9.]+)", text, re.MULTILINE)
    assert found
    assert math.isclose(float(found[1]), math.pi, abs_tol=1e-9)
    assert text.count(f" of {ranks} on node") == ranks


def test_steps_are_shared_out_by_the_number_of_ranks(torch_desk: Desk) -> None:
    # Of 64: what one process has is in the tests of the examples.
    program = ("python", str(EXAMPLES / "ddp/train.py"), "1", "1", "--snapshot", "4.pt")
    text = torch_desk.follow(*FOUR, "--cpus-per-rank", "2", command=program).stdout
    assert re.findall(r"Steps: (\d+)", text) == ["16"] * 4
