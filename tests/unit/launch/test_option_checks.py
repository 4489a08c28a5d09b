"""What a launch can be asked beside its shape: elastic, labelled, staged, a smoke run, a job of the project file."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from argosy.core.errors import ArgosyError, SiteError, UsageError
from argosy.core.model import Bind, ChoiceKey, ContainerRequest, Gpu, Host, Image, ImageKind, Variable
from argosy.core.process import FakeRunner, Reply
from argosy.core.records import replace
from argosy.core.shell import Helpers, render_helpers
from argosy.jobs.history import kept_plan, read_job
from argosy.jobs.launch_plan import LaunchPlan
from argosy.jobs.record import Submission, read_command_line, read_submission, write_submission
from argosy.launch.complete import as_smoke, complete_request
from argosy.launch.context import LaunchContext, choose_target
from argosy.launch.explain import explain_plan
from argosy.launch.interactive import launch_interactive, plan_allocation, render_shell
from argosy.launch.launchers.launcher import ELASTIC, TORCHRUN
from argosy.launch.model import LaunchRequest, ResourceRequest
from argosy.launch.option_checks import UNUSED, doubtful_choices, unused_options
from argosy.launch.plan import plan_launch
from argosy.launch.request import make_request
from argosy.launch.script.helpers import CREATE_STAGE, render_script_functions
from argosy.launch.script.parts import render_elastic_verdict, render_staging
from argosy.launch.submit import make_output_folders, output_folders, submit, write_record, write_script
from argosy.recipes.job_options import with_defaults, with_job
from argosy.recipes.option_row import option_name
from argosy.recipes.project_file import Project, read_project
from argosy.runtimes.container_plan import plan_container
from argosy.sites.profile import Node, Partition, Site, Slurm
from argosy.sites.profile_parts import Avoid, SiteBind, SiteOption
from argosy.sites.read import read_site
from argosy.sites.software import Modules
from argosy.slurm.sbatch import USER_DEFAULTS, JobOptions
from argosy.version import VERSION
from tests.unit.machines import make_host, make_session

HOST = make_host("apptainer", "sbatch", environment={"HOME": "/home/alice"})
IMAGE = Image(
    path="/shared/train.sif",
    kind=ImageKind.SIF,
    digest="sha256:0123456789abcdef0123",
    arch="amd64",
    argosy=True,
    packages=frozenset({"torch"}),
)
NODES = make_host("enroot", "srun", "sbatch", environment={"HOME": "/home/alice"})
SQUASHFS = replace(IMAGE, path="/shared/train.sqsh", kind=ImageKind.SQUASHFS)
LAB = Site(name="lab", title="the lab", scheduler="slurm", node=Node(cores=8))
HERE = Site(name="here", title="here", scheduler="local")
QUEUES = Site(
    name="q", title="q", scheduler="slurm", partitions=(Partition(name="main"), Partition(name="dev", debug=True))
)


def plan(site: Site = LAB, image: Image = IMAGE, host: Host = HOST, **request: Any) -> LaunchPlan:
    asked = LaunchRequest(image=image.path, **{"command": ("python", "t.py"), "site": site.name, **request})
    asked, site = complete_request(asked, site, host)
    target = choose_target(asked, site, host)
    there = replace(host, gpus=tuple(Gpu("nvidia", n, "") for n in range(target.shape.gpus_per_node)))
    container = plan_container(asked.container, image, there)
    return plan_launch(LaunchContext(asked, target, container, there))


# Advice and options of the site


def test_an_option_that_the_site_advises_against_is_named() -> None:
    avoid = Avoid(word="--exclusive", instead="the default", why="nodes are shared", source="https://e.org")
    there = msgspec.structs.replace(LAB, avoid=(avoid,))
    (line,) = doubtful_choices(plan(there, options=JobOptions(exclusive=True)).choices)
    assert line == "--exclusive yes: lab advises against it: nodes are shared; instead: the default"
    assert not [*doubtful_choices(plan(there).choices)]


def test_argosy_does_not_add_what_the_site_advises_against() -> None:
    mapped = msgspec.structs.replace(LAB, node=replace(LAB.node, cores=8, gpus=2, gpu_cpus=("0-3", "4-7")))
    usual = plan(mapped, resources=ResourceRequest(nodes=2))
    assert ("--exclusive" in usual.directives, usual.cores) == (True, ("0-3", "4-7"))
    avoid = Avoid(word="--exclusive", instead="--gpus-per-node", why="nodes are shared", source="https://e.org")
    there = msgspec.structs.replace(mapped, avoid=(avoid,))
    shared = plan(there, resources=ResourceRequest(nodes=2))
    assert ("--exclusive" in shared.directives, shared.cores) == (False, ())
    assert not [*doubtful_choices(shared.choices)]
    (why,) = [row.why for row in shared.choices if row.key == ChoiceKey.RANK_CORES]
    assert why == "a map needs --exclusive, which the site advises against"
    whole = plan(there, resources=ResourceRequest(nodes=2), options=JobOptions(exclusive=True))
    assert whole.cores == ("0-3", "4-7")
    unknown = plan(replace(there, node=replace(there.node, gpu_cpus=())), resources=ResourceRequest(nodes=2))
    (why,) = [row.why for row in unknown.choices if row.key == ChoiceKey.RANK_CORES]
    assert why == "the profile has no gpu_cpus; the cores near each GPU are unknown"


@pytest.mark.parametrize(
    ("when", "exclusive"),
    [
        ({"partition": "small"}, True),
        ({"partition": "main"}, False),
        ({"nodes": "> 2"}, True),
        ({"launcher": "torchrun"}, True),
        ({"whole_nodes": "no"}, True),  # with the option, the job has whole nodes
        ({"nccl": "< 2.20"}, True),  # an unknown fact
    ],
)
def test_conditional_advice_counts_for_the_jobs_that_it_is_about(when: dict[str, str], *, exclusive: bool) -> None:
    node = replace(LAB.node, cores=8, gpus=2, gpu_cpus=("0-3", "4-7"))
    avoid = Avoid(word="--exclusive", why="nodes are shared", source="https://e.org", when=when)
    there = msgspec.structs.replace(LAB, node=node, avoid=(avoid,), partitions=(Partition(name="main"),))
    made = plan(there, resources=ResourceRequest(nodes=2), launcher="srun", options=JobOptions(partition="main"))
    assert ("--exclusive" in made.directives, bool(made.cores)) == (exclusive, exclusive)
    if "partition" in when:
        anywhere = plan(msgspec.structs.replace(there, partitions=()), resources=ResourceRequest(nodes=2))
        assert "--exclusive" in anywhere.directives


def test_a_job_has_one_qos() -> None:
    option = SiteOption(to="sbatch", word="--qos=gpu", why="nodes with GPUs", source="https://e.org")
    there = msgspec.structs.replace(LAB, options=(option,))
    (line,) = doubtful_choices(plan(there, options=JobOptions(qos="normal")).choices)
    assert line == "--qos normal: it replaces --qos=gpu of the profile"


def test_an_option_that_replaces_that_of_the_site_is_named() -> None:
    option = SiteOption(to="sbatch", word="--constraint=gpu", why="nodes with GPUs", source="https://e.org")
    there = msgspec.structs.replace(LAB, options=(option,))
    (line,) = doubtful_choices(plan(there, options=JobOptions(constraint="hbm80g")).choices)
    assert line == "--constraint hbm80g: it replaces --constraint=gpu of the profile; give both if the job needs both"
    assert not [*doubtful_choices(plan(there, options=JobOptions(constraint="gpu&hbm80g")).choices)]
    assert not [*doubtful_choices(plan(there).choices)]


def test_the_users_option_replaces_that_of_the_site_which_then_is_not_required() -> None:
    option = SiteOption(to="sbatch", word="--constraint=MI300A", why="the usual nodes", source="https://e.org")
    slurm = msgspec.structs.replace(LAB.slurm, required=("constraint",))
    there = msgspec.structs.replace(LAB, options=(option,), slurm=slurm)
    assert "--constraint=MI300A" in plan(there).directives
    made = plan(there, options=JobOptions(constraint="MI250"))
    assert [each for each in made.directives if "constraint" in each] == ["--constraint=MI250"]


def test_an_option_of_every_srun_reaches_the_steps_of_helpers_and_of_later_commands() -> None:
    option = SiteOption(to="srun-always", word="--gres=none", why="steps get no GPUs", source="https://e.org")
    there = msgspec.structs.replace(LAB, options=(option,))
    made = plan(there, stage_to="/local", resources=ResourceRequest(nodes=2))
    assert "argosy_step_options=--gres=none" in made.script
    assert made.step_options == ("--gres=none",)
    assert "argosy_step_options=" not in plan(stage_to="/local", resources=ResourceRequest(nodes=2)).script


def test_a_test_of_each_node_is_not_told_to_start_a_rank_per_gpu() -> None:
    node = msgspec.structs.replace(LAB.node, gpus=4, gpu_vendor="nvidia")
    there, resources = msgspec.structs.replace(LAB, node=node), ResourceRequest(nodes=2, ranks=2)
    usual: dict[str, Any] = {"resources": resources, "launcher": "none"}
    assert any("a rank per GPU" in line for line in doubtful_choices(plan(there, **usual).choices))
    assert not [*doubtful_choices(plan(there, **usual, independent_ranks=True).choices)]


def test_more_gpus_than_a_node_has_are_refused_with_the_partition_that_has_them() -> None:
    node = msgspec.structs.replace(LAB.node, gpus=4, gpu_vendor="nvidia")
    partitions = (Partition(name="gpu", choose=True), Partition(name="hopper", gpus=8))
    there = msgspec.structs.replace(LAB, node=node, partitions=partitions)
    with pytest.raises(UsageError) as caught:
        plan(there, resources=ResourceRequest(nodes=2, gpus_per_node=8))
    assert caught.value.hint == "use --partition hopper, or more nodes: --nodes 4 --gpus-per-node 4"
    asked = JobOptions(partition="hopper")
    assert (
        "--gpus-per-node=8"
        in plan(there, resources=ResourceRequest(nodes=2, gpus_per_node=8), options=asked).directives
    )
    with pytest.raises(UsageError) as caught:
        plan(there, resources=ResourceRequest(nodes=2, gpus_per_node=16))
    assert caught.value.hint == "use more nodes: --nodes 8 --gpus-per-node 4"


@pytest.mark.parametrize(
    ("resources", "devices", "hint"),
    [
        (ResourceRequest(gpus=8, ranks=8), 1, "--nodes 2 --gpus-per-node 4 --ranks-per-node 4"),
        (ResourceRequest(nodes=2, gpus_per_node=8, ranks=16), 1, "--nodes 4 --gpus-per-node 4 --ranks-per-node 4"),
        (ResourceRequest(gpus=8, ranks=16), 2, "--nodes 2 --gpus-per-node 4 --ranks-per-node 8"),
        (ResourceRequest(gpus=8, ranks=1), 1, "--nodes 2 --gpus-per-node 4"),
        (ResourceRequest(gpus=8), 1, "--nodes 2 --gpus-per-node 4"),
    ],
)
def test_more_nodes_with_fewer_gpus_keep_a_rank_per_gpu(resources: ResourceRequest, devices: int, hint: str) -> None:
    node = msgspec.structs.replace(LAB.node, gpus=4, gpu_vendor="nvidia", devices_per_gpu=devices)
    with pytest.raises(UsageError) as caught:
        plan(msgspec.structs.replace(LAB, node=node), resources=resources)
    assert caught.value.hint == f"use more nodes: {hint}"


def test_an_option_that_the_profile_adds_in_one_partition_is_required_in_the_others_only() -> None:
    option = SiteOption(
        to="sbatch", word="--qos=hopper", when={"partition": "hopper"}, why="its QOS", source="https://e.org"
    )
    slurm = msgspec.structs.replace(LAB.slurm, required=("qos",))
    there = msgspec.structs.replace(LAB, options=(option,), slurm=slurm)
    assert "--qos=hopper" in plan(there, options=JobOptions(partition="hopper")).directives
    with pytest.raises(SiteError, match="rejects jobs without --qos"):
        plan(there, options=JobOptions(partition="ampere"))


# Elastic


def test_an_elastic_job_accepts_slurms_nodes_and_survives_a_lost_one() -> None:
    made = plan(elastic="2:4")
    assert ": 2 to 4 nodes with " in made.script
    assert {"--nodes=2-4", "--no-kill"} <= set(made.directives)
    assert '"--nnodes=2:$argosy_nodes"' in made.script
    assert "--no-kill --kill-on-bad-exit=0" in made.script
    assert "--rdzv-backend=c10d" in made.script
    assert "--node-rank" not in made.script


def test_a_range_of_nodes_with_a_number_that_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="invalid range of nodes"):
        plan(elastic=f"2:{'9' * 5000}")


def test_an_elastic_job_succeeds_if_its_minimum_of_nodes_did(tmp_path: Path) -> None:
    call = render_elastic_verdict(2)
    values = f"argosy_record={tmp_path} argosy_code=1"
    script = "\n".join([*render_script_functions(call), values, call, 'echo "$argosy_code"'])

    def code() -> str:
        words = ("env", "SLURM_JOB_ID=7", "SLURM_RESTART_COUNT=1", "sh", "-euc", script)
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "well-7-0-0").touch()
    (tmp_path / "well-7-0-1").touch()
    assert code() == "1"
    (tmp_path / "well-7-1-0").touch()
    assert code() == "1"
    (tmp_path / "well-7-1-2").touch()
    assert code() == "0"


def test_the_trade_off_of_an_elastic_job_is_explained() -> None:
    (row,) = (choice for choice in plan(elastic="2:4").choices if choice.key == "elastic")
    assert "rank 0 may run on any node" in row.why


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"elastic": "4:2"}, "--elastic 2:4"),
        ({"elastic": "two"}, "invalid range of nodes"),
        ({"elastic": "1:2", "resources": ResourceRequest(nodes=3)}, "--nodes 3, --elastic 1:2"),
        ({"elastic": "1:2", "launcher": "srun"}, "needs the torchrun launcher"),
        ({"label": True, "logs": "/l"}, "--log-dir"),
        ({"gpu_type": "a b"}, "invalid GPU type"),
        ({"stage_to": "tmp"}, "absolute path"),
        ({"stage_to": "/local/$(id)"}, "not a valid folder for --stage-to"),
    ],
)
def test_impossible_requests_are_refused(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(**asked)
    assert says in str(refused.value)


@pytest.mark.parametrize("asked", [{"elastic": "1:2"}, {"gpu_type": "a100"}, {"stage_to": "/local"}])
def test_requests_for_a_cluster_are_refused_without_one(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="site with Slurm"):
        plan(HERE, **asked)


# Labels, kinds of GPU, staging


def test_labels_are_sruns_own_and_torchruns_in_the_same_form() -> None:
    assert "--label" in plan(launcher="srun", label=True, resources=ResourceRequest(ranks=2)).script
    script = plan(label=True, resources=ResourceRequest(ranks=2)).script
    assert "srun --label" not in script
    assert "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='${rank}: '" in script
    assert "--tee 3" in script


@pytest.mark.parametrize(
    ("option", "words"), [("gres", "--gres=gpu:a100:2"), ("gpus-per-node", "--gpus-per-node=a100:2")]
)
def test_a_gpu_type_is_requested_by_the_sites_name(option: str, words: str) -> None:
    site = Site(
        name="x",
        title="x",
        scheduler="slurm",
        node=Node(gpus=4, gpu_vendor="nvidia"),
        slurm=Slurm(gpu_option=option),  # type: ignore[arg-type]  # one of its words
    )
    assert words in plan(site, gpu_type="a100", resources=ResourceRequest(gpus=2)).directives


def test_a_staged_image_is_known_by_its_digest_and_goes_with_the_job() -> None:
    script = plan(stage_to="/local/").script
    assert "stage_image /local/ /shared/train.sif 0123456789abcdef.sif\n" in script
    assert '$argosy_each rm -rf "$argosy_staged"' in script
    step = script[script.index("run_step srun ") : script.index("\n}\n")]
    assert step.count('"$argosy_image"') == len(
        ("what the node checks", "what the runtime starts", "what has the layer")
    )
    assert "/shared/train.sif /bin" not in step


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_staged_image_never_takes_a_place_that_is_there_already(shell: str, tmp_path: Path) -> None:
    """Play srun and sbcast on one machine, where a stranger made what the job is about to make."""
    image, tools, local = tmp_path / "train.sif", tmp_path / "bin", tmp_path / "local"
    tools.mkdir()
    local.mkdir()
    image.write_text("image")
    (tools / "srun").write_text('#!/bin/sh\nwhile case $1 in --*) ;; *) false ;; esac; do shift; done; exec "$@"\n')
    (tools / "sbcast").write_text('#!/bin/sh\nset -C\ncat "$1" > "$2"\n')
    (tools / "od").write_text('#!/bin/sh\necho " 01 23"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    call = "\n".join(render_staging(str(local), str(image), ""))
    helpers = render_helpers(Helpers(CREATE_STAGE.definitions))
    done = ["trap - EXIT", 'echo "$argosy_image"']
    lines = [*render_script_functions(call), *helpers, "argosy_nodes=1", call, *done]
    words = [shell, "-euc", "\n".join(lines)]
    there = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "9"}
    ran = subprocess.run(words, env=there, capture_output=True, text=True, check=True)
    copied = Path(ran.stdout.strip())
    assert copied == local / "argosy-stage-9-0123/image.sif"
    assert (copied.read_text(), copied.parent.stat().st_mode & 0o777) == ("image", 0o700)
    copied.unlink()
    copied.parent.rmdir()
    precious = tmp_path / "precious"
    precious.mkdir()
    copied.parent.symlink_to(precious)
    assert subprocess.run(words, env=there, capture_output=True, check=False).returncode == 7
    assert not list(precious.iterdir())


def test_an_image_is_not_staged_into_memory() -> None:
    site = Site(name="x", title="x", scheduler="slurm", node=Node(tmp_in_memory=True))
    with pytest.raises(SiteError, match="in memory"):
        plan(site, stage_to="/tmp")  # noqa: S108 - the case
    assert "stage_image /disk /shared/train.sif " in plan(site, stage_to="/disk").script


def test_only_a_file_can_be_staged() -> None:
    with pytest.raises(UsageError, match="SIF image"):
        plan(image=replace(IMAGE, kind=ImageKind.TREE), stage_to="/local")


# What runs before


def test_commands_before_the_ranks_run_once_and_stop_the_job_on_failure(tmp_path: Path) -> None:
    script = plan(before=("python fetch.py", "cat 'a b'")).script
    assert script.index("python fetch.py") < script.index("run_step srun ")
    assert 'srun --nodes=1 --ntasks=1 --nodelist="$argosy_first"' in script
    here = plan(HERE, before=("echo once", "false", "echo never"), launcher="none", command=("echo", "ranks")).script
    (tmp_path / "apptainer").write_text('#!/bin/sh\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n')
    (tmp_path / "apptainer").chmod(0o755)
    (tmp_path / "train.sif").touch()
    (tmp_path / "enter").write_text('exec "$@"\n')
    (tmp_path / "enter").chmod(0o755)
    text = here.replace("/shared/train.sif", str(tmp_path / "train.sif"))
    text = text.replace("/opt/argosy/enter", str(tmp_path / "enter"))
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    ran = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, env=path, check=False)
    assert (ran.stdout, ran.returncode) == ("once\n", 1)
    assert "the command of --before failed (code 1)" in ran.stderr


# Smoke runs


def smoke(site: Site = QUEUES, **request: Any) -> LaunchRequest:
    return as_smoke(LaunchRequest(image="i.sif", command=("x",), **request), site)


def test_a_smoke_run_takes_two_nodes_for_three_minutes_in_the_test_partition() -> None:
    asked = smoke(
        resources=ResourceRequest(nodes=8, ranks=32, cpus_per_rank=7),
        options=JobOptions(time="1-0", array="0-9", account="a"),
        restarts=3,
        checkpoint="/c-%a",
    )
    assert asked.resources == ResourceRequest(nodes=2, ranks=8, cpus_per_rank=7)
    assert asked.options == JobOptions(time="00:03:00", partition="dev", account="a")
    assert (asked.restarts, asked.checkpoint, asked.smoke) == (0, "", True)


def test_a_smoke_run_of_one_node_stays_one() -> None:
    assert smoke(resources=ResourceRequest(nodes=1, gpus=4)).resources == ResourceRequest(nodes=1, gpus=4)


@pytest.mark.parametrize("resources", [ResourceRequest(), ResourceRequest(ranks=2), ResourceRequest(gpus=4)])
def test_a_smoke_run_of_a_job_without_a_number_of_nodes_has_its_shape(resources: ResourceRequest) -> None:
    site, options = read_site("lumi-g"), JobOptions(account="a")
    job, short = (plan(site, resources=resources, options=options, smoke=smoke) for smoke in (False, True))
    assert short.shape == job.shape
    assert short.shape.gpus_per_node == max(1, resources.ranks, resources.gpus)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"resources": ResourceRequest(nodes=4, ranks=3)}, "cannot distribute 3 ranks evenly over 4 nodes"),
        ({"resources": ResourceRequest(nodes=4, ranks=6)}, "cannot distribute 6 ranks evenly over 4 nodes"),
        ({"resources": ResourceRequest(nodes=4, gpus=6)}, "cannot distribute 6 GPUs evenly over 4 nodes"),
        ({"resources": ResourceRequest(nodes=4, gpus=5, gpus_per_node=1)}, "--gpus contradicts --gpus-per-node"),
        ({"resources": ResourceRequest(nodes=4, ranks=-4)}, "--ranks cannot be negative"),
        ({"restarts": 3}, "--resume needs --checkpoint"),
        ({"checkpoint": "/c"}, "--checkpoint needs --resume"),
        ({"restarts": 3, "checkpoint": "/c", "options": JobOptions(time="1")}, "leaves no time to compute"),
        ({"elastic": "4:2"}, "invalid range of nodes"),
        ({"elastic": "2:4", "resources": ResourceRequest(nodes=3)}, "--nodes contradicts --elastic"),
        ({"elastic": "2:4", "resources": ResourceRequest(ranks=6)}, "cannot distribute 6 ranks evenly over 4 nodes"),
    ],
)
def test_a_smoke_run_is_refused_for_what_its_job_would_be_refused_for(asked: dict[str, Any], says: str) -> None:
    messages = []
    for smoke in (False, True):
        with pytest.raises(UsageError) as refused:
            plan(smoke=smoke, **asked)
        messages.append(str(refused.value))
    assert says in messages[0]
    assert messages[0] == messages[1]


def test_a_smoke_run_of_an_elastic_job_has_as_many_ranks_on_each_node() -> None:
    shape = plan(smoke=True, elastic="2:4", resources=ResourceRequest(ranks=8)).shape
    assert (shape.nodes, shape.ranks_per_node) == (2, 2)


def test_a_smoke_run_notes_a_missing_test_partition() -> None:
    asked = smoke(LAB)
    assert asked.options.partition == ""
    assert "names no partition" in asked.choices[0].why
    qos = Site(name="x", title="x", scheduler="slurm", slurm=Slurm(debug_qos="dbg"))
    assert smoke(qos, options=JobOptions(qos="big")).options.qos == "dbg"
    with pytest.raises(UsageError, match="--smoke needs a site with Slurm"):
        plan(HERE, smoke=True)


# Jobs of the project file


PROJECT = """\
[image]
output = "digits.sif"
[launch]
site = "lab.toml"
account = "p1"
env = { A = "1" }
[job.train]
command = ["python", "t.py"]
nodes = 4
resume = true
before = "fetch"
env = { B = "x y" }
bind = ["/data"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "argosy.toml").write_text(PROJECT)
    return read_project(tmp_path / "argosy.toml")


