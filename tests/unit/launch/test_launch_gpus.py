"""A GPU partition means GPUs: what a launch gets at a site with GPUs if the user names no number."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import pytest

from argosy.core.errors import ImageError, UsageError
from argosy.core.model import ContainerRequest, GpuMode, Variable
from argosy.core.process import FakeRunner
from argosy.core.records import replace
from argosy.images.sif.write import FileSlice, plan_system_part, write_sif
from argosy.jobs.launch_plan import LaunchPlan
from argosy.launch.explain import explain_plan
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.notes import warn_before_submission
from argosy.launch.resolve import prepare_launch
from argosy.slurm.sbatch import JobOptions
from tests.unit.launch.test_golden_scripts import SQUASHFS, laptop
from tests.unit.machines import make_host, make_session


def plan(
    site: str, resources: ResourceRequest, *, gpu: GpuMode = GpuMode.AUTO, partition: str = "", image: str = ""
) -> LaunchPlan:
    request = LaunchRequest(
        image or "/project/images/train.sif",
        ("python", "train.py"),
        site=site,
        resources=resources,
        options=JobOptions(account="project_1", qos="acc_debug", time="00:15:00", partition=partition),
        container=ContainerRequest(gpu=gpu),
    )
    return prepare_launch(request, laptop(), purpose=Purpose.SHOW)


def code(planned: LaunchPlan) -> list[str]:
    return [line for line in planned.script.splitlines() if not line.startswith("#   ")]


@pytest.mark.parametrize(
    ("site", "gpus", "ranks"), [("lumi-g", 8, 8), ("dawn", 4, 8), ("mn5-acc", 4, 4), ("frontier", 8, 8)]
)
def test_nodes_of_a_gpu_partition_come_with_all_their_gpus(site: str, gpus: int, ranks: int) -> None:
    planned = plan(site, ResourceRequest(nodes=2))
    assert (planned.shape.nodes, planned.shape.gpus_per_node, planned.shape.ranks_per_node) == (2, gpus, ranks)
    (row,) = (choice for choice in planned.choices if choice.key == "gpus-per-node")
    assert (row.source, "--gpu none" in row.why) == ("default", True)
    assert code(planned) == code(plan(site, ResourceRequest(nodes=2, gpus_per_node=gpus)))


@pytest.mark.parametrize(
    ("site", "partition", "resources", "gpus"),
    [
        ("lumi-g", "", ResourceRequest(), 1),
        ("lumi-g", "", ResourceRequest(ranks=4), 4),
        ("lumi-g", "standard-g", ResourceRequest(), 8),
        ("frontier", "", ResourceRequest(), 8),
        ("dawn", "", ResourceRequest(ranks=3), 2),
        ("lumi-g", "", ResourceRequest(nodes=2, ranks=2), 8),
        ("lumi-g", "", ResourceRequest(gpus=2), 2),
    ],
)
def test_without_a_number_of_nodes_a_shared_node_gives_a_gpu_for_each_rank_and_a_whole_one_all(
    site: str, partition: str, resources: ResourceRequest, gpus: int
) -> None:
    assert plan(site, resources, partition=partition).shape.gpus_per_node == gpus


def test_gpu_none_requests_a_cpu_job_and_idle_gpus_of_whole_nodes_are_shown_with_their_cost() -> None:
    shared = plan("lumi-g", ResourceRequest(ranks=2, cpus_per_rank=4), gpu=GpuMode.NONE)
    assert shared.shape.gpus_per_node == 0
    assert not any("gpu" in line for line in shared.directives)
    assert list(warn_before_submission(shared, "/project")) == []
    (warned,) = warn_before_submission(
        plan("lumi-g", ResourceRequest(nodes=1), gpu=GpuMode.NONE, partition="standard-g"), "/project"
    )
    assert "billed: 8 GPUs per node" in warned
    assert "0 of 8 GPUs are used" in warned


def test_a_header_tells_how_gpus_enter_without_a_runtime_option() -> None:
    for site in ("lumi-g", "dawn"):
        assert "#   gpu = by /dev: " in plan(site, ResourceRequest(nodes=1)).script
    assert "#   gpu = none" not in plan("lumi-c", ResourceRequest(ranks=2, cpus_per_rank=1)).script


@pytest.mark.parametrize("site", ["nvidia-apptainer", "nvidia-pyxis"])
def test_cores_that_no_profile_knows_are_those_that_slurm_gives_shared_by_the_ranks(site: str) -> None:
    planned = plan(site, ResourceRequest(nodes=2, gpus_per_node=4), image=SQUASHFS)
    assert not any(line.startswith("--cpus-per-task") for line in planned.directives)
    assert "--ntasks-per-node=4" in planned.directives
    assert '--cpus-per-task="$argosy_node_cores"' in planned.script
    (warned,) = warn_before_submission(planned, "/project")
    assert "--cpus-per-rank requests more" in warned
    asked = plan(site, ResourceRequest(nodes=2, gpus_per_node=4, cpus_per_rank=6), image=SQUASHFS)
    assert "--cpus-per-task=24" in asked.directives
    assert list(warn_before_submission(asked, "/project")) == []


@pytest.mark.parametrize("site", ["nvidia-apptainer", "nvidia-pyxis"])
def test_a_site_with_an_unknown_number_of_gpus_refuses_a_job_without_one(site: str) -> None:
    with pytest.raises(UsageError, match="GPU") as caught:
        plan(site, ResourceRequest(nodes=2), image=SQUASHFS)
    assert "--gpus-per-node" in caught.value.hint
    assert "--gpu none" in caught.value.hint
    assert plan(site, ResourceRequest(nodes=2), gpu=GpuMode.NONE, image=SQUASHFS).shape.gpus_per_node == 0


def test_a_partition_without_gpus_needs_no_option_for_a_job_without_gpus(tmp_path: Path) -> None:
    site = tmp_path / "mixed.toml"
    site.write_text(
        'name = "mixed"\ntitle = "Mixed"\nscheduler = "slurm"\n'
        '[node]\ncores = 64\ngpu_vendor = "nvidia"\n[runtime]\nname = "apptainer"\n'
        '[[partitions]]\nname = "medium"\ngpus = 0\n[[partitions]]\nname = "gpu"\ngpus = 4\n'
    )
    planned = plan(str(site), ResourceRequest(nodes=2), partition="medium")
    assert planned.shape.gpus_per_node == 0
    assert "--nv" not in planned.script
    assert plan(str(site), ResourceRequest(nodes=2), partition="gpu").shape.gpus_per_node == 4


def test_a_header_tells_which_cores_the_ranks_get_without_a_core_map() -> None:
    def cores(launcher: str) -> str:
        request = LaunchRequest(
            "/project/images/train.sif",
            ("python", "train.py"),
            site="isambard-ai",
            resources=ResourceRequest(nodes=2, gpus_per_node=4),
            options=JobOptions(account="project_1", time="00:15:00"),
            launcher=launcher,
        )
        script = prepare_launch(request, laptop(), purpose=Purpose.SHOW).script
        return next(line for line in script.splitlines() if "cores of each rank" in line)

    assert cores("torchrun").startswith("#   cores of each rank = not bound: the profile has no gpu_cpus")
    assert cores("srun").startswith("#   cores of each rank = an equal share: ")


def test_nodes_with_slingshot_and_no_plugin_give_a_warning() -> None:
    def warned(site: str, nodes: int) -> list[str]:
        choices = plan(site, ResourceRequest(nodes=nodes, gpus_per_node=8)).choices
        return [choice.why for choice in choices if choice.key == "network"]

    (why,) = warned("frontier", 2)
    assert "RCCL uses TCP on Slingshot 11 without a plugin" in why
    assert 'use = ["slingshot-amd"]' in why
    assert warned("frontier", 1) == warned("lumi-g", 2) == []


SLICES = """
name = "mahti"
title = "m"
scheduler = "slurm"

