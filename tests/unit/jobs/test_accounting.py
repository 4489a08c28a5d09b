"""Advice to ask sacct is replaced on a cluster without accounting."""

from __future__ import annotations

from pathlib import Path

import pytest

from argosy.core.process import FakeRunner, Reply
from argosy.jobs.scheduler import advise_without_accounting
from tests.unit.machines import make_host, make_session

OFF = "AccountingStorageType   = (null)\nJobAcctGatherType       = jobacct_gather/linux\n"
ON = "AccountingStorageType   = accounting_storage/slurmdbd\n"


@pytest.mark.parametrize(
    ("config", "text", "is_told"),
    [
        (OFF, "memory was full: 'sacct -j JOB -o State,MaxRSS'", True),
        (OFF.replace("(null)", "accounting_storage/none"), "ask sacct", True),
        (OFF, "see yours with: sacctmgr show assoc", False),
        (ON, "ask sacct", False),
        ("", "ask sacct", False),
    ],
)
def test_advice_to_ask_sacct_is_replaced_if_the_cluster_keeps_no_accounting(
    tmp_path: Path, config: str, text: str, *, is_told: bool
) -> None:
    runner = FakeRunner([(("scontrol", "show", "config"), Reply(0, config, ""))])
    told = advise_without_accounting(make_session(tmp_path, make_host(), runner), text, "7", "")
    assert ("use 'scontrol show job 7'" in told) is is_told
