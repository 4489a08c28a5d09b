"""Ports, scripts that scale, allocations used as they are, masks and GPUs read back from real tasks."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from tests.lab.slurm.conftest import Desk

    NewDesk = Callable[..., AbstractContextManager[Desk]]

pytestmark = pytest.mark.lab

TWO = ("--nodes", "2", "--ranks", "2")
FOUR = ("--nodes", "2", "--ranks", "4")
SRUN = ("--launcher", "srun")
BARE = "env -i PATH=/usr/bin:/bin HOME=$HOME USER=alice"
LISTEN = (
    "import socket,sys,time; s=socket.create_server(('', int(sys.argv[1]))); print('on', flush=True); time.sleep(600)"
)

FULL_NODE = """\
name = "full"
title = "nodes of eight GPUs, with reserved cores"
scheduler = "slurm"
checked = "2026-11-20"
[node]
cores = 64
reserved = "0,8,16,24,32,40,48,56"
gpus = 8
gpu_vendor = "nvidia"
gpu_device = "/dev/nvidia0"
gpu_cpus = ["49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47"]
[slurm]
polling_seconds = 0.5
"""
NEAREST = (49, 57, 17, 25, 1, 9, 33, 41)


def ports(desk: Desk, text: str) -> list[str]:
    return [row["set"]["MASTER_PORT"] for row in desk.told(text)]


def test_a_job_uses_another_port_if_its_first_one_is_taken(torch_desk: Desk) -> None:
    desk = torch_desk
    job = desk.submit(*FOUR, "--cpus-per-rank", "2", "--sbatch-arg=--hold", command=desk.telling)
    first = 20000 + int(job) * 7 % 10000
    desk.sh(f'python3 -c "{LISTEN}" {first} > listening 2>&1 < /dev/null &', node="node1")
    desk.until(lambda: (desk.here / "listening").read_text() == "on\n", "nobody listens")
    desk.sh(f"scontrol release {job}")
    assert desk.wait(job) == "COMPLETED", desk.output(job)
    assert len(desk.told(desk.output(job))) == 4


def test_two_launches_in_one_allocation_never_share_a_port(desk: Desk) -> None:
    desk.script(*FOUR, *SRUN, command=desk.telling)
    both = "sh job.sh > one & sh job.sh > two & wait %1; wait %2"
    desk.sh(f"{BARE} timeout 600 salloc --nodes=2 --ntasks-per-node=4 bash -c '{both}'")
    one, two = (set(ports(desk, (desk.here / name).read_text())) for name in ("one", "two"))
    assert len(one) == len(two) == 1
    assert one != two


def test_two_jobs_on_one_node_at_once_have_ports_of_their_own(desk: Desk) -> None:
    both = 'touch "begun-$SLURM_JOB_ID"; until [ "$(ls begun-* | wc -l)" = 2 ]; do sleep 0.1; done; exec "$@"'
    command = ("sh", "-c", both, "x", *desk.telling)
    jobs = [desk.submit("--ranks", "1", "--nodelist", "node1", "--sbatch-arg=--hold", command=command) for _ in "ab"]
    desk.sh(f"scontrol release {' '.join(jobs)}")
    for job in jobs:
        assert desk.wait(job) == "COMPLETED"
    assert len({port for job in jobs for port in ports(desk, desk.output(job))}) == 2


def test_one_script_runs_on_as_many_nodes_as_slurm_gives(desk: Desk) -> None:
    script = desk.script(*FOUR, *SRUN, command=desk.telling)
    for nodes, ranks in (("1", 2), ("2", 4)):
        done = desk.sh(
            f"! {BARE} sh -c 'command -v argosy'; {BARE} sbatch --parsable --nodes={nodes} -o %j.out {script}"
        )
        job = done.stdout.strip()
        assert desk.wait(job) == "COMPLETED"
        told = desk.told((desk.here / f"{job}.out").read_text())
        assert [row["rank"] for row in told] == list(range(ranks))
        assert {row["set"]["WORLD_SIZE"] for row in told} == {str(ranks)}


def test_torchruns_script_scales_too(torch_desk: Desk) -> None:
    script = torch_desk.script(*FOUR, command=torch_desk.telling)
    job = torch_desk.sh(f"{BARE} sbatch --parsable --nodes=1 -o %j.out {script}").stdout.strip()
    assert torch_desk.wait(job) == "COMPLETED"
    assert [row["host"] for row in torch_desk.told((torch_desk.here / f"{job}.out").read_text())] == ["node1"] * 2


@pytest.mark.parametrize("step", ["--overlap --nodelist=node2", "--nodelist=node1 --cpus-per-task=8"])
def test_in_a_shell_that_srun_started_a_script_has_all_of_the_allocation(desk: Desk, step: str) -> None:
    script = desk.script(*FOUR, "--launcher", "srun", command=desk.telling)
    within = f"timeout 600 salloc --nodes=2 --exclusive srun --nodes=1 --ntasks=1 {step} sh {script}"
    told = desk.told(desk.sh(f"{BARE} {within}").stdout)
    assert sorted(row["host"] for row in told) == ["node1", "node1", "node2", "node2"]


def test_a_script_outside_an_allocation_fails_with_the_reason(desk: Desk) -> None:
    done = desk.sh(f"sh {desk.script(*TWO, command=('true',))}", check=False)
    assert done.code == 2
    assert "no Slurm allocation" in done.stderr


def test_inside_an_allocation_launch_reports_whether_it_submits(desk: Desk) -> None:
    launch = f"argosy launch {desk.image} --site {desk.site} --nodes 2 --ranks 4 --launcher srun"
    inside = "timeout 600 salloc --nodes=2 --ntasks-per-node=2 --cpus-per-task=1"
    tell = shlex.join(desk.telling)
    here = desk.sh(f"{inside} {launch} --in-allocation -- {tell}")
    job = re.findall(r"job allocation (\d+)", here.stderr)[0]
    assert f"runs as steps of job {job}" in here.stderr
    assert {row["set"]["SLURM_JOB_ID"] for row in desk.told(here.stdout)} == {job}
    shown = json.loads(desk.argosy("jobs", "show", job, "--json").stdout)
    assert [rank["host"] for rank in shown["ranks"]] == ["node1", "node1", "node2", "node2"]
    assert [(run["nodes"], run["code"]) for run in shown["runs"]] == [("node[1-2]", 0)]
    own = desk.sh(f"{inside} {launch} --follow -- {tell}")
    job = re.findall(r"job allocation (\d+)", own.stderr)[0]
    assert f"inside job {job}: submitted as a new job" in own.stderr
    assert len(desk.told(own.stdout)) == 4
    assert job not in {row["set"]["SLURM_JOB_ID"] for row in desk.told(own.stdout)}


def test_the_exit_code_of_a_step_in_the_allocation_is_that_of_the_command(desk: Desk) -> None:
    launch = f"argosy launch {desk.image} --site {desk.site} --in-allocation -- sh -c 'exit 7'"
    assert desk.sh(f"timeout 600 salloc {launch}", check=False).code == 7


def test_in_allocation_without_an_allocation_is_refused(desk: Desk) -> None:
    done = desk.argosy(*desk.words("--in-allocation", command=("true",)), check=False)
    assert done.code == 125
    assert "--in-allocation needs a Slurm allocation" in done.stderr


def test_each_rank_sees_the_gpus_of_its_node(desk: Desk) -> None:
    desk = desk.with_gpus
    options = ("--nodes", "2", "--gpus-per-node", "2")
    assert (
        "#SBATCH --gpus-per-node=2" in (desk.here / desk.script(*options, command=("true",)).split("/")[-1]).read_text()
    )
    told = desk.tell(*options, *SRUN)
    assert [row["set"]["CUDA_VISIBLE_DEVICES"] for row in told] == ["0,1"] * 4
    assert [row["set"]["LOCAL_RANK"] for row in told] == ["0", "1", "0", "1"]
    unsaid = desk.tell("--nodes", "2", *SRUN)
    assert [row["set"]["CUDA_VISIBLE_DEVICES"] for row in unsaid] == ["0,1"] * 4
    on_cpus = desk.tell("--nodes", "2", "--gpu", "none", *SRUN)
    assert [row["set"].get("CUDA_VISIBLE_DEVICES", "") for row in on_cpus] == ["", ""]


def test_an_allocation_whose_shell_does_not_tell_its_gpus_is_asked_for_them(desk: Desk) -> None:
    desk = desk.with_gpus
    launch = f"argosy launch {desk.image} --site {desk.site} --in-allocation --launcher srun"
    launch += f" -- {shlex.join(desk.telling)}"
    told = desk.told(desk.sh(f"timeout 600 salloc --nodes=2 --exclusive --gres=gpu:2 {launch}").stdout)
    assert [row["set"]["CUDA_VISIBLE_DEVICES"] for row in told] == ["0,1"] * 4


def test_an_image_whose_torch_lacks_the_gpu_back_end_is_refused_before_the_queue(torch_desk: Desk) -> None:
    desk = torch_desk.with_gpus
    done = desk.follow("--gpus", "1", command=("true",), check=False)
    assert done.code == 125
    assert "was built for the CPU only" in done.stderr
    assert "--no-check" in done.stderr
    assert desk.follow("--gpus", "1", "--no-check", command=("true",)).code == 0
    assert desk.follow("--gpu", "none", command=("true",)).code == 0


def test_an_image_without_a_lock_is_started_once_to_find_torch(desk: Desk) -> None:
    desk.write("python", """#!/bin/sh\necho '{"__version__": "2.6.0", "cuda": "", "hip": "6.2", "xpu": ""}'\n""")
    desk.sh(
        f"apptainer build --sandbox tree {desk.image} && rm -rf tree/opt/argosy && "
        "install -m 755 python tree/usr/local/bin/python && mksquashfs tree plain.sqsh -quiet -no-progress"
    )
    plain = dataclasses.replace(desk.with_gpus, image=f"{desk.folder}/plain.sqsh")
    for _ in "ab":
        done = plain.follow("--gpus", "1", command=("true",), check=False)
        assert (done.code, "torch 2.6.0 was built for hip" in done.stderr) == (125, True), done.stderr


