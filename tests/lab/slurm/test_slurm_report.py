"""`argosy report` after real jobs: the page says what happened, why, and what to do next."""

from __future__ import annotations

import html
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

FAIL = """\
import os, sys
if os.environ["RANK"] == "1":
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
"""
SOCKETS = """\
import os
if os.environ["RANK"] == "0":
    print("node1:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.77.0.2<0>")
    print("node1:7:7 [0] NCCL INFO Using network Socket")
    print("# all_reduce · 2 ranks on 2 node(s) · nccl on H100 · torch 2.7")
    for size, speed in (("64 KiB", 0.2), ("1 MiB", 0.8), ("1 GiB", 1.1)):
        print(f"  {size:>10} 1.000 ms {speed:.3f} {speed:.3f} {speed * 0.9:.3f} {speed * 1.1:.3f}")
    print("# Peak bus bandwidth : 1.100 GB/s at 1 GiB")
"""
NETWORK = """
[network]
proof_lines = ["NET/IB"]
expected = [{ nodes = 2, gpus_per_node = 0, gigabytes = 24.0 }]
why = "the fabric of the tests"
"""
KEPT = os.environ.get("ARGOSY_KEEP_REPORTS", "")
"""Folder that keeps the pages, for readers."""


def report(desk: Desk, job: str, kept: str) -> tuple[str, str]:
    """Write the report of a job; return its summary and its page without the style."""
    done = desk.argosy("report", job, "-o", f"{kept}.html")
    assert done.stdout == f"{kept}.html\n"
    page = (desk.here / f"{kept}.html").read_text(encoding="utf-8")
    if KEPT:
        Path(KEPT, f"{kept}.html").write_text(page, encoding="utf-8")
    return done.stderr, re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def section(page: str, name: str) -> str:
    """Return the text of a section."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', page, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]+>", " ", found[1])) if found else ""


def test_the_report_of_a_job_that_failed(desk: Desk) -> None:
    shape = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--name", "train")
    desk.follow(*shape, command=("python", "-c", FAIL), check=False)
    (output,) = desk.here.glob("train-*.out")
    job = output.stem.removeprefix("train-")
    said, page = report(desk, job, "failed")
    assert "rank 1 on node2 failed first (code 1)" in said
    assert "CUDA out of memory" in section(page, "failure")
    assert "Next:" in page
    assert "<svg" in page
    assert f"argosy why {job}" in section(page, "commands")
    assert desk.argosy("report", job, "--bundle").stdout == f"job-{job}.tar.gz\n"
    unknown = desk.argosy("report", "99999", check=False)
    assert unknown.code == 2


@pytest.mark.soak
def test_the_report_of_a_slow_job_shows_the_network_and_the_bandwidth_that_the_site_expects(desk: Desk) -> None:
    site = desk.write("fabric.toml", (desk.cluster.shared / "site.toml").read_text() + NETWORK)
    shape = ("--nodes", "2", "--ranks", "2", "--launcher", "srun", "--name", "slow", "--site", site, "--follow")
    jobs = []
    for _ in range(2):
        desk.argosy("launch", desk.image, *shape, "--", "python", "-c", SOCKETS, check=False)
        jobs = sorted(int(each.stem.removeprefix("slow-")) for each in desk.here.glob("slow-*.out"))
    said, page = report(desk, str(jobs[-1]), "slow")
    assert "ended well" in said
    assert "TCP sockets" in section(page, "verdict")
    assert f"argosy check {desk.image} --site {site}" in section(page, "commands")
    assert "24" in section(page, "verdict")
    measured = section(page, "measured")
    assert f"job {jobs[0]}" in measured
    assert "the site's profile expects 24 GB/s on 2 node(s)" in measured
    assert "1 GiB" in measured
    assert "Next:" in page


@pytest.mark.soak
def test_the_report_of_a_good_job(desk: Desk) -> None:
    desk.follow("--nodes", "2", "--ranks", "4", "--launcher", "srun", "--name", "good", command=desk.telling)
    (output,) = desk.here.glob("good-*.out")
    said, page = report(desk, output.stem.removeprefix("good-"), "good")
    assert "ended well" in said
    assert section(page, "failure") == ""
    assert "4 on 2 node(s)" in section(page, "verdict")
    assert "Next:" not in page


@pytest.mark.soak
def test_the_report_of_an_array_is_that_of_the_failed_task_and_lists_all_outputs(desk: Desk) -> None:
    hostile = "</pre><script>alert(1)</script>"
    command = ("sh", "-c", f'echo "{hostile} task $SLURM_ARRAY_TASK_ID"; exit $((SLURM_ARRAY_TASK_ID % 2))')
    array = desk.submit("--ranks", "1", "--array", "0-2", "--name", "many", command=command)
    desk.until(lambda: "ended" in desk.argosy("jobs", "show", array).stdout, "the array did not end")
    said, page = report(desk, array, "array")
    assert f"Job {array}_1 failed" in said
    assert f"{hostile} task 1" in section(page, "output")
    assert "<script>alert" not in page
    assert len(re.findall(r"many-\d+\.out", section(page, "outputs"))) == 3
    other, _ = report(desk, f"{array}_2", "task")
    assert f"Job {array}_2 ended well" in other


@pytest.mark.soak
def test_the_report_of_a_job_that_was_started_again_has_both_runs(desk: Desk) -> None:
    command = ("sh", "-c", 'echo run; [ "${SLURM_RESTART_COUNT:-0}" -gt 0 ] || exec sleep 300')
    job = desk.submit("--ranks", "1", "--requeue", "--name", "twice", command=command)
    desk.until_written(job, "run")
    desk.cluster.sh(f"scontrol requeue {job}")
    desk.wait(job)
    said, page = report(desk, job, "twice")
    assert "after 1 restart(s)" in said
    assert "run 2 started" in section(page, "timeline")


@pytest.mark.soak
def test_the_report_of_a_job_that_failed_before_its_first_rank(desk: Desk) -> None:
    desk.follow(
        "--ranks", "1", "--before", "echo prepare >&2; exit 9", "--name", "early", command=("true",), check=False
    )
    (output,) = desk.here.glob("early-*.out")
    said, page = report(desk, output.stem.removeprefix("early-"), "early")
    assert "failed before its first rank started: what runs before the ranks failed (code 9)" in said
    assert "No rank has started" in section(page, "ranks")
    assert "prepare" in section(page, "output")


@pytest.mark.soak
def test_the_report_of_a_run_without_slurm(desk: Desk) -> None:
    ran = desk.argosy("launch", "bare:", "--gpu", "none", "--launcher", "none", "--", "sh", "-c", "exit 4", check=False)
    assert ran.code == 4
    said, page = report(desk, "last", "local")
    assert re.search(r"Run [\w-]+ ended with an error \(code 4\)", said)
    assert "run.log" in page
    assert "job.sh" in section(page, "commands")