[node]
cores = 128
gpus = 4
gpu_vendor = "nvidia"

[slurm]
gpu_option = "gres"
cpus_per_gpu = 32
cpus_per_gpu_type = { "a100_1g.5gb" = 4 }

[runtime]
name = "apptainer"
"""


@pytest.mark.parametrize(("kind", "cores"), [("a100_1g.5gb", "4"), ("a100", "32"), ("", "32")])
def test_a_slice_of_a_gpu_has_its_own_number_of_cores(tmp_path: Path, kind: str, cores: str) -> None:
    site = tmp_path / "mahti.toml"
    site.write_text(SLICES)
    request = LaunchRequest(
        "/i/train.sif", ("python", "t.py"), site=str(site), resources=ResourceRequest(gpus_per_node=1), gpu_type=kind
    )
    assert f"--cpus-per-task={cores}" in prepare_launch(request, laptop(), purpose=Purpose.SHOW).directives


@pytest.mark.parametrize(
    ("image", "nodes", "warned"),
    [("/dev/shm/a.sif", 2, True), ("/dev/shm/a.sif", 1, False), ("/project/tmp/a.sif", 2, False)],  # noqa: S108
)
def test_an_image_in_a_folder_of_each_node_gives_a_warning(image: str, nodes: int, warned: bool) -> None:  # noqa: FBT001 - a case
    choices = plan("mn5-acc", ResourceRequest(nodes=nodes, gpus_per_node=4), image=image).choices
    assert any("copy the image to a folder" in choice.why for choice in choices) == warned


def test_a_launcher_of_slurm_is_refused_before_the_image_is_opened() -> None:
    request = LaunchRequest("/absent.sif", ("python", "t.py"), site="local", launcher="srun")
    with pytest.raises(UsageError, match="the srun launcher needs Slurm"):
        prepare_launch(request, laptop())


def test_a_launch_on_a_login_node_names_the_site_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "argosy-sites").mkdir()
    profile = 'name = "odd"\ntitle = "o"\nscheduler = "slurm"\n[identity]\nhosts = ["odd-login"]\n'
    (tmp_path / "argosy-sites/odd.toml").write_text(profile)
    programs = {"sbatch": "/usr/bin/sbatch"}
    there = make_session(host=make_host(cwd=str(tmp_path), hostname="odd-login", programs=programs))
    for asked in ({"launcher": "srun"}, {"resources": ResourceRequest(nodes=2)}):
        with pytest.raises(UsageError) as caught:
            prepare_launch(LaunchRequest("/a.sif", ("python", "t.py"), site="local", **asked), there)
        hint = caught.value.hint
        assert hint.startswith("add --site odd")
        assert "remove --nodes" not in hint  # it would start the program on the login node


def explained(planned: LaunchPlan) -> dict[str, tuple[str, str, str]]:
    return {row.what: (row.value, row.source, row.why) for row in explain_plan(planned)}


@pytest.mark.parametrize("site", ["lumi-g", "lumi-c", "mn5-acc", "nvidia-apptainer"])
def test_gpu_none_is_explained_as_the_choice_of_the_user_in_each_line_that_follows_from_it(site: str) -> None:
    rows = explained(plan(site, ResourceRequest(nodes=2), gpu=GpuMode.NONE))
    assert rows["GPUs per node"] == ("0", "option", "--gpu none: the job requests no GPUs")
    assert rows["gpu"] == ("none", "option", "--gpu none: the container gets no GPUs")
    assert rows["ranks per node"][2] == "one per node: the job has no GPUs, and --ranks is not given"


def test_a_job_without_gpus_by_default_is_explained_and_one_with_gpus_shows_their_number_once() -> None:
    rows = explained(plan("lumi-c", ResourceRequest(nodes=2)))
    assert rows["GPUs per node"] == ("0", "default", "no option requests GPUs")
    rows = explained(plan("lumi-g", ResourceRequest(nodes=2)))
    assert "GPUs per node" not in rows
    assert rows["--gpus-per-node"][2] == (
        "all GPUs of each node, because nodes were requested; for a job without GPUs: --gpu none"
    )


@pytest.mark.skipif(not shutil.which("mksquashfs"), reason="mksquashfs is not installed")
@pytest.mark.parametrize("runtime", ["", "apptainer"])
def test_an_image_needs_the_architecture_of_the_nodes_and_not_that_of_the_login_node(
    tmp_path: Path, runtime: str
) -> None:
    """The profile may name no runtime: then the one on PATH is used, still on nodes of the profile's architecture."""
    profile = tmp_path / "odd.toml"
    text = (
        'name = "odd"\ntitle = "o"\nscheduler = "slurm"\n[identity]\nhosts = ["odd-login"]\n[node]\narch = "aarch64"\n'
    )
    profile.write_text(text + (f'[runtime]\nname = "{runtime}"\n' if runtime else ""))
    (tmp_path / "root").mkdir()
    squashfs = tmp_path / "root.sqfs"
    words = ("mksquashfs", str(tmp_path / "root"), str(squashfs), "-quiet", "-no-progress")
    subprocess.run(words, check=True, capture_output=True)
    host = make_host("sbatch", "srun", "apptainer", cwd=str(tmp_path), hostname="odd-login", arch="x86_64")
    session = make_session(tmp_path, host, FakeRunner([]))
    for arch in ("arm64", "amd64"):
        parts = [plan_system_part(FileSlice(squashfs, 0, squashfs.stat().st_size), arch=arch)]
        write_sif(tmp_path / f"{arch}.sif", parts, uuid=uuid.UUID(int=1), time=0, arch=arch)
    request = LaunchRequest(str(tmp_path / "arm64.sif"), ("true",), site=str(profile), no_check=True)
    assert prepare_launch(request, session).site == "odd"
    with pytest.raises(ImageError, match="another architecture"):
        prepare_launch(replace(request, image=str(tmp_path / "amd64.sif")), session)