def test_a_node_without_the_requested_gpu_stops_before_the_program_starts(desk: Desk) -> None:
    plain = (desk.cluster.shared / "gpu-site.toml").read_text()
    (desk.here / "site.toml").write_text(plain.replace("nvidia0", "nvidia7"))
    lacking = dataclasses.replace(desk, site=f"{desk.folder}/site.toml")
    done = lacking.follow("--gpus", "1", *SRUN, command=("touch", "started"), check=False)
    assert done.code == 7
    assert "GPUs were requested, but there is no /dev/nvidia7 on node1" in done.stdout
    assert not (desk.here / "started").exists()


def test_ranks_of_a_full_node_have_the_cores_of_the_sites_map(new_desk: NewDesk, torch_image: Path) -> None:
    shape = ("--cpus", "1:64:1", "--gpus", "8", "--reserved", "0,8,16,24,32,40,48,56", "2")
    with new_desk(*shape) as plain:
        plain.write("full.toml", FULL_NODE)
        desk = dataclasses.replace(plain, site=f"{plain.folder}/full.toml")
        expected = [list(range(first, first + 7)) for first in NEAREST]
        told = desk.tell("--nodes", "2", "--gpus-per-node", "8", *SRUN)
        assert [row["cores"] for row in told] == expected * 2
        workers = desk.with_image(torch_image).tell(
            "--nodes", "1", "--gpus-per-node", "8", "--launcher", "torchrun", "--no-check"
        )
        assert [row["cores"] for row in workers] == expected
        assert {row["set"]["OMP_NUM_THREADS"] for row in (*told, *workers)} == {"7"}
        part = desk.tell("--gpus-per-node", "2", "--cpus-per-rank", "3", *SRUN)
        assert [len(row["cores"]) for row in part] == [3, 3]
        # A map that leaves cores over, the last ones of the node in it: no step of so many cores would hold them.
        rows = re.sub(r"(gpus = |gpu_cpus = ).*", "", FULL_NODE)
        half = rows.replace("[slurm]", 'gpus = 4\ngpu_cpus = ["57-63", "41-47", "25-31", "9-14"]\n[slurm]')
        plain.write("half.toml", half)
        desk = dataclasses.replace(plain, site=f"{plain.folder}/half.toml")
        expected = [list(cores) for cores in (range(57, 64), range(41, 48), range(25, 32), range(9, 15))]
        told = desk.tell("--nodes", "2", "--gpus-per-node", "4", *SRUN)
        assert [row["cores"] for row in told] == expected * 2
