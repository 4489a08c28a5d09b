"""Outputs a rank at a time, and what libraries are asked to tell."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

FOUR = ("--nodes", "2", "--ranks", "4", "--cpus-per-rank", "2")


@pytest.mark.parametrize("launcher", ["srun", "none", "torchrun"])
def test_each_rank_has_a_file_of_its_own(desk: Desk, request: pytest.FixtureRequest, launcher: str) -> None:
    if launcher == "torchrun":
        desk = desk.with_image(request.getfixturevalue("torch_image"))
    options = (*FOUR, "--launcher", launcher, "--log-dir", "logs of mine")
    job = desk.submit(*options, command=(*desk.telling, "a b", "$HOME"))
    assert desk.wait(job) == "COMPLETED", desk.output(job)
    files = sorted((desk.here / "logs of mine" / job).iterdir())
    assert [file.name for file in files] == [f"rank-{rank}.log" for rank in range(4)]
    told = [json.loads(file.read_text()) for file in files]
    assert [(row["rank"], row["host"]) for row in told] == [(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    assert desk.told(desk.output(job)) == []


def test_a_rank_that_fails_is_named_though_it_prints_elsewhere(desk: Desk) -> None:
    command = ("sh", "-c", 'echo said; [ "$RANK" != 3 ] || exit 42; sleep 600')
    done = desk.follow(*FOUR, "--launcher", "srun", "--log-dir", "logs", command=command, check=False)
    assert done.code == 42
    assert "rank 3 on node2 failed first" in done.stderr
    assert "said" not in done.stdout


def test_debug_reaches_every_rank_and_is_in_the_script(desk: Desk) -> None:
    command = ("sh", "-c", 'echo "$NCCL_DEBUG $TORCH_DISTRIBUTED_DEBUG $LOGLEVEL $NCCL_DEBUG_FILE"')
    done = desk.follow(*FOUR, "--launcher", "srun", "--debug", command=command)
    log = rf"{re.escape(str(desk.folder))}/sh-\d+-nccl-0-%h-%p\.log\n"
    assert re.match(rf"(INFO DETAIL INFO {log}){{4}}", done.stdout)
    only = desk.follow("--debug", "net", command=command)
    assert re.match(f"INFO   {log}", only.stdout)
    refused = desk.argosy(*desk.words("--debug", "nett", command=command), check=False)
    assert "did you mean net?" in refused.stderr
