"""`argosy report` after a real job that failed: the page names the rank, the cause and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

FAIL = """\
import os, sys
if os.environ["RANK"] == "1":
    sys.exit("RuntimeError: CUDA error: out of memory <script>alert(1)</script>")
"""


def test_the_report_of_a_job_that_failed(desk: Desk) -> None:
    shape = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--name", "bad")
    desk.follow(*shape, command=("python", "-c", FAIL), check=False)
    (output,) = desk.here.glob("bad-*.out")
    job = output.stem.removeprefix("bad-")
    done = desk.argosy("report", job)
    assert done.stdout == f"job-{job}.html\n"
    assert "rank 1 on node2 failed first (code 1)" in done.stderr
    page = (desk.here / f"job-{job}.html").read_text(encoding="utf-8")
    assert "rank 1 on node2 failed first" in page
    assert "<script>alert" not in page
    assert "<svg" in page
    assert f"argosy why {job}" in page
    assert desk.argosy("report", job, "--bundle").stdout == f"job-{job}.tar.gz\n"
    unknown = desk.argosy("report", "99999", check=False)
    assert unknown.code == 2
