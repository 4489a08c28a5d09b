from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from argosy.core.process import FakeRunner, Reply
from argosy.launch.resolve import gpus_per_node, with_allocated_gpus
from tests.unit.machines import make_host, make_session

if TYPE_CHECKING:
    from collections.abc import Mapping

ROW = "JobId=7 JobName=interactive NumNodes=2 TRES=cpu=8,node=2 Command=sh WorkDir=/ TresPerNode=gres/gpu:4"


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        ({"TresPerNode": "gres/gpu:4"}, 4),
        ({"TresPerNode": "gres:gpu:a100:4"}, 4),
        ({"TresPerNode": "lustre:1,gpu:2"}, 2),
        ({"TresPerNode": "gres/nvme:1,gres/gpu:h100:2", "AllocTRES": "gres/gpu=9"}, 2),
        ({"NumNodes": "4", "AllocTRES": "cpu=8,gres/gpu=16,gres/gpu:a100=16"}, 4),
        ({"NumNodes": "2-2", "TresPerJob": "gres/gpu:8"}, 4),
        ({"NumNodes": "2", "TRES": "cpu=8,node=2,billing=8"}, 0),
        ({"TresPerNode": "gres/gpumem:4"}, 0),
        ({}, 0),
    ],
)
def test_gpus_of_a_node_are_those_that_slurm_lists(facts: Mapping[str, str], gpus: int) -> None:
    assert gpus_per_node(facts) == gpus


@pytest.mark.parametrize(
    ("environment", "reply", "gpus"),
    [
        ({"SLURM_JOB_ID": "7"}, Reply(0, ROW, ""), "4"),
        ({"SLURM_JOB_ID": "7", "SLURM_GPUS_ON_NODE": "2"}, Reply(0, ROW, ""), ""),
        ({"SLURM_JOB_ID": "7"}, Reply(1, "", "Invalid job id specified"), ""),
        ({}, Reply(0, ROW, ""), ""),
    ],
)
def test_slurm_is_asked_if_the_shell_of_salloc_does_not_tell(
    environment: dict[str, str], reply: Reply, gpus: str
) -> None:
    runner = FakeRunner([(("scontrol",), reply)])
    host = with_allocated_gpus(make_session(host=make_host(environment=environment), runner=runner))
    assert host.environment.get("SLURM_GPUS_PER_NODE", "") == gpus