def test_a_job_of_the_project_file_is_a_whole_launch(project: Project) -> None:
    request = make_request(with_job(project, "train", {}), HOST)
    assert request.image == str(project.folder / "digits.sif")
    assert (request.command, request.resources.nodes, request.restarts) == (("python", "t.py"), 4, 10)
    assert (request.site, request.options.account, request.before) == ("lab.toml", "p1", ("fetch",))
    assert [(v.name, v.value) for v in request.container.variables] == [("B", "x y")]


def test_each_value_has_its_line_and_an_option_wins(project: Project) -> None:
    request = make_request(with_job(project, "train", {"nodes": 2, "bind": ("/more",), "env": ("B=z",)}), HOST)
    assert request.resources.nodes == 2
    assert request.sources["account"] == ("p1", "argosy.toml:5")
    assert request.sources["command"] == ("python t.py", "argosy.toml:8")
    assert "nodes" not in request.sources
    assert [bind.source for bind in request.container.binds] == ["/data", "/more"]
    assert [v.value for v in request.container.variables] == ["z"]


def test_the_plan_shows_file_and_line(project: Project) -> None:
    words = with_job(project, "train", {})
    request = replace(make_request({**words, "resume": 0, "site": "lab"}, HOST), image=IMAGE.path)
    rows = {choice.key: choice for choice in plan_of(request).choices}
    assert rows["nodes"].source == "argosy.toml:9"
    assert rows["--account"].source == "argosy.toml:5"
    assert rows["B"].source == "argosy.toml:12"