def test_the_memory_of_a_whole_node_is_not_requested_for_a_part_of_one() -> None:
    assert "--mem" not in plan("lumi-c", ResourceRequest(ranks=2, cpus_per_rank=1)).script
    assert "#SBATCH --mem=224G\n" in plan("lumi-c", ResourceRequest(ranks=128, cpus_per_rank=1)).script


def test_gpus_of_another_vendor_are_refused() -> None:
    with pytest.raises(UsageError, match="--gpu nv is for GPUs that lumi-g does not have"):
        plan("lumi-g", ResourceRequest(nodes=1), gpu=GpuMode.NV)
    plan("lumi-g", ResourceRequest(nodes=1), gpu=GpuMode.ROCM)


@pytest.mark.parametrize(
    ("site", "ranks", "said"),
    [
        ("lumi-g", 16, "16 ranks on a node with 8 GPUs, so some share one; for a rank per GPU: --ranks 8"),
        ("lumi-g", 8, ""),
        ("dawn", 8, ""),
        ("dawn", 16, "16 ranks on a node with 4 GPUs, so some share one; for a rank per stack of a GPU: --ranks 8"),
    ],
)
def test_ranks_that_share_a_gpu_are_doubtful(site: str, ranks: int, said: str) -> None:
    choices = plan(site, ResourceRequest(nodes=1, ranks=ranks)).choices
    assert [row.why for row in choices if row.key == "--ranks"] == [said] * bool(said)


def test_a_port_of_the_user_replaces_the_one_of_the_script() -> None:
    container = ContainerRequest(variables=(Variable("MASTER_PORT", "1234"),))
    request = LaunchRequest(
        "train.sif",
        ("python", "x.py"),
        "lumi-g",
        ResourceRequest(nodes=2),
        container=container,
        options=JobOptions(account="a"),
    )
    script = prepare_launch(request, laptop(), purpose=Purpose.SHOW).script
    assert [line.strip() for line in script.splitlines() if "_MASTER_PORT=" in line] == [
        "export SINGULARITYENV_MASTER_PORT=1234  # requested"
    ]


def test_a_relative_folder_of_the_program_is_refused_for_a_job_elsewhere() -> None:
    request = LaunchRequest("train.sif", ("python", "x.py"), "lumi-g", container=ContainerRequest(workdir="rel"))
    with pytest.raises(UsageError, match="--workdir rel is known only where the job is submitted"):
        prepare_launch(request, laptop(), purpose=Purpose.SHOW)
