"""`argosy report` after real jobs: the page says what happened, why, and what to do next."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
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
PRETEND = Path(__file__).with_name("pretend.py")
CLUSTER = """
gpu_model = "A100"
gpu_cpus = ["0", "1"]
nics = 2
nic = "InfiniBand HDR"
nic_gbit = 200
gpu_nics = [0, 1]
[network]
proof_lines = ["NET/IB"]
expected = [{ nodes = 2, gpus_per_node = 2, gigabytes = 24.0 }]
why = "the fabric of the tests"
[slurm]
"""
"""Two cores, so that the masks are real on any machine that runs the tests."""
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
    desk.write("train.py", FAIL)
    desk.follow(*shape, command=("python", "train.py"), check=False)
    (output,) = desk.here.glob("train-*.out")
    job = output.stem.removeprefix("train-")
    said, page = report(desk, job, "failed")
    assert "rank 1 on node2 failed first (code 1)" in said
    assert re.search(r"argosy launch .*--name train", page), "the command line is at the top"
    assert "CUDA out of memory" in section(page, "failure")
    assert "Next:" in page
    assert "<svg" in page
    assert f'data-copy="argosy why {job}"' in page
    assert desk.argosy("report", job, "--bundle").stdout == f"job-{job}.tar.gz\n"
    unknown = desk.argosy("report", "99999", check=False)
    assert unknown.code == 2


@pytest.mark.soak
def test_the_reports_of_a_failed_a_slow_and_a_good_job_with_gpus(
    new_desk: Callable[..., AbstractContextManager[Desk]],
) -> None:
    with new_desk("--cpus", "1:2:1", "--gpus", "2", "2") as desk:
        profile = (desk.cluster.shared / "gpu-site.toml").read_text().replace("cores = 8", "cores = 2")
        site = desk.write("cluster.toml", profile.replace("[slurm]", CLUSTER))
        desk.write("train.py", PRETEND.read_text())
        shape = ("--site", site, "--nodes", "2", "--ranks", "4", "--gpus-per-node", "2", "--launcher", "srun")
        pages = {}
        for name, words in (("good", ("ib",)), ("slow", ("sockets",)), ("failed", ("ib", "3"))):
            command = ("--follow", "--name", name, "--", "python", "train.py", *words)
            desk.argosy("launch", desk.image, *shape, *command, check=False)
            pages[name] = report(desk, "last", name)
        said, page = pages["good"]
        assert "ended well" in said
        assert section(page, "failure") == ""
        assert "2 of 2 cards in the log: mlx5_0, mlx5_1" in section(page, "ranks")
        assert "first output" in section(page, "timeline")
        assert "There is nothing to fix." in page
        assert "5 checks passed; 23.1 GB/s of 24 expected" in said
        said, page = pages["slow"]
        assert "ended with code 0: 2 of 5 checks failed (network, bandwidth); 1.1 GB/s of 24 expected" in said
        assert "program is 'python train.py sockets', and was 'python train.py ib'" in html.unescape(page)
        assert "with the same image, packages, nodes, variables and options" in page
        repeat = html.unescape(page.split('class="steps"')[1].split("</div>")[0])
        assert re.search(r"cd /shared/\w+ && argosy launch .*-- python train.py ib", repeat)
        assert "TCP sockets over eth0" in section(page, "ranks")
        assert f'data-copy="argosy check {desk.image} --site {site}"' in page
        assert "which passed and used IB (mlx5_0 and mlx5_1) on the same nodes" in page
        assert "the site's profile expects 24 GB/s on 2 nodes" in section(page, "measured")
        said, page = pages["failed"]
        assert "rank 3 on node2 failed first (code 1): KeyError: 'label'" in said
        assert "where it was raised, and correct it or its input." in html.unescape(page)
        assert "sbatch keeps the arguments (python train.py ib 3)" in page
        assert "not measured, the job ended before" in section(page, "measured")
        assert "program is 'python train.py ib 3', and was 'python train.py ib'" in html.unescape(page)
        assert "1 of rank 3, which failed first; 143 of the job" in page
        assert "Last lines of rank 3, which failed first rank 3 step" in re.sub(r"\s+", " ", section(page, "failure"))
        assert "rank 0 step" not in section(page, "failure")


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
    assert "after 1 restart" in said
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
    assert re.search(r'data-copy="sh \S+/job\.sh"', page)
