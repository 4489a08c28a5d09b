"""`argosy build --on-node` and `--submit`: the image is made on a compute node, at the place that the profile names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

PLACE = '[build]\ntime = "10"\nmem = "500M"\ncpus = 1\n'
HOSTILE = {
    "SINGULARITY_BIND": "/not/there",
    "APPTAINER_BIND": "/not/there",
    "LD_LIBRARY_PATH": "/not/there",
    "CONDA_PREFIX": "/not/there",
    "SBATCH_TIMELIMIT": "20",
}


def place(desk: Desk, *more: str) -> str:
    """Write a profile beside the test whose nodes build images."""
    text = (desk.cluster.shared / "site.toml").read_text()
    desk.write("requirements.txt", "")
    return desk.write("site.toml", text + PLACE + f'work_dir = "{desk.folder}"\n' + "".join(more))


def test_an_image_is_built_on_a_node_and_its_output_comes_back(desk: Desk) -> None:
    words = ("requirements.txt", "--base", desk.image, "--site", place(desk), "--on-node")
    done = desk.argosy("build", *words, "-o", "new.sif", "-v", env=HOSTILE)
    assert "new.sif:" in done.stdout
    assert f"{desk.folder}/argosy-work-" in done.stderr
    assert desk.argosy("run", "new.sif", "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"
    again = desk.argosy("build", *words, "-o", "new.sif", check=False)
    assert again.code == 2
    assert "already exists" in again.stderr


def test_a_launch_waits_for_the_image_that_a_job_builds(desk: Desk) -> None:
    site = place(desk, "network = false\n")
    desk.sh(f"apptainer sif dump 2 {desk.image} > base.sqfs")
    words = ("requirements.txt", "--base", "base.sqfs", "--site", site, "--submit")
    job = desk.argosy("build", *words, "-o", "new.sif").stdout.strip()
    assert job.isdigit()
    assert desk.wait(job) == "COMPLETED"
    assert "new.sif:" in desk.argosy("logs", job).stdout
    assert not list(desk.here.glob(".new.sif*"))
    assert desk.argosy("run", "new.sif", "--", "python3", "-c", "print(6 * 7)").stdout == "42\n"