def plan_of(request: LaunchRequest) -> LaunchPlan:
    container = plan_container(request.container, IMAGE, HOST)
    return plan_launch(LaunchContext(request, choose_target(request, LAB, HOST), container, HOST))


def test_a_launch_outside_the_projects_jobs_takes_its_defaults(project: Project) -> None:
    request = make_request(with_defaults(project, {"image": "x.sif", "command": ("id",), "site": "lab"}), HOST)
    assert (request.site, request.options.account, request.sources["account"][1]) == ("lab", "p1", "argosy.toml:5")
    assert [v.name for v in request.container.variables] == ["A"]


@pytest.mark.parametrize("name", ["train", ""])
def test_a_job_without_gpus_overrides_the_gpus_of_the_project_file(tmp_path: Path, name: str) -> None:
    file = tmp_path / "argosy.toml"
    file.write_text("[launch]\ngpus_per_node = 2\n[job.train]\ncommand = ['id']\ngpu_type = 'a100'\n")
    project, options = read_project(file), {"gpu": "none"}
    given = with_job(project, name, options) if name else with_defaults(project, {"command": ("id",), **options})
    request = make_request(given, HOST)
    assert (request.resources.gpus_per_node, request.gpu_type, request.container.gpu) == (0, "", "none")


def test_an_unknown_job_is_refused_with_the_nearest(project: Project) -> None:
    with pytest.raises(UsageError, match="did you mean train"):
        with_job(project, "trian", {})


