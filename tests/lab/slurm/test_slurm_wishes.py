"""Jobs of the project file, shells on nodes, steps that fail: as a user types them, on real nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.lab.slurm.conftest import Desk

pytestmark = pytest.mark.lab

PROJECT = """\
[launch]
site = "{site}"
time = "5:00"

[job.tell]
image = "{image}"
command = {command}
nodes = 2
ranks = 4
launcher = "srun"
label = true
stage_to = "/tmp"
before = ["echo fetched >> once", "sleep 0"]
env = {{ GREETING = "it's $HOME" }}
output = "out/%x/%j.txt"
"""


def test_a_job_of_the_project_file_runs_as_written(desk: Desk) -> None:
    site, image = desk.site, desk.image
    desk.write("argosy.toml", PROJECT.format(site=site, image=image, command=json.dumps([*desk.telling])))
    said = desk.argosy("launch", "tell", "--ranks", "2", "--follow").stdout
    labels = sorted(line.split(":")[0] for line in said.splitlines() if '"rank"' in line)
    assert labels == ["0", "1"]
    assert (desk.here / "once").read_text() == "fetched\n"
    assert [path.suffix for path in (desk.here / "out/tell").iterdir()] == [".txt"]
    left = "".join(desk.sh("ls /tmp", node=node).stdout for node in ("node1", "node2"))
    assert "argosy-" not in left


def test_an_interactive_shell_has_its_node_its_code_and_leaves_nothing(desk: Desk) -> None:
    def jobs() -> set[str]:
        return set(desk.sh("squeue --me --noheader -o %i").stdout.split())

    before = jobs()  # of other tests, that wait for their time limit
    words = ["launch", desk.image, "--site", desk.site, "--interactive", "--", "sh", "-c", "hostname; exit 5"]
    ran = desk.argosy(*words, check=False)
    assert ran.stdout.startswith("node")
    assert ran.code == 5
    assert jobs() <= before


def test_steps_of_an_allocation_leave_with_the_code_of_the_first_rank_that_failed(desk: Desk) -> None:
    fail = "import os, sys, time; time.sleep(0 if os.environ['RANK'] == '2' else 600); sys.exit(7)"
    words = desk.words(
        "--nodes", "2", "--ranks", "4", "--launcher", "srun", "--in-allocation", command=("python", "-c", fail)
    )
    whole = ["salloc", "--nodes=2", "--ntasks-per-node=2", "argosy", *words]
    ran = desk.cluster.on("ctl", whole, cwd=desk.folder, check=False)
    assert "rank 2 on node2 failed first (code 7)" in ran.stderr
    assert ran.code == 7
