"""A cluster that keeps accounts: jobs that left the queue, and what an account may use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.lab.slurm.conftest import Desk

pytestmark = [pytest.mark.lab, pytest.mark.soak]

GIVE_ACCOUNT = """\
sacctmgr --immediate add account proj Description=p
sacctmgr --immediate add qos long MaxWall=2-0 MaxJobsPU=3
sacctmgr --immediate add user alice account=proj
sacctmgr --immediate modify user where name=alice set qos+=long
sacctmgr --immediate add qos limited MaxWall=1:00:00 MaxTRESPerUser=node=1
scontrol update partitionname=main qos=limited
"""


def test_accounting_knows_jobs_that_slurm_forgot_and_the_limits_of_a_qos(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    enforced = "AccountingStorageEnforce=associations,limits,qos"
    with new_desk("--accounting", "--slurm", "MinJobAge=2", "--slurm", enforced, "2") as desk:
        desk.cluster.sh(GIVE_ACCOUNT, user="root")
        for option, hint in (("--account", "sacctmgr show associations"), ("--qos", "sacctmgr show associations")):
            refused = desk.argosy(*desk.words(option, "nobodys", command=("true",)), check=False)
            assert (refused.code, "desk rejects this job" in refused.stderr, hint in refused.stderr) == (
                125,
                True,
                True,
            )
        told = json.loads(desk.argosy("queues", "--json").stdout)
        assert [each["account"] for each in told["accounts"]] == ["proj"]
        assert {qos["name"]: (qos["limit"], qos["running"]) for qos in told["qos"]} == {
            "normal": ("", ""),
            "long": ("2-00:00:00", "3"),
            "limited": ("01:00:00", ""),
        }
        shown = desk.argosy("queues").stdout
        assert "QOS limited of partition main: up to 01:00:00, node=1 in total" in shown.splitlines()
        desk.cluster.sh("scontrol update partitionname=main qos=", user="root")
        options = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--account", "proj", "--qos", "long")
        job = desk.submit(*options, command=("sh", "-c", "exit 3"))
        asked = f"scontrol show job {job} >/dev/null 2>&1"
        desk.until(lambda: desk.sh(asked, check=False).code != 0, "Slurm did not forget the job")
        shown = json.loads(desk.argosy("jobs", "show", job, "--json").stdout)
        assert (shown["state"], shown["code"], shown["nodes"]) == ("FAILED", 3, "node[1-2]")
        assert desk.argosy("logs", "-f", job, check=False).code == 3