# Interactive, and folders


def test_an_allocation_has_no_batch_options() -> None:
    words = plan_allocation(("--job-name=a b", "--nodes=2", "--output=/x", "--array=1-2", "--requeue"))
    assert words == ("salloc", "--job-name=a b", "--nodes=2")


def test_a_shell_notes_its_job_so_that_others_can_attach(tmp_path: Path) -> None:
    submission = Submission(site="lab", profile="/home/ada/100%/it's.toml")
    script = render_shell(tmp_path, submission).replace("exec srun", "exec echo srun")
    ran = subprocess.run(
        ["/bin/sh", "-c", script, "sh", "id"],
        capture_output=True,
        text=True,
        env={"SLURM_JOB_ID": "7", "PATH": "/bin"},
        check=True,
    )
    assert read_submission(tmp_path) == replace(submission, job="7")
    assert ran.stdout.strip().endswith(f"sh {tmp_path}/attach.sh id")
    assert ran.stderr.startswith("the nodes are released when the shell ends")


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("salloc: error: Job submit/allocate failed: Requested node configuration is not available", "request fewer"),
        ("salloc: Pending job allocation 7\nsalloc: Job aborted due to signal", None),
    ],
)
def test_a_shell_that_slurm_refuses_is_explained_as_a_job_is(tmp_path: Path, said: str, hint: str | None) -> None:
    profile = tmp_path / "lab.toml"
    profile.write_text('name = "lab"\ntitle = "lab"\nscheduler = "slurm"\n')
    session = make_session(tmp_path, HOST, FakeRunner([(("salloc",), Reply(1, "", said))]))
    request = LaunchRequest("bare:", ("id",), str(profile), ResourceRequest(nodes=9))
    if hint is None:
        assert launch_interactive(request, session).code == 1
        return
    with pytest.raises(SiteError, match="lab rejects this job") as refused:
        launch_interactive(request, session)
    assert refused.value.hint.startswith(hint)
    assert list(session.paths.runs.iterdir()) == []


def test_the_default_output_of_an_array_has_the_number_of_the_array_and_the_task() -> None:
    made = plan(name="n", options=JobOptions(array="0-3"))
    assert next(line for line in made.directives if line.startswith("--output=")).endswith("/n-%A_%a.out")
    assert plan(name="n").output.endswith("/n-%j.out")
    given = plan(name="n", options=JobOptions(array="0-3", output="/a/%j.out"))
    assert "--output=/a/%j.out" in given.directives


