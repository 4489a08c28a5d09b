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
PRETEND, STAND_IN = (Path(__file__).with_name(name) for name in ("pretend.py", "stand_in.py"))
CLUSTER = """
gpu_model = "A100"
gpu_cpus = ["0", "1"]
nics = 2
nic = "InfiniBand HDR"
nic_gbit = 200
gpu_nics = [0, 1]
[network]
proof_lines = ["NET/IB"]
expected = [{ nodes = 2, gpus_per_node = 2, gigabytes = 24.0, source = "nccl-tests on this cluster, 2026-11-20" }]
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


def steps(page: str) -> list[str]:
    """Return the commands of the next steps."""
    found = re.search(r'<ol class="steps">(.*?)</ol>', page, re.DOTALL)
    return [html.unescape(line) for line in re.findall(r'data-copy="([^"]*)"', found[1])] if found else []


def text(page: str) -> str:
    """Return the text of a page in one line."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


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
    assert steps(page)[0].endswith("--name train --follow -- python train.py"), "after the fix, the same command again"
    assert "<svg" in page
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
        desk.write("stand_in.py", STAND_IN.read_text())
        shape = ("--site", site, "--nodes", "2", "--ranks", "4", "--gpus-per-node", "2", "--launcher", "srun")
        pages = {}
        for name, words in (("good", ("ib",)), ("slow", ("sockets",)), ("failed", ("ib", "3"))):
            command = ("--follow", "--name", name, "--", "python", "train.py", *words)
            desk.argosy("launch", desk.image, *shape, *command, check=False)
            pages[name] = report(desk, "last", name)
        check_good(*pages["good"])
        check_slow(desk, *pages["slow"], site=site)
        check_failed(*pages["failed"])


def explanation(page: str) -> str:
    """Return the text about the likely cause."""
    found = re.search(r"<strong>Why:</strong>(.*?)</p>", page, re.DOTALL)
    return text(found[1]) if found else ""


def check_good(said: str, page: str) -> None:
    assert "finished with exit code 0 and passed all 5 checks" in said
    assert "as the program printed it: 23.1 GB/s; expected 24 GB/s, at least 16.8 GB/s (70%) to pass" in said
    assert "There is nothing to fix." in page
    assert section(page, "failure") == ""
    assert "Network: InfiniBand, 2 of 2 cards: mlx5_0, mlx5_1" in section(page, "ranks")
    assert "first output" in section(page, "timeline")
    assert "4 ranks requested on 2 nodes" in section(page, "plan")
    assert re.search(r"[\d.]+ node hours, [\d.]+ GPU hours", page)


def check_slow(desk: Desk, said: str, page: str, *, site: str) -> None:
    assert "but it failed 2 of 5 checks: network (TCP over eth0, not InfiniBand HDR) and bandwidth. Bus" in said
    assert "21 times slower than job 1" in said
    why = explanation(page)
    assert "the argument 'sockets' (before: 'ib') is the only difference from job 1, which passed" in why
    assert "with InfiniBand (mlx5_0 and mlx5_1) on the same nodes, the same image and the same train.py" in why
    assert "of the program contains this value of NCCL_IB_HCA. NCCL read NCCL_IB_HCA=mlx4" in why
    assert "no card that job 1 used (mlx5_0 and mlx5_1) has such a name, so NCCL used TCP, which explains" in why
    assert "uses SETTINGS" in text(page)
    assert "the cause is confirmed. Then launch with 'ib' from now on, or correct line" in text(page)
    assert '"NCCL_IB_HCA": "mlx4"' in section(page, "program"), "the page has the lines of the program"
    repeat, check, cards = steps(page)
    assert "so that NCCL_IB_HCA names your cards (mlx5_0 and mlx5_1)" in text(page)
    assert check == f"argosy check {desk.image} --site {site}"
    assert re.search(r"costs about 0\.01\d? GPU hours \(2 nodes, 4 GPUs in all, 1\d s in job 1\)", text(page))
    assert re.search(r"launch --nodelist 'node\[1-2\]' .*-- python train.py ib$", repeat)
    again = desk.sh(repeat)
    assert "Peak bus bandwidth : 23.1" in again.stdout
    assert "/sys/class/infiniband" in desk.sh(cards, check=False).stdout, "a job on the first node looked for the cards"


def check_failed(said: str, page: str) -> None:
    assert "rank 3 on node2 failed first (code 1): KeyError: 'label'" in said
    why = explanation(page)
    assert "train.py raised KeyError: 'label' (in load_label)" in why
    assert "the added argument '3' is the only difference from job 1" in why
    assert "of train.py reads this argument (sys.argv[2])." in why
    assert "uses the rank, and the argument is also the number of the rank that failed first" in why
    for line in ("reads the argument (sys.argv[2])", "in train, calls load_label", "defines BATCHES", "rank 3 step 2"):
        assert line in text(page), line
    back, again = steps(page)
    assert "▶" in section(page, "program")
    assert back.endswith("-- python train.py ib")
    assert again.endswith("-- python train.py ib 3")
    assert "the output of this job has no measurement (job 1 measured 23.1 GB/s)" in section(page, "measured")
    assert "rank 3: 1 (failed first); step: 143" in page
    assert "Slurm stopped the other ranks after rank 3 had failed" in section(page, "timeline")
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
    assert len(re.findall(rf"many-{array}_[0-2]\.out", section(page, "outputs"))) == 3
    other, _ = report(desk, f"{array}_2", "task")
    assert f"Job {array}_2 finished with exit code 0" in other


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
    assert "failed before its first rank started: the command of --before failed (code 9)" in said
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
