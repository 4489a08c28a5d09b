"""Launch plans by value: shapes with their refusals, masks out of a map, and whole scripts as they were reviewed.

``ARGOSY_RECORD=1`` writes the scripts again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from argosy.core.errors import ArgosyError, SiteError, UsageError
from argosy.core.model import Bind, ChoiceKey, ContainerRequest, Gpu, GpuMode, Host, Image, ImageKind, Mark, Variable
from argosy.core.records import replace
from argosy.core.shell import ShellExpr, ShellFunction
from argosy.jobs.launch_plan import JobShape, LaunchPlan
from argosy.launch.complete import complete_request
from argosy.launch.context import LaunchContext, choose_target, refuse_memory
from argosy.launch.launchers.launcher import (
    BIND,
    ELASTIC,
    GUARD,
    LOG,
    MPI_RANK,
    RANK,
    TASK,
    TORCHRUN,
    Counts,
    LauncherSpec,
    as_torchrun_program,
    choose_launcher,
    find_launcher,
)
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.launch.plan import plan_launch
from argosy.launch.script.helpers import CHECK_NODE, FREE_PORT, OWN_FOLDERS, render_script_functions
from argosy.launch.shape import choose_job_shape
from argosy.runtimes.container_plan import plan_container
from argosy.sites.binding import parse_ranges, plan_masks, render_core_list, render_mask_option
from argosy.sites.profile import Node, Partition, Site, Slurm
from argosy.sites.profile_parts import Setting
from argosy.sites.software import LauncherPolicy
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_host

KEPT = Path(__file__).parents[2] / "golden-scripts" / "lab"
MOST_LINES, MOST_BYTES = 60, 12_500

HOST = make_host("apptainer", "sbatch", environment={"HOME": "/home/alice"})
IMAGE = Image(
    path="/shared/train.sif",
    kind=ImageKind.SIF,
    digest="sha256:0",
    arch="amd64",
    layer_offset=4096,
    layer_part=2,
    argosy=True,
    packages=frozenset({"torch"}),
)
LAB = Site(name="lab", title="the lab", scheduler="slurm", node=Node(cores=8))
NEAREST = ("49-55", "57-63", "17-23", "25-31", "1-7", "9-15", "33-39", "41-47")
EIGHT = Node(cores=64, reserved="0,8,16,24,32,40,48,56", gpus=8, gpu_vendor="amd", gpu_cpus=NEAREST)
FULL = Site(name="full", title="full nodes", scheduler="slurm", node=EIGHT, slurm=Slurm(cpus_with_mask=False))
COMMAND = ("python", "train.py", "--epochs", "20")


def plan(site: Site = LAB, host: Host = HOST, image: Image = IMAGE, **request: Any) -> LaunchPlan:
    asked = LaunchRequest(image=image.path, **{"command": COMMAND, "site": site.name, **request})
    asked, site = complete_request(asked, site, host)
    target = choose_target(asked, site, host)
    there = replace(host, gpus=tuple(Gpu(site.node.gpu_vendor, n, "") for n in range(target.shape.gpus_per_node)))
    container = plan_container(asked.container, image, there)
    return plan_launch(LaunchContext(asked, target, container, there))


def directives(script: str) -> list[str]:
    return re.findall(r"^#SBATCH (.*)$", script, re.MULTILINE)


# Shapes


@pytest.mark.parametrize(
    ("resources", "site", "shape"),
    [
        (ResourceRequest(), LAB, JobShape(1, 1, 0, 1)),
        (ResourceRequest(nodes=2, ranks=4, cpus_per_rank=2), LAB, JobShape(2, 2, 0, 2)),
        (ResourceRequest(nodes=2, gpus_per_node=8), FULL, JobShape(2, 8, 8, 7)),
        (ResourceRequest(nodes=2, gpus=16), FULL, JobShape(2, 8, 8, 7)),
        (ResourceRequest(nodes=2, gpus=16, gpus_per_node=8), FULL, JobShape(2, 8, 8, 7)),
        (ResourceRequest(gpus=2, ranks=1, cpus_per_rank=3), FULL, JobShape(1, 1, 2, 3)),
    ],
)
def test_the_options_of_the_field_give_the_shape(resources: ResourceRequest, site: Site, shape: JobShape) -> None:
    found, choices = choose_job_shape(resources, site)
    assert found == shape
    assert all(choice.why for choice in choices)


@pytest.mark.parametrize(
    ("resources", "numbers"),
    [
        (ResourceRequest(nodes=-1), ("-1",)),
        (ResourceRequest(nodes=2, ranks=3), ("3", "2", "remainder of 1")),
        (ResourceRequest(nodes=2, gpus=3), ("3", "2", "remainder of 1")),
        (ResourceRequest(nodes=2, gpus=8, gpus_per_node=8), ("--gpus 8", "--gpus-per-node 8", "2 node")),
        (ResourceRequest(gpus_per_node=9), ("8", "9")),
        (ResourceRequest(nodes=2, gpus_per_node=12), ("--nodes 3",)),
    ],
)
def test_impossible_numbers_are_refused_with_the_numbers(resources: ResourceRequest, numbers: tuple[str, ...]) -> None:
    with pytest.raises(ArgosyError) as refused:
        choose_job_shape(resources, FULL)
    assert refused.value.code == 2
    for number in numbers:
        assert number in str(refused.value)


def test_each_rank_has_a_core_if_there_are_more_ranks_than_cores_per_gpu() -> None:
    site = msgspec.structs.replace(LAB, node=Node(cores=8, gpus=2), slurm=Slurm(cpus_per_gpu=2))
    assert choose_job_shape(ResourceRequest(gpus_per_node=1, ranks=4), site)[0] == JobShape(1, 4, 1, 1)


@pytest.mark.parametrize(
    ("resources", "warns"),
    [
        (ResourceRequest(nodes=2), True),
        (ResourceRequest(nodes=2, cpus_per_rank=1), False),
        (ResourceRequest(nodes=1), False),
    ],
)
def test_a_core_on_each_of_several_nodes_is_a_warning(resources: ResourceRequest, *, warns: bool) -> None:
    site = replace(LAB, node=replace(LAB.node, gpus=0, cores=56))
    cores = choose_job_shape(resources, site)[1][-1]
    assert (cores.mark is Mark.DOUBTFUL) is warns
    assert ("of the 56 cores of a node" in cores.why) is warns


@pytest.mark.parametrize(
    ("resources", "note"),
    [
        (ResourceRequest(ranks=9, cpus_per_rank=1), "; 9 on a node are more than its 8 cores"),
        (ResourceRequest(ranks=9), "; 9 on a node are more than its 8 cores"),
        (ResourceRequest(ranks=8, cpus_per_rank=1), ""),
    ],
)
def test_more_ranks_than_cores_are_a_warning_if_their_cores_were_requested(
    resources: ResourceRequest, note: str
) -> None:
    cores = choose_job_shape(resources, LAB)[1][-1]
    assert note in cores.why
    assert (cores.mark is Mark.DOUBTFUL) is bool(note and resources.cpus_per_rank)


@pytest.mark.parametrize("launcher", ["torchrun", "none"])
def test_ranks_without_gpus_share_the_cores_of_whole_nodes(launcher: str) -> None:
    whole = replace(LAB, slurm=Slurm(whole_nodes=True))
    parts = replace(LAB, partitions=(Partition(name="all", whole_nodes=True),))
    jobs = (
        plan(whole, resources=ResourceRequest(ranks=2), launcher=launcher),
        plan(parts, resources=ResourceRequest(ranks=2), launcher=launcher, options=JobOptions(partition="all")),
        plan(LAB, resources=ResourceRequest(ranks=2), launcher=launcher, options=JobOptions(exclusive=True)),
    )
    for job in jobs:
        assert "    share_cores  # sets argosy_node_cores, argosy_cores_per_rank\n" in job.script
        assert not any(line.startswith("--cpus-per-task") for line in directives(job.script))
        assert "--ntasks-per-node=2" in directives(job.script)
        assert "whole nodes" in next(row for row in job.choices if row.key == ChoiceKey.CORES_PER_RANK).why
        assert "warn_few_cores" not in job.script, "a rank per core is usual without GPUs"


def test_cores_that_were_requested_on_whole_nodes_are_kept() -> None:
    job = plan(replace(LAB, slurm=Slurm(whole_nodes=True)), resources=ResourceRequest(ranks=2, cpus_per_rank=3))
    assert "--cpus-per-task=6" in directives(job.script)


@pytest.mark.parametrize(
    ("allocated", "of_task", "cores"),
    [
        ("72(x2),36", "", "36 18"),
        ("8", "", "8 4"),
        ("8,16(x3)", "", "8 4"),
        ("1", "", "1 1"),
        ("6", "6", "6 3"),
        ("8", "2", "8 2"),
    ],
)
def test_ranks_share_the_cores_of_the_smallest_node(allocated: str, of_task: str, cores: str) -> None:
    lines = "\n".join(render_script_functions("share_cores"))
    script = f'argosy_ranks_per_node=2\n{lines}\nshare_cores\necho "$argosy_node_cores $argosy_cores_per_rank"'
    there = {"SLURM_JOB_CPUS_PER_NODE": allocated, "PATH": os.environ["PATH"]}
    there |= {"SLURM_CPUS_PER_TASK": of_task} if of_task else {}
    ran = subprocess.run(("/bin/sh", "-euc", script), env=there, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == (f"{cores}\n", "")


def test_a_step_has_slurms_cores_if_jobs_request_none() -> None:
    site = msgspec.structs.replace(LAB, slurm=Slurm(cpus_option=False))
    by_rank = plan(site, launcher="srun", container_per="rank", resources=ResourceRequest(ranks=2)).script
    assert '--cpus-per-task="$argosy_cores_per_rank"' in by_rank
    by_node = plan(site, resources=ResourceRequest(ranks=2)).script
    assert '--cpus-per-task="${SLURM_CPUS_PER_TASK:-$argosy_node_cores}"' in by_node


@pytest.mark.parametrize(
    ("launcher", "cpus", "each", "code"),
    [
        ("srun", "13(x2),16", "", 2),
        ("srun", "16,13(x2)", "", 2),
        ("torchrun", "13", "", 2),
        ("srun", "14(x2)", "", 9),
        ("torchrun", "", "", 9),
        ("srun", "4", "2", 9),
        ("torchrun", "13", "7", 2),
        ("torchrun", "14", "7", 9),
    ],
)
def test_a_script_reports_an_allocation_with_too_few_cores(
    launcher: str, cpus: str, each: str, code: int, tmp_path: Path
) -> None:
    for name, text in {"srun": "exit 9", "scontrol": "echo n1; echo n2"}.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    script = plan(launcher=launcher, resources=ResourceRequest(nodes=2, ranks=4, cpus_per_rank=7)).script
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "2"}
    environment |= {"SLURM_JOB_NODELIST": "n[1-2]", "SLURMD_NODENAME": "n1"}
    there = {"SLURM_JOB_CPUS_PER_NODE": cpus, "SLURM_CPUS_PER_TASK": each}
    there["SLURM_NTASKS_PER_NODE"] = "2" if each else ""
    environment |= {name: value for name, value in there.items() if value}
    done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "14 are needed" in done.stderr) == (code, code == 2)


@given(st.integers(1, 64), st.integers(1, 16))
def test_ranks_are_nodes_times_ranks_per_node(nodes: int, each: int) -> None:
    shape, _ = choose_job_shape(ResourceRequest(nodes=nodes, ranks=nodes * each), LAB)
    assert (shape.nodes, shape.ranks_per_node, shape.ranks) == (nodes, each, nodes * each)


@pytest.mark.parametrize(("slurm", "threads"), [(Slurm(), "=3"), (Slurm(cpus_option=False), "")])
def test_a_second_command_in_a_job_counts_no_cores_which_its_script_does_not_know(slurm: Slurm, threads: str) -> None:
    resources = ResourceRequest(ranks=2, cpus_per_rank=3 if threads else 0)
    attach = plan(msgspec.structs.replace(LAB, slurm=slurm), resources=resources).attach
    assert re.findall(r"OMP_NUM_THREADS(\S*)", attach) == ([threads] if threads else [])


# Masks


def test_masks_come_out_of_the_map() -> None:
    masks = plan_masks(EIGHT)
    assert [hex(mask) for mask in masks[:5]] == [
        "0xfe000000000000",
        "0xfe00000000000000",
        "0xfe0000",
        "0xfe000000",
        "0xfe",
    ]
    assert tuple(map(render_core_list, masks)) == NEAREST
    assert render_mask_option(masks[-1:]) == "mask_cpu:0xfe0000000000"


@pytest.mark.parametrize(
    "node",
    [
        Node(cores=8, gpus=2, gpu_cpus=("0-3",)),
        Node(cores=8, gpus=1, gpu_cpus=("0-8",)),
        Node(cores=8, gpus=1, gpu_cpus=("",)),
        Node(cores=8, reserved="0", gpus=1, gpu_cpus=("0-3",)),
        Node(cores=8, gpus=2, gpu_cpus=("0-3", "3-5")),
    ],
    ids=["rows", "beyond", "none", "reserved", "shared"],
)
def test_a_map_that_contradicts_its_node_is_refused(node: Node) -> None:
    with pytest.raises(SiteError):
        plan_masks(node)


@given(st.sets(st.integers(0, 255), min_size=1))
def test_a_mask_is_its_list_of_cores(cores: set[int]) -> None:
    assert parse_ranges(render_core_list(sum(1 << core for core in cores))) == cores


@pytest.mark.parametrize("text", ["a", "1-", "3-1", "1,,x", "-2"])
def test_an_invalid_list_of_cores_is_refused(text: str) -> None:
    with pytest.raises(SiteError, match="list of cores"):
        parse_ranges(text)


def test_full_nodes_are_bound_and_requested_as_whole_nodes() -> None:
    script = plan(
        FULL, resources=ResourceRequest(nodes=2, gpus_per_node=8), launcher="srun", container_per="rank"
    ).script
    assert "--exclusive" in directives(script)
    assert "--cpus-per-task=7" in directives(script)
    assert "--cpu-bind=mask_cpu:0xfe000000000000," in script
    step = script[script.index("run_step srun ") : script.index("\n}\n")]
    assert "--cpus-per-task" not in step
    assert "unset SRUN_CPUS_PER_TASK" in script


def test_ranks_bound_to_cores_where_slurm_gives_threads_are_a_warning() -> None:
    def cores(site: Site, *extra: str) -> list[str]:
        made = plan(
            site, resources=ResourceRequest(gpus_per_node=8), launcher="srun", container_per="rank", extra=extra
        )
        return [choice.value for choice in made.choices if choice.mark is Mark.DOUBTFUL]

    threads = replace(FULL, node=replace(EIGHT, threads_per_core=2))
    assert cores(threads) == ["may be threads"]
    assert cores(threads, "--hint=nomultithread") == cores(FULL) == []


@pytest.mark.parametrize("cores", [5, 6])
def test_another_number_of_cores_than_the_maps_is_given_without_the_map(cores: int) -> None:
    script = plan(
        FULL, resources=ResourceRequest(gpus_per_node=8, cpus_per_rank=cores), launcher="srun", container_per="rank"
    ).script
    assert f"--cpus-per-task={cores}" in directives(script)
    assert "mask_cpu" not in script


def test_whole_nodes_requested_by_the_user_are_not_a_choice_of_the_site() -> None:
    for exclusive, said in ((False, ["yes"]), (True, [])):
        made = plan(FULL, resources=ResourceRequest(gpus_per_node=8), options=JobOptions(exclusive=exclusive))
        assert [row.value for row in made.choices if row.key == "--exclusive"] == said
        assert "--exclusive" in directives(made.script)


def test_a_variable_set_by_the_user_or_caller_has_one_row() -> None:
    site = msgspec.structs.replace(
        FULL, settings=(Setting(name="NCCL_DEBUG", value="WARN"), Setting(name="X_MINE", value="site"))
    )
    host = replace(HOST, environment={**HOST.environment, "NCCL_DEBUG": "INFO"})
    own = ContainerRequest(variables=(Variable("X_MINE", "option"),))
    made = plan(site, host, container=own, launcher="srun", container_per="rank")
    rows = [(row.key, row.value, row.source) for row in made.choices if row.key in {"NCCL_DEBUG", "X_MINE"}]
    assert rows == [("NCCL_DEBUG", "INFO", "environment"), ("X_MINE", "option", "option")]
    assert made.script.count("X_MINE=") == 1


@pytest.mark.parametrize("beside", [True, False], ids=["beside a mask", "not beside a mask"])
@pytest.mark.parametrize(
    ("cores", "reserved", "gpu_cpus", "each"),
    [
        (64, "0,7,13-14,32,63", ("1-6,8-12", "15-25", "33-43", "44-54"), 11),  # 44 of 58
        (192, "", ("120-143", "72-95", "24-47", "0-23"), 24),  # four of eight NUMA nodes
        (40, "", ("0-12", "13-25", "26-39"), 13),  # all 40, not evenly
        (40, "", ("0-12", "13-25", "27-39"), 13),
    ],
)
def test_a_step_whose_masks_leave_cores_over_has_all_of_the_nodes(
    cores: int, reserved: str, gpu_cpus: tuple[str, ...], each: int, *, beside: bool
) -> None:
    node = Node(cores=cores, reserved=reserved, gpus=len(gpu_cpus), gpu_vendor="amd", gpu_cpus=gpu_cpus)
    site = Site(name="spare", title="spare", scheduler="slurm", node=node, slurm=Slurm(cpus_with_mask=beside))
    usable = cores - len(parse_ranges(reserved))
    by_rank = plan(
        site, resources=ResourceRequest(nodes=2, gpus_per_node=node.gpus), launcher="srun", container_per="rank"
    ).script
    assert {"--exclusive", f"--cpus-per-task={each}"} <= set(directives(by_rank))
    assert "--cpu-bind=mask_cpu:" in by_rank
    assert "--cpus-per-task" not in by_rank[by_rank.index("run_step srun ") : by_rank.index("\n}\n")]
    assert "unset SRUN_CPUS_PER_TASK SLURM_CPUS_PER_TASK SLURM_TRES_PER_TASK\n" in by_rank
    assert f"need_cores {usable}  # of a node\n" in by_rank
    by_node = plan(site, resources=ResourceRequest(nodes=2, gpus_per_node=node.gpus), launcher="torchrun").script
    assert {"--exclusive", f"--cpus-per-task={usable}"} <= set(directives(by_node))
    assert ";".join(gpu_cpus) in by_node
    assert f"OMP_NUM_THREADS={each} " in by_node


@pytest.mark.parametrize(
    ("option", "told", "ranks"),
    [
        # an exclusive job of 2 of 4 GPUs: Slurm 24.11 counts all of them on the node, and gives its steps two
        ("gpus-per-node", {"SLURM_GPUS_PER_NODE": "2", "SLURM_GPUS_ON_NODE": "4"}, 2),
        ("gpus-per-node", {"SLURM_GPUS_PER_NODE": "a100:3", "SLURM_GPUS_ON_NODE": "4"}, 3),
        ("gpus-per-node", {"SLURM_GPUS_ON_NODE": "4"}, 4),
        ("gpus-per-node", {}, 2),
        ("gres", {"SLURM_GPUS_ON_NODE": "4"}, 2),
        ("none", {"SLURM_GPUS_ON_NODE": "4"}, 2),
    ],
)
@pytest.mark.parametrize("devices", [1, 2])
def test_ranks_are_counted_by_the_gpus_that_a_step_gets(
    option: str, told: Mapping[str, str], ranks: int, devices: int
) -> None:
    node = Node(cores=16, gpus=4, gpu_vendor="nvidia", devices_per_gpu=devices)
    site = Site(name="x", title="x", scheduler="slurm", node=node, slurm=Slurm(gpu_option=option))  # type: ignore[arg-type]
    script = plan(site, resources=ResourceRequest(gpus_per_node=2), options=JobOptions(exclusive=True)).script
    lines = [line for line in script.splitlines() if re.match(r"    argosy_(gpus|ranks_per_node)=", line)]
    environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "1", **told}
    counted = subprocess.run(
        ["/bin/sh", "-euc", "\n".join([*lines, "echo $argosy_ranks_per_node"])],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert counted.stdout == f"{ranks * devices}\n"


def test_a_partial_node_of_an_allocation_has_no_masks() -> None:
    environment = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_GPUS_ON_NODE": "8"}
    for cores, masked in (("56", True), ("56(x2)", True), ("48", False), ("56,48", False)):
        host = replace(HOST, environment={**environment, "SLURM_JOB_CPUS_PER_NODE": cores})
        there = plan(
            FULL,
            host,
            resources=ResourceRequest(gpus_per_node=8),
            launcher="srun",
            container_per="rank",
            in_allocation=True,
        )
        assert ("mask_cpu" in there.script) == masked


@pytest.mark.parametrize(
    "resources",
    [
        ResourceRequest(gpus_per_node=4, cpus_per_rank=7),
        ResourceRequest(gpus_per_node=8, cpus_per_rank=3),
        ResourceRequest(ranks=4),
    ],
)
def test_no_mask_is_invented_for_other_shapes(resources: ResourceRequest) -> None:
    script = plan(FULL, resources=resources, launcher="srun", container_per="rank").script
    assert "mask_cpu" not in script
    assert '--cpus-per-task="${SLURM_CPUS_PER_TASK:-' in script


# Options


def test_an_option_that_the_site_requires_is_named_when_it_is_missing() -> None:
    site = Site(name="x", title="x", scheduler="slurm", slurm=Slurm(required=("account",)))
    with pytest.raises(SiteError, match="without --account") as refused:
        plan(site)
    assert "SBATCH_ACCOUNT" in str(refused.value)
    ours = replace(HOST, environment={"SBATCH_ACCOUNT": "p1"})
    assert "--account=p1" in directives(plan(site, ours).script)
    assert "--account=p2" in directives(plan(site, ours, options=JobOptions(account="p2")).script)


def test_gpus_are_requested_in_the_sites_syntax() -> None:
    site = Site(
        name="x", title="x", scheduler="slurm", node=Node(gpus=2, gpu_vendor="nvidia"), slurm=Slurm(gpu_option="gres")
    )
    script = plan(site, resources=ResourceRequest(gpus=2)).script
    assert "--gres=gpu:2" in directives(script)
    assert "/dev/nvidiactl" in script
    assert "--nv" in script


def test_a_requeued_job_appends_to_its_log() -> None:
    assert "--open-mode=append" in directives(plan(options=JobOptions(requeue=True)).script)


@pytest.mark.parametrize(
    ("options", "extra", "appends"),
    [
        (JobOptions(), (), True),
        (JobOptions(output="/x/%A_%4a.out"), (), True),
        (JobOptions(output="/x/train.log"), (), False),
        (JobOptions(output="/x/%j.out", error="/x/errors"), (), False),
        (JobOptions(), ("--open-mode=truncate",), False),
        (JobOptions(requeue=True), (), False),
    ],
)
def test_a_job_that_slurm_starts_again_keeps_the_log_of_its_first_run(
    options: JobOptions,
    extra: tuple[str, ...],
    appends: bool,  # noqa: FBT001 - a case
) -> None:
    words = plan(options=options, extra=extra).submit
    assert words == ("sbatch", "--parsable", *(["--open-mode=append"] if appends else []), "{script}")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"restarts": 2}, "--resume needs --checkpoint"),
        ({"checkpoint": "/x"}, "add --resume"),
        ({"restarts": -1, "checkpoint": "/x"}, "--resume"),
        ({"restarts": 1, "checkpoint": "/x", "options": JobOptions(signal="now")}, "warning signal"),
        ({"launcher": "torchrum"}, "torchrun"),
        ({"debug": ("nett",)}, "did you mean net"),
        ({"launcher": "srun", "launcher_arguments": ("--x",)}, "torchrun"),
    ],
)
def test_impossible_launches_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(**asked)
    assert says in str(refused.value)


def test_logs_of_debug_have_the_name_and_number_of_their_job() -> None:
    job = plan(debug=("net",), name="first")
    assert '=/home/alice/first-"$SLURM_JOB_ID"-nccl-"${SLURM_RESTART_COUNT:-0}"-%h-%p.log'.replace('"', "") in (
        job.script.replace('"', "")
    )
    here = plan(Site(name="here", title="here", scheduler="local"), debug=("net",), name="first")
    assert "=/home/alice/first-nccl-%h-%p.log" in here.script


def test_srun_needs_a_scheduler() -> None:
    with pytest.raises(UsageError, match="needs Slurm"):
        plan(Site(name="here", title="here", scheduler="local"), launcher="srun")


# Launchers


@pytest.mark.parametrize(
    ("command", "ours"),
    [
        (("python", "t.py", "-x"), ("t.py", "-x")),
        (("python3", "-u", "t.py"), ("t.py",)),
        (("python", "-m", "mod", "x"), ("-m", "mod", "x")),
        (("python", "-c", "pass"), ("--no-python", "python", "-c", "pass")),
        (("python", "-X", "dev", "t.py"), ("--no-python", "python", "-X", "dev", "t.py")),
        (("./run.sh",), ("--no-python", "./run.sh")),
        (("python",), ("--no-python", "python")),
        (("python3.11", "t.py", "-x"), ("--no-python", "python3.11", "-u", "t.py", "-x")),
        (("/opt/argosy/env/bin/python", "t.py"), ("--no-python", "/opt/argosy/env/bin/python", "-u", "t.py")),
        (("env", "A=1", "python", "t.py"), ("--no-python", "env", "A=1", "python", "-u", "t.py")),
        (("nice", "-n", "5", "python3", "-u", "t.py"), ("--no-python", "nice", "-n", "5", "python3", "-u", "t.py")),
    ],
)
def test_a_command_becomes_torchruns_program(command: tuple[str, ...], ours: tuple[str, ...]) -> None:
    assert as_torchrun_program(command) == ours


def test_workers_are_bound_either_by_argosy_or_by_torchrun_and_start_unbuffered() -> None:
    spec = LauncherSpec(("python", "-u", "t.py"), Counts("1", "2"), cores=("0-1", "2-3"))
    bound = find_launcher("torchrun").plan(spec).command
    assert bound[bound.index("bind_cores") + 1 :] == ("0-1;2-3", "python", "-u", "t.py")
    own = find_launcher("torchrun").plan(replace(spec, extra=("--numa-binding=node",))).command
    assert own[-2:] == ("--numa-binding=node", "t.py")


@pytest.mark.parametrize(
    ("command", "packages", "launcher"),
    [
        (COMMAND, {"torch"}, "torchrun"),
        (("./a.out",), {"torch"}, "none"),
        (COMMAND, {"numpy"}, "none"),
        (("python3.11", "t.py"), {"torch"}, "torchrun"),
        (("/opt/argosy/env/bin/python", "t.py"), {"torch"}, "torchrun"),
        (("env", "A=1", "B=", "python", "t.py"), {"torch"}, "torchrun"),
        (("nice", "python3", "t.py"), {"torch"}, "torchrun"),
        (("nice", "-n", "5", "numactl", "--localalloc", "python", "t.py"), {"torch"}, "torchrun"),
        (("env", "A=1", "./a.out"), {"torch"}, "none"),
        (("env", "-i", "python", "t.py"), {"torch"}, "none"),
        (("env", "A=1"), {"torch"}, "none"),
        (("python-config",), {"torch"}, "none"),
    ],
)
def test_the_image_and_the_command_choose_the_launcher(
    command: tuple[str, ...], packages: set[str], launcher: str
) -> None:
    image = replace(IMAGE, packages=frozenset(packages), complete=True)
    assert choose_launcher("", image, command, JobShape(1, 2)).value == launcher


def test_a_layer_over_a_vendors_base_is_started_by_torchrun_since_the_base_may_have_torch() -> None:
    image = replace(IMAGE, packages=frozenset({"einops"}))
    choice = choose_launcher("", image, COMMAND, JobShape(1, 2))
    assert (choice.value, "the packages of its base" in choice.why) == ("torchrun", True)
    assert choose_launcher("", image, COMMAND, JobShape(1, 1)).value == "none"
    with_steps = replace(image, only_steps_unlisted=True)
    assert choose_launcher("", with_steps, COMMAND, JobShape(1, 2)).value == "none"


def test_a_launcher_is_refused_before_the_queue_if_the_image_surely_lacks_its_package() -> None:
    bare = replace(IMAGE, packages=frozenset({"numpy"}), complete=True)
    with pytest.raises(UsageError, match="needs PyTorch, which this image does not contain") as caught:
        plan(image=bare, launcher="torchrun")
    assert "--launcher srun" in caught.value.hint
    with pytest.raises(UsageError, match="needs PyTorch, which this image does not contain"):
        plan(Site(name="local", title="here"), image=bare, launcher="torchrun")
    with pytest.raises(UsageError, match="the ray launcher needs Ray, which this image does not contain"):
        plan(image=replace(bare, packages=frozenset({"torch"})), launcher="ray")
    assert plan(image=replace(bare, packages=frozenset({"ray"})), launcher="ray").script
    brought = ContainerRequest(binds=(Bind("/shared/venv", "/shared/venv"),))
    named = ContainerRequest(variables=(Variable("PYTHONPATH", "/shared/packages"),))
    for container in (brought, named):
        assert "torch.distributed.run" in plan(image=bare, launcher="torchrun", container=container).script
    assert "torch.distributed.run" in plan(image=replace(bare, complete=False), launcher="torchrun").script


@pytest.mark.parametrize(
    ("command", "meant"),
    [
        (("torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"), "-- python train.py --lr 1;"),
        (("python", "-m", "torch.distributed.run", "train.py"), "-- python train.py;"),
        (("/usr/bin/mpirun", "-n", "2", "hello"), "--launcher mpi -- PROGRAM;"),
        (("mpiexec", "-n", "2", "python", "pi.py", "9"), "--launcher mpi -- python pi.py 9;"),
        (("deepspeed", "--num_gpus=2"), "-- python train.py;"),
        (("python", "-m", "accelerate.commands.launch", "train.py", "1"), "-- python train.py 1;"),
        (("python3.11", "-u", "-m", "deepspeed.launcher.runner", "train.py"), "-- python train.py;"),
        (("env", "A=1", "torchrun", "train.py"), "-- python train.py;"),
    ],
)
def test_a_program_that_starts_ranks_itself_is_not_started_per_rank(command: tuple[str, ...], meant: str) -> None:
    image = Image("x.sif", ImageKind.SIF, "", "", packages=frozenset({"torch"}))
    with pytest.raises(UsageError, match="starts ranks itself") as caught:
        choose_launcher("", image, command, JobShape(1, 2))
    assert meant in caught.value.hint
    choose_launcher("", image, command, JobShape(1, 1))
    choose_launcher("none", image, command, JobShape(1, 2))


def test_a_job_of_one_rank_does_not_start_torchrun_unless_that_was_requested() -> None:
    command = ("torchrun", "--nproc_per_node=8", "train.py")
    with pytest.raises(UsageError, match="starts ranks itself"):
        plan(FULL, command=command, resources=ResourceRequest(gpus=1))
    assert (
        "torchrun --nproc_per_node=8" in plan(FULL, command=command, resources=ResourceRequest(gpus=8, ranks=1)).script
    )


def test_a_time_limit_that_looks_like_hours_is_doubtful() -> None:
    choices = plan(FULL, resources=ResourceRequest(gpus=1), options=JobOptions(time="1:00")).choices
    assert [choice.value for choice in choices if choice.key == "--time" and choice.mark is Mark.DOUBTFUL] == ["1:00"]


def test_more_memory_than_a_node_has_is_refused() -> None:
    site = replace(FULL, node=replace(FULL.node, memory_mb=491520))
    for options in (JobOptions(mem="480G"), JobOptions(mem="0"), JobOptions(mem_per_gpu="60G")):
        refuse_memory(options, JobShape(1, 8, 8), site)
    refuse_memory(JobOptions(mem="600G"), JobShape(1, 8, 8), FULL)
    with pytest.raises(UsageError, match="100G of memory for each of 8 GPUs") as caught:
        refuse_memory(JobOptions(mem_per_gpu="100G"), JobShape(1, 8, 8), site)
    assert "at most --mem-per-gpu 60G" in caught.value.hint
    with pytest.raises(UsageError, match="does not have 600G") as caught:
        refuse_memory(JobOptions(mem="600G"), JobShape(1, 8, 8), site)
    assert "--mem 480G" in caught.value.hint


def test_cores_that_are_kept_from_jobs_are_refused_with_the_number_that_fits() -> None:
    site = replace(FULL, node=replace(FULL.node, cores=64, reserved="0,8,16,24,32,40,48,56"))
    resources = ResourceRequest(nodes=1, gpus_per_node=8, cpus_per_rank=8)
    assert plan(site, resources=replace(resources, cpus_per_rank=7)).script
    with pytest.raises(UsageError, match="can use 56 cores, but 64 were requested") as caught:
        plan(site, resources=resources)
    assert "--cpus-per-rank 7; --no-check" in caught.value.hint
    forced = plan(site, resources=resources, no_check=True)
    assert "--cpus-per-task=64" in forced.script
    assert [choice.mark for choice in forced.choices if choice.key == ChoiceKey.CORES_PER_RANK] == [Mark.DOUBTFUL]
    with pytest.raises(UsageError, match="can use 56 cores") as caught:
        plan(site, resources=ResourceRequest(nodes=1, ranks=64))
    assert "at most 56 ranks" in caught.value.hint


def test_a_reserved_number_that_is_no_core_of_the_node_takes_none_away() -> None:
    site = replace(FULL, node=replace(FULL.node, cores=64, reserved="0,64-71"))  # 64 and up are hardware threads
    assert plan(site, resources=ResourceRequest(nodes=1, ranks=63)).script
    with pytest.raises(UsageError, match="can use 63 cores, but 64 were requested"):
        plan(site, resources=ResourceRequest(nodes=1, ranks=64))


# Whole scripts


@dataclass(frozen=True, slots=True)
class Case:
    """A launch whose script is kept."""

    name: str
    request: dict[str, Any]
    site: Site = LAB


TWO = ResourceRequest(nodes=2, ranks=4, cpus_per_rank=2)


def test_a_guessed_pmi_type_is_one_of_the_reasons() -> None:
    guessed = plan(LAB, resources=TWO, launcher="mpi")
    assert "--mpi=pmix: the profile of lab names no PMI type" in guessed.script
    assert "no PMI type" not in plan(LAB, resources=TWO, launcher="mpi", mpi="pmi2").script
    known = plan(replace(LAB, launcher=LauncherPolicy(mpi="pmi2")), resources=TWO, launcher="mpi")
    assert "no PMI type" not in known.script


CASES = (
    Case("torchrun-one-node", {"resources": ResourceRequest(ranks=2)}),
    Case("torchrun-two-nodes", {"resources": TWO}),
    Case("torchrun-full-nodes", {"resources": ResourceRequest(nodes=2, gpus_per_node=8)}, FULL),
    Case("srun-two-nodes", {"resources": TWO, "launcher": "srun"}),
    Case("srun-full-nodes", {"resources": ResourceRequest(nodes=2, gpus_per_node=8), "launcher": "srun"}, FULL),
    Case("mpi-two-nodes", {"resources": TWO, "launcher": "mpi", "mpi": "pmi2"}),
    Case("debug-and-logs", {"resources": TWO, "debug": ("net", "torch"), "logs": "/shared/my logs"}),
    Case("elastic", {"resources": ResourceRequest(nodes=2, ranks=4), "elastic": "1:2", "label": True}),
    Case(
        "staged-smoke",
        {
            "resources": TWO,
            "launcher": "srun",
            "label": True,
            "smoke": True,
            "stage_to": "/local",
            "before": ("python fetch.py 'a b'", 'echo "$HOME"'),
        },
    ),
    Case("none-one-rank", {"command": ("./a.out",), "launcher": "none"}),
    Case(
        "resume",
        {"resources": TWO, "restarts": 5, "checkpoint": "/shared/out/last.pt", "options": JobOptions(time="10")},
    ),
    Case(
        "hostile",
        {
            "resources": ResourceRequest(nodes=2, ranks=4),
            "launcher": "srun",
            "name": "a 'job' # \"mine\" $HOME\\",
            "command": ("echo", "", "a b", "it's", '"', "$HOME", "`id`", "*", "one\ntwo", "é", "--", "-x"),
            "container": ContainerRequest(variables=(Variable("X", "`id` $HOME 'x', \"y\"\nz"),), gpu=GpuMode.NONE),
        },
    ),
)
PROGRAMS = (FREE_PORT, OWN_FOLDERS, CHECK_NODE, TORCHRUN, ELASTIC, RANK, TASK, MPI_RANK, BIND, LOG, GUARD)


def script_of(case: Case) -> str:
    return plan(case.site, **case.request).script


def check(words: list[str], text: str) -> str:
    return subprocess.run(words, input=text, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_script_is_the_one_that_was_reviewed(case: Case) -> None:
    path = KEPT / f"{case.name}.sh"
    if os.environ.get("ARGOSY_RECORD"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script_of(case))
    assert script_of(case) == path.read_text()


def test_no_script_is_kept_that_no_case_makes() -> None:
    assert {path.stem for path in KEPT.iterdir()} == {case.name for case in CASES}


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shellcheck_finds_nothing_in_a_script(case: Case) -> None:
    assert check(["shellcheck", "-"], script_of(case)) == ""


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_shellcheck_finds_nothing_in_the_programs_within(program: ShellFunction) -> None:
    assert check(["shellcheck", "--shell=sh", "--exclude=SC1090,SC2013,SC2046,SC2086", "-"], str(program)) == ""


@pytest.mark.parametrize("shell", ["dash", "bash"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_shell_parses_a_script(case: Case, shell: str) -> None:
    ran = subprocess.run([shell, "-n"], input=script_of(case), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_a_script_for_two_nodes_is_one_that_a_person_reads() -> None:
    for case in CASES:
        script = script_of(case)
        shell = script.partition("\nargosy_start_ranks=")[0]  # without the Python program that starts ranks
        assert len(shell.encode()) <= MOST_BYTES, case.name
        if case.name.endswith("two-nodes"):
            assert script.partition("\nmain() {")[2].partition("\n}\n")[0].count("\n") <= MOST_LINES, case.name


def test_a_script_for_ten_thousand_nodes_is_as_long_as_one_for_two() -> None:
    two, many = (plan(resources=ResourceRequest(nodes=nodes, ranks=2 * nodes)).script for nodes in (2, 10_000))
    assert len(many.splitlines()) == len(two.splitlines())
    assert len(many) - len(two) < 100


@pytest.mark.parametrize(("own", "told"), [({}, "n1:20001"), ({"JAX_COORDINATOR_ADDRESS": "n9:1"}, "n9:1")])
def test_a_rank_of_jax_meets_at_the_port_that_was_found_free(own: dict[str, str], told: str) -> None:
    task = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
    where = {"MASTER_ADDR": "n1", "MASTER_PORT": "20001", "PATH": os.environ["PATH"]}
    words = ("sh", "-euc", RANK, RANK.name, "2", "", "sh", "-c", 'echo "$RANK $JAX_COORDINATOR_ADDRESS"')
    done = subprocess.run(words, env=task | where | own, capture_output=True, text=True, check=True)
    assert done.stdout == f"3 {told}\n"


@pytest.mark.parametrize(("tasks", "told"), [("4", "3 1 4 2 1"), ("1", "- - - - -")])
def test_copies_in_a_job_get_the_variables_that_srun_sets_and_a_single_program_none(tasks: str, told: str) -> None:
    task = {"SLURM_PROCID": "3", "SLURM_NTASKS": tasks, "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK")
    show = f"echo {' '.join(f'${{{name}:--}}' for name in names)}"
    spec = LauncherSpec(("sh", "-c", show), Counts(ShellExpr("$argosy_nodes"), "2"))
    for launcher in ["none", "srun"] if tasks == "4" else ["none"]:
        words = [str(word) for word in find_launcher(launcher).plan(spec).command]
        environment = task | {"PATH": os.environ["PATH"]}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == f"{told}\n"