def test_the_folders_of_output_and_error_are_made() -> None:
    made = plan(name="n", options=JobOptions(output="/a/%x/%j.out", error="/b/%u/%j.err"))
    assert output_folders(made, "alice") == (Path("/a/n"), Path("/b/alice"))
    assert output_folders(plan(options=JobOptions(output="/dev/null")), "alice") == ()
    with pytest.raises(ArgosyError, match="depends on the job's number"):
        output_folders(plan(options=JobOptions(error="/b/%j/x")), "alice")


def test_a_percent_sign_in_a_folder_is_escaped_and_a_backslash_refused() -> None:
    there = replace(HOST, cwd="/w/50%j done")
    made = plan(host=there)
    assert made.output == "/w/50%%j done/t-%j.out"
    assert output_folders(made, "alice") == (Path("/w/50%j done"),)
    asked = make_request({"image": "x.sif", "command": ("true",), "output": "logs/%x-%j.out"}, there)
    assert asked.options.output == "/w/50%%j done/logs/%x-%j.out"
    with pytest.raises(UsageError, match="cannot contain a backslash"):
        output_folders(plan(host=replace(HOST, cwd="/w/back\\slash")), "alice")


def test_an_output_that_cannot_be_written_is_refused_before_the_queue(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(UsageError, match="is a folder, not a file"):
        make_output_folders(plan(options=JobOptions(output=f"{tmp_path}/logs")), "alice")
    (tmp_path / "a file").touch()
    with pytest.raises(ArgosyError):
        make_output_folders(plan(options=JobOptions(output=f"{tmp_path}/a file/%j.out")), "alice")
    make_output_folders(plan(options=JobOptions(output=f"{tmp_path}/more/%x/%j.out"), name="n"), "alice")
    assert (tmp_path / "more/n").is_dir()


def test_a_missing_folder_of_chdir_is_refused_and_not_created(tmp_path: Path) -> None:
    missing = tmp_path / "typo"
    with pytest.raises(UsageError, match=f"there is no folder {missing} to run in"):
        submit(plan(options=JobOptions(chdir=str(missing))), tmp_path, make_session(tmp_path), profile="")
    assert not missing.exists()


# Options of a job where nothing queues


@pytest.mark.parametrize("option", ["account", "partition", "qos", "constraint", "reservation", "nodelist", "exclude"])
def test_options_for_a_queue_are_shown_as_unused_without_one(option: str) -> None:
    made = plan(HERE, options=make_request({option: "x"}, HOST).options)
    (row,) = [row for row in made.choices if row.key == f"--{option}"]
    assert (row.value, row.why) == ("x", UNUSED)
    assert f"#   --{option} = x: {UNUSED}" in made.script


def test_the_options_that_are_not_used_are_named_in_one_line() -> None:
    options = JobOptions(time="1:00:00", mem="60G", mail_type="END", exclusive=True)
    made = plan(HERE, options=options, extra=("--spread-job",), mpi="pmix")
    names = "--time, --mem, --mail-type, --exclusive, --sbatch-arg, --mpi"
    assert list(unused_options(made.choices)) == [f"{names}: {UNUSED}"]
    assert list(unused_options(plan(HERE).choices)) == []


@pytest.mark.parametrize("asked", [{"smoke": True}, {"options": JobOptions(array="0-3")}, {"launcher": "mpi"}])
def test_a_cluster_without_its_site_is_named_by_the_options_that_need_it(asked: dict[str, Any]) -> None:
    for host, advice in ((make_host("apptainer"), False), (make_host("apptainer", "sbatch"), True)):
        with pytest.raises(UsageError) as refused:
            plan(HERE, host=host, **asked)
        assert ("name your cluster with --site" in refused.value.hint) is advice


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("array", {"options": JobOptions(array="0-3")}),
        ("after", {"options": JobOptions(dependency="afterok:3")}),
        ("output", {"options": JobOptions(output="/x.out")}),
        ("error", {"options": JobOptions(error="/x.err")}),
        ("chdir", {"options": JobOptions(chdir="/var")}),
        ("signal", {"options": JobOptions(signal="USR1")}),
        ("resume", {"restarts": 3}),
    ],
)
def test_options_that_change_the_run_are_refused_without_a_queue_unless_the_project_file_sets_them(
    name: str, asked: dict[str, Any]
) -> None:
    with pytest.raises(UsageError, match=f"--{name} needs a site with Slurm"):
        plan(HERE, **asked)
    made = plan(HERE, **asked, sources={name: ("", "argosy.toml:3")})
    assert [row.key for row in made.choices if row.why == UNUSED] == [f"--{name}"]


@pytest.mark.parametrize("site", [HERE, LAB], ids=lambda site: site.name)
def test_the_form_of_a_jobs_options_is_judged_at_every_site(site: Site) -> None:
    with pytest.raises(UsageError, match="invalid amount of memory '60Q'"):
        plan(site, options=JobOptions(mem="60Q"))


def test_copies_of_a_command_on_one_machine_are_numbered_and_may_have_a_file_each(tmp_path: Path) -> None:
    host = replace(HOST, programs={"env": "/usr/bin/env"}, cwd=str(tmp_path))
    command = ("sh", "-c", 'echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $1"', "x", "a  b")
    bare = Image("", ImageKind.HOST, "", "")
    made = plan(HERE, bare, host, command=command, resources=ResourceRequest(ranks=2), logs=str(tmp_path / "logs"))
    subprocess.run(("/bin/sh", "-c", made.script), check=True)
    said = [(tmp_path / f"logs/run/rank-{rank}.log").read_text() for rank in range(2)]
    assert said == ["0 0 2 2 a  b\n", "1 1 2 2 a  b\n"]
    assert "copy=" not in plan(HERE, bare, host, command=command, launcher="none").script


def test_lines_of_copies_that_no_launcher_starts_are_not_labelled() -> None:
    plan(HERE, resources=ResourceRequest(ranks=2), label=True)
    plan(HERE, launcher="none", resources=ResourceRequest(ranks=1), label=True)
    with pytest.raises(UsageError, match="--label needs a launcher"):
        plan(HERE, launcher="none", resources=ResourceRequest(ranks=2), label=True)


@pytest.mark.parametrize("name", ["gpu_type", "elastic", "stage_to", "mode"])
def test_options_for_slurm_in_the_project_file_are_shown_as_unused_elsewhere(name: str) -> None:
    value = {"elastic": "2:4", "stage_to": "/tmp"}.get(name, "x")  # noqa: S108 - a name in a record
    asked: dict[str, Any] = {name: value}
    with pytest.raises(ArgosyError):
        plan(HERE, **asked)
    made = plan(HERE, **asked, sources={name: (value, "argosy.toml:3")})
    option = f"--{name.replace('_', '-')}"
    assert [(row.key, row.source) for row in made.choices if row.why == UNUSED] == [(option, "argosy.toml:3")]


def test_mpi_without_the_mpi_launcher_is_refused_or_shown_as_unused_from_the_project_file() -> None:
    with pytest.raises(UsageError, match="--mpi needs the mpi launcher"):
        plan(launcher="srun", mpi="pmix")
    made = plan(launcher="srun", mpi="pmix", sources={"mpi": ("pmix", "argosy.toml:3")})
    assert list(unused_options(made.choices)) == ["--mpi: not used: the launcher is srun"]
    assert "--mpi=pmix" not in made.script
    assert "--mpi=pmi2" in plan(launcher="mpi", mpi="pmi2").script


