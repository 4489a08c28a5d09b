"""What takes minutes of a real cluster: a node lost to an elastic job, a smoke run that its timer ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = [pytest.mark.lab, pytest.mark.soak]

ELASTIC = ("python", str(Path(__file__).with_name("elastic.py")))


def test_an_elastic_job_continues_without_a_lost_node_and_succeeds(
    new_desk: Callable[..., AbstractContextManager[Desk]], torch_image: Path
) -> None:
    with new_desk("3") as plain:
        desk = plain.with_image(torch_image)
        job = desk.submit("--elastic", "2:3", command=(*ELASTIC, "120"))
        desk.until_written(job, "of 3 on", 3, timeout=PATIENCE_S)
        desk.cluster.control("kill", "node3")
        assert desk.wait(job, timeout=PATIENCE_S) == "COMPLETED", desk.output(job)
        said = desk.output(job)
        assert sorted(re.findall(r"^done rank (\d) of (\d)$", said, re.MULTILINE)) == [("0", "2"), ("1", "2")]
        assert "verdict: ranks: 3 of 3 started on 3 nodes" in said
        assert json.loads(desk.argosy("jobs", "show", job, "--json").stdout)["code"] == 0


def test_a_smoke_run_that_works_is_ended_by_its_timer_and_ends_well(desk: Desk) -> None:
    shape = ("--nodes", "2", "--ranks", "2", "--launcher", "srun")
    ran = desk.follow(*shape, "--smoke", command=("sh", "-c", "echo works; exec sleep 1000"), timeout=PATIENCE_S)
    assert ran.stdout.count("works") == 2
    assert "the smoke run succeeded: it ran for 120 s, and was ended" in ran.stdout
    assert "verdict: ranks: 2 of 2 started on 2 nodes" in ran.stdout