def test_pmi2_is_refused_if_the_runtime_closes_its_file() -> None:
    asked: dict[str, Any] = {"launcher": "mpi", "container": ContainerRequest(runtime="enroot")}
    with pytest.raises(SiteError, match="enroot cannot start ranks by PMI2"):
        plan(image=SQUASHFS, host=NODES, mpi="pmi2", **asked)
    assert "--mpi=pmix" in plan(image=SQUASHFS, host=NODES, mpi="pmix", **asked).script


def test_the_home_is_bound_on_nodes_that_have_it() -> None:
    host = replace(HOST, cwd="/work")
    job = plan(host=host)
    for script in (job.script, job.attach):
        assert re.search(r" check_node \S+ apptainer '' /home/alice ", script)
        assert " -B /work --pwd /work " in script
    paths = SiteBind(paths=("/opt/cray",), if_there=True)
    assert " apptainer '' '/home/alice /opt/cray' " in plan(replace(LAB, binds=(paths,)), host=host).attach
    bwrap = plan(host=replace(make_host("bwrap", "sbatch"), cwd="/work")).script
    assert "--bind-try /home/alice /home/alice" in bwrap


@pytest.mark.parametrize(
    ("home", "binds"), [("/home/alice", (Bind("/scratch/a", "/home/alice/.cache"),)), ("/home/al ice", ())]
)
def test_a_home_that_cannot_be_bound_later_is_always_bound(home: str, binds: tuple[Bind, ...]) -> None:
    """Below it, another mount would be hidden; and a script passes the paths as a list."""
    host = replace(HOST, cwd="/work", person=replace(HOST.person, home=home))
    job = plan(host=host, container=ContainerRequest(binds=binds))
    assert " apptainer '' '' " in job.script
    assert f"{home},/work" in job.script


def test_a_private_home_is_not_bound() -> None:
    assert "/home/alice" not in plan(host=replace(HOST, cwd="/work"), container=ContainerRequest(contain=True)).script


def test_a_shell_in_a_job_loads_the_modules_of_the_site_first() -> None:
    attach = plan(replace(LAB, modules=Modules(purge=True, load=("singularity",)))).attach
    assert attach.index("module purge\nmodule load singularity ||\n") < attach.index("\nexec ")
    module = 'module() { echo "module $*"; }\n'
    words = ("/bin/sh", "-c", module + attach.replace("\nexec ", "\necho start "), "attach.sh", "id")
    said = subprocess.run(words, env={"HOME": "/h", "PATH": "/bin"}, capture_output=True, text=True, check=True).stdout
    assert said.startswith("module purge\nmodule load singularity\nstart ")


@pytest.mark.parametrize("runtime", ["pyxis", "edf"])
def test_srun_starts_a_second_command_if_only_srun_starts_the_container(tmp_path: Path, runtime: str) -> None:
    made = plan(image=SQUASHFS, host=NODES, container=ContainerRequest(runtime=runtime))
    tell = tmp_path / "srun"
    tell.write_text('#!/bin/sh\nprintf "<%s>\\n" "$@"; echo "step ${SLURM_CPU_BIND-unset}"\n')
    tell.chmod(0o755)
    given = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "SLURM_JOB_ID": "7", "SLURM_CPU_BIND": "x"}
    words = ("/bin/sh", "-c", made.attach, "attach.sh", "echo", "a  b")
    environment = {**given, "SLURMD_NODENAME": "node2"}
    ran = subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    said = ran.stdout.splitlines()
    assert {"<--overlap>", "<--nodelist=node2>"} <= set(said)
    assert any(line.startswith(("<--container-image=", "<--environment=")) for line in said)
    assert said[-3:] == ["<echo>", "<a  b>", "step unset"]
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tell]


@pytest.mark.parametrize(
    "word",
    [
        "--nnodes=9",
        "--nproc_per_node",
        "--master-port=1",
        "--rdzv-backend=c10d",
        "--nn=9",
        "--nproc=4",
        "--rdzv_b=c10d",
        "--stand",
    ],
)
def test_torchrun_arguments_that_contradict_the_plan_are_refused(word: str) -> None:
    with pytest.raises(UsageError, match="is set by"):
        plan(launcher_arguments=(word,))
    assert "--max-restarts=3" in plan(launcher_arguments=("--max-restarts=3",)).script


def test_logs_that_torchrun_redirects_need_a_folder_that_stays() -> None:
    with pytest.raises(UsageError, match="--redirects needs --log-dir"):
        plan(launcher_arguments=("--redirects=3",))
    with pytest.raises(UsageError, match="--redirects needs --log-dir"):
        plan(launcher_arguments=("--redir", "3", "--logs-specs=default"))
    assert "--log_d=logs" in plan(launcher_arguments=("--redirects=3", "--log_d=logs")).script
    assert "--log-dir=logs" in plan(launcher_arguments=("-r", "3", "--log-dir=logs")).script


@pytest.mark.parametrize("program", [(TORCHRUN, "1", "2"), (ELASTIC, "1:2", "2", "")], ids=["fixed", "elastic"])
def test_torchrun_leaves_no_files_in_tmp_and_its_exit_code_is_passed_on(
    program: tuple[str, ...], tmp_path: Path
) -> None:
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.write_text(
        '#!/bin/sh\nfor word; do case $word in --log-dir=*) mkdir "${word#*=}/none_1";; esac; done; exit 3\n'
    )
    python.chmod(0o755)
    (tmp_path / "tmp").mkdir()
    job = dict.fromkeys(("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_NODEID"), "0")
    environment = {"PATH": f"{python.parent}:/usr/bin:/bin", "TMPDIR": str(tmp_path / "tmp"), **job}
    text, *words = program
    done = subprocess.run(["/bin/sh", "-c", text, getattr(text, "name", ""), *words], env=environment, check=False)
    assert (done.returncode, list((tmp_path / "tmp").iterdir())) == (3, [])


def test_a_program_with_an_odd_or_endless_name_names_a_job_that_slurm_takes() -> None:
    assert plan(command=("./a\nb",), launcher="none").name == "a_b"
    assert plan(command=("x" * 90000,), launcher="none").name == "x" * 64


def test_a_submitted_job_is_explained_by_its_number(tmp_path: Path) -> None:
    made = plan(GPUS, options=JobOptions(account="a", time="5"), resources=ResourceRequest(nodes=2, gpus_per_node=4))
    session = make_session(tmp_path)
    folder = tmp_path / "runs/1"
    write_record(made, folder, session)
    write_submission(folder, Submission("7", site="gpus"))
    assert explain_plan(kept_plan(session, "7")) == explain_plan(made)
    with pytest.raises(UsageError, match="there is no record of job 8"):
        kept_plan(session, "8")
    run = tmp_path / "runs/20260102-030405-123456-abcd"
    write_record(made, run, session)
    (run / "end.json").write_text('{"code": 0}')
    assert explain_plan(kept_plan(session, run.name)) == explain_plan(made)
    assert read_job(session, run.name).end == "ended well"
    (folder / "job.json").write_text('{"name": 3}')
    with pytest.raises(UsageError, match="cannot read the record of job 7"):
        kept_plan(session, "7")


def test_a_record_of_another_version_is_refused_in_plain_words(tmp_path: Path) -> None:
    session, folder = make_session(tmp_path), tmp_path / "runs/1"
    write_record(plan(), folder, session)
    write_submission(folder, Submission("7"))
    record = json.loads((folder / "job.json").read_text())
    (folder / "job.json").write_text(json.dumps({**record, "private": True, "versions": {"argosy": "0.0.9"}}))
    with pytest.raises(UsageError, match="another version of Argosy wrote it") as caught:
        kept_plan(session, "7")
    assert f"Argosy 0.0.9 wrote it, and this is {VERSION}; the value 'private'" in caught.value.evidence
    assert str(folder / "job.sh") in caught.value.hint
    del record["name"]
    (folder / "job.json").write_text(json.dumps(record))
    with pytest.raises(UsageError, match="another version of Argosy wrote it") as caught:
        kept_plan(session, "7")
    assert "the value 'name'" in caught.value.evidence


@pytest.mark.parametrize(("arch", "most"), [("x86_64", 8), ("aarch64", 8), ("ppc64le", 32), ("", 32)])
def test_more_cores_than_a_node_has_are_refused_with_hardware_threads(arch: str, most: int) -> None:
    site = msgspec.structs.replace(LAB, node=msgspec.structs.replace(LAB.node, arch=arch))
    with pytest.raises(UsageError, match=rf"a node of lab has 8 cores, on which 2 ranks with {most + 1} cores each"):
        plan(site, resources=ResourceRequest(ranks=2, cpus_per_rank=most + 1))
    plan(site, resources=ResourceRequest(ranks=2, cpus_per_rank=most))
    (row,) = [
        row for row in plan(resources=ResourceRequest(ranks=2, cpus_per_rank=8)).choices if row.key == "cores-per-rank"
    ]
    assert "more than its 8 cores" in row.why
    (row,) = [
        row for row in plan(resources=ResourceRequest(ranks=2, cpus_per_rank=4)).choices if row.key == "cores-per-rank"
    ]
    assert row.why == "requested"


# Inside an allocation


GPUS = Site(
    name="gpus",
    title="GPUs",
    scheduler="slurm",
    node=Node(cores=64, gpus=4, gpu_vendor="nvidia"),
    slurm=Slurm(required=("account", "time"), mem="60G"),
    partitions=(Partition(name="big", min_nodes=3, choose=True), Partition(name="small", choose=True)),
)
INSIDE = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_GPUS_ON_NODE": "4",
    "SLURM_JOB_PARTITION": "small",
    "SBATCH_TIMELIMIT": "9",
}


def inside(site: Site = GPUS, /, *, environment: Mapping[str, str] = INSIDE, **request: Any) -> LaunchPlan:
    return plan(
        site, host=replace(HOST, environment={**HOST.environment, **environment}), in_allocation=True, **request
    )


def test_steps_of_an_allocation_have_its_nodes_and_gpus_and_ask_for_no_account() -> None:
    made = inside()
    assert (made.shape.nodes, made.shape.gpus_per_node, made.shape.ranks) == (2, 4, 8)
    assert {row.source for row in made.choices if row.key in {"nodes", "GPUs per node"}} == {"job 7"}
    assert not [word for word in made.directives if word.startswith(("--mem", "--time", "--account"))]
    assert made.shape == inside(resources=ResourceRequest(nodes=2, gpus=8)).shape
    assert inside(resources=ResourceRequest(ranks=2)).shape.ranks == 2
    assert inside(environment=INSIDE | {"SLURM_GPUS_ON_NODE": "", "SLURM_GPUS_PER_NODE": "a100:2"}).shape.ranks == 4


def test_a_number_of_an_allocation_that_is_too_long_is_no_number() -> None:
    assert inside(environment=INSIDE | {"SLURM_JOB_NUM_NODES": "9" * 5000}).shape.nodes == 1


@pytest.mark.parametrize(
    "resources", [ResourceRequest(nodes=1), ResourceRequest(gpus_per_node=2), ResourceRequest(gpus=4)]
)
def test_steps_of_an_allocation_cannot_have_other_numbers_than_it_has(resources: ResourceRequest) -> None:
    with pytest.raises(UsageError, match="contradicts the allocation"):
        inside(resources=resources)
    (name,) = [name for name in ("nodes", "gpus", "gpus_per_node") if getattr(resources, name)]
    made = inside(resources=resources, sources={name: ("1", "argosy.toml:3")})
    assert made.shape == inside().shape
    (row,) = [row for row in made.choices if row.key == f"--{name.replace('_', '-')}"]
    assert (row.value, row.source) == ("1", "argosy.toml:3")


def test_steps_of_several_components_need_their_node_list() -> None:
    with pytest.raises(UsageError, match="several components"):
        inside(environment=INSIDE | {"SLURM_HET_SIZE": "2"})
    assert inside(environment=INSIDE | {"SLURM_HET_SIZE": "2", "SLURM_JOB_NODELIST": "n[1-2]"}).shape.nodes == 2


def test_ranks_share_the_cores_of_an_allocation_that_has_fewer_than_a_node() -> None:
    few = {**INSIDE, "SLURM_JOB_CPUS_PER_NODE": "32,12(x2)"}
    assert [inside(environment=each).shape.cpus_per_rank for each in (INSIDE, few)] == [16, 3]
    assert inside(environment=few, resources=ResourceRequest(cpus_per_rank=2)).shape.cpus_per_rank == 2
    for cores, expected in (("2", 2), ("9", 3)):
        given = {"cpus_per_rank": (cores, "argosy.toml:3")}
        made = inside(environment=few, resources=ResourceRequest(cpus_per_rank=int(cores)), sources=given)
        assert made.shape.cpus_per_rank == expected
    with pytest.raises(UsageError, match="fewer cores than --cpus-per-rank") as caught:
        inside(environment=few, resources=ResourceRequest(cpus_per_rank=4))
    assert caught.value.evidence == "4 ranks on a node with 4 each; the node has 12"
    with pytest.raises(UsageError, match="fewer cores than ranks") as caught:
        inside(environment={**INSIDE, "SLURM_JOB_CPUS_PER_NODE": "1(x2)"})
    assert caught.value.hint.startswith("allocate more cores, for example salloc --cpus-per-task=4")


def test_ranks_without_gpus_share_the_cores_of_an_allocation() -> None:
    made = inside(replace(GPUS, node=Node(cores=64)), environment={**INSIDE, "SLURM_GPUS_ON_NODE": ""})
    assert (made.shape.gpus_per_node, made.shape.cpus_per_rank) == (0, 0)
    assert next(row for row in made.choices if row.key == ChoiceKey.CORES_PER_RANK).why.endswith("of the allocation")
    assert "    share_cores " in made.script


def test_options_that_come_too_late_for_an_allocation_are_named_or_refused() -> None:
    made = inside(
        options=JobOptions(time="1:00", partition="small", exclude="n1"), extra=("--spread-job",), gpu_type="a100"
    )
    why = "not used: the allocation already exists"
    assert list(unused_options(made.choices)) == [f"--time, --exclude, --sbatch-arg, --gpu-type: {why}"]
    for name, asked in (("array", {"options": JobOptions(array="0-3")}), ("resume", {"restarts": 3})):
        with pytest.raises(UsageError, match=f"--{name} needs a new job"):
            inside(**asked)


def test_steps_need_an_allocation_and_a_site_with_slurm() -> None:
    for site, environment in ((GPUS, {}), (HERE, INSIDE)):
        with pytest.raises(UsageError, match="--in-allocation needs a Slurm allocation"):
            inside(site, environment=environment)


# Values of the caller's environment


def test_a_script_with_a_value_of_the_callers_environment_is_its_owners_alone(tmp_path: Path) -> None:
    token = Variable("TOKEN", "hf_x", inherited=True)
    private, usual = plan(container=ContainerRequest(variables=(token,))), plan()
    write_script(tmp_path / "private.sh", private.script, private=bool(private.private))
    write_script(tmp_path / "usual.sh", usual.script, private=bool(usual.private))
    assert (tmp_path / "private.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "usual.sh").stat().st_mode & 0o777 == 0o755
    assert "# PRIVATE: this script holds the values of TOKEN from the environment of its author." in private.script
    assert "PRIVATE" not in usual.script


def test_a_script_replaces_an_earlier_one_but_no_file_of_the_user(tmp_path: Path) -> None:
    script, program = tmp_path / "job.sh", tmp_path / "train.py"
    program.write_text("print(1)\n")
    for _ in range(2):
        write_script(script, plan().script, private=False)
    with pytest.raises(UsageError, match=r"train\.py exists and was not written by Argosy"):
        write_script(program, plan().script, private=False)
    assert program.read_text() == "print(1)\n"


def test_the_record_of_a_launch_is_its_owners_alone(tmp_path: Path) -> None:
    script = write_record(plan(), tmp_path / "state/runs/one", make_session(tmp_path))
    assert [folder.stat().st_mode & 0o777 for folder in (script.parent, script.parent.parent)] == [0o700, 0o700]


def test_the_record_has_the_program_and_the_command_line_that_was_typed(tmp_path: Path) -> None:
    session = replace(make_session(tmp_path), typed=("argosy", "launch", "a b.sif", "--", "python", "x.py"))
    folder = write_record(plan(command=("python", "x.py")), tmp_path / "typed", session).parent
    assert read_command_line(str(folder)) == f"cd {session.host.cwd} && argosy launch 'a b.sif' -- python x.py"
    assert json.loads((folder / "job.json").read_text())["command"] == ["python", "x.py"]
    from_python = write_record(plan(), tmp_path / "python", make_session(tmp_path)).parent
    assert read_command_line(str(from_python)) == ""


# One container per node or per rank


SRUN: Mapping[str, Any] = {"launcher": "srun", "resources": ResourceRequest(nodes=2, ranks=4)}
EACH_ITS_GPU = msgspec.structs.replace(LAB, options=(SiteOption(to="srun", word="--gpus-per-task=1"),))


def container_per(site: Site = LAB, image: Image = IMAGE, host: Host = HOST, **request: Any) -> tuple[str, str]:
    made = plan(site, image, host, **{**SRUN, **request})
    rows = [choice for choice in made.choices if choice.key == ChoiceKey.CONTAINER_PER]
    assert ("argosy_start_ranks" in made.script) == (rows[:1] != [] and rows[0].value == "node")
    return (rows[0].value, rows[0].why) if rows else ("", "")


@pytest.mark.parametrize(("name", "variable"), USER_DEFAULTS.items())
def test_an_option_from_a_variable_of_the_user_is_explained_by_it(name: str, variable: str) -> None:
    values = {"mem": "60G", "mem_per_gpu": "60G", "time": "1:00:00", "signal": "USR2"}
    made = plan(host=replace(HOST, environment={**HOST.environment, variable: values.get(name, "x")}))
    explained = {row.what: (row.why, row.source) for row in explain_plan(made)}
    assert explained[option_name(name)] == (f"your default, {variable}", "environment")


def test_srun_starts_a_container_per_node_or_per_rank() -> None:
    for value in ("node", "rank"):
        assert container_per(container_per=value) == (value, "requested")
    value, why = container_per()
    assert value == "node"
    assert "one mount and one page cache" in why
    explained = {row.what: row.group for row in explain_plan(plan(**SRUN))}
    assert explained["one container per"] == "container"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ({"site": EACH_ITS_GPU}, "its own resources: --gpus-per-task=1"),
        ({"extra": ("--gpu-bind=closest",)}, "its own resources: --gpu-bind=closest"),
        ({"image": replace(IMAGE, packages=frozenset()), "command": ("./a.out",)}, "the image may not contain"),
        ({"independent_ranks": True}, "independent"),
    ],
)
def test_ranks_have_containers_of_their_own_if_they_cannot_share_one(case: Mapping[str, Any], why: str) -> None:
    value, reason = container_per(**case)
    assert (value, why in reason) == ("rank", True)
    with pytest.raises(UsageError, match="--container-per") as refused:
        container_per(**case, container_per="node")
    assert why in str(refused.value)
    configured = {"container_per": ("node", "argosy.toml:3")}
    unused = plan(**{**SRUN, **case}, container_per="node", sources=configured)
    assert any(why in line for line in unused_options(unused.choices))


def test_an_image_with_mpi_gets_a_container_per_rank_unless_requested_otherwise() -> None:
    image = replace(IMAGE, packages=IMAGE.packages | {"mpi4py"})
    value, why = container_per(image=image)
    assert value == "rank"
    assert "mpi4py" in why
    assert container_per(image=image, container_per="node") == ("node", "requested")


@pytest.mark.parametrize(("launcher", "value"), [("torchrun", "rank"), ("mpi", "node"), ("none", "node")])
def test_other_launchers_have_one_form_only(launcher: str, value: str) -> None:
    with pytest.raises(UsageError, match="--container-per") as refused:
        plan(**{**SRUN, "launcher": launcher}, container_per=value)
    assert f"the launcher {launcher} always starts one container per" in str(refused.value)


def test_the_programs_own_python_starts_the_ranks() -> None:
    for command, python in (
        (("/opt/x/bin/python3.12", "t.py"), "/opt/x/bin/python3.12"),
        (("accelerate-x",), "python3"),
        (("python", "t.py"), "python"),
    ):
        script = plan(**SRUN, container_per="node", command=command).script
        assert f'{python} -I -S -c "$argosy_start_ranks"' in " ".join(script.split())


def test_several_nodes_without_slurm_are_refused_with_the_site_that_was_used() -> None:
    with pytest.raises(UsageError, match="--nodes 2 needs a site with Slurm") as refused:
        plan(HERE, resources=ResourceRequest(nodes=2))
    assert f"the site is '{HERE.name}'" in refused.value.evidence
    assert "--site" in refused.value.hint
    with pytest.raises(UsageError) as refused:
        plan(HERE, resources=ResourceRequest(nodes=2), host=make_host("apptainer", "sbatch"))
    assert "argosy sites new NAME --on-node" in refused.value.hint
    with pytest.raises(UsageError) as refused:
        plan(HERE, resources=ResourceRequest(nodes=2), sources={"site": ("local", "argosy.toml:9")})
    assert f"the site is '{HERE.name}' (argosy.toml:9), which" in refused.value.evidence


def test_a_word_that_torchrun_would_start_as_the_program_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot pass 'max' to torchrun"):
        plan(launcher_arguments=("--max-restarts=3", "max"), launcher="torchrun")
    plan(launcher_arguments=("--max-restarts", "3"), launcher="torchrun")
