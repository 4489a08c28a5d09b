"""The script of each site for one GPU, one node and several: a changed profile shows as a changed script in review.

``ARGOSY_RECORD=1`` writes the files again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from argosy.core.model import ContainerRequest
from argosy.core.session import Session
from argosy.launch.model import LaunchRequest, Purpose, ResourceRequest
from argosy.launch.resolve import prepare_launch
from argosy.slurm.sbatch import JobOptions
from tests.unit.machines import make_host, make_session

GOLDEN = Path(__file__).parents[2] / "golden"
MOST_HEAD, MOST_LINES, WIDTH = 14, 60, 100


USUAL = JobOptions(account="project_1", time="00:15:00")
MN5 = JobOptions(account="project_1", qos="acc_debug", time="00:15:00")


LAIF = "/appl/local/laifs/containers"
WITH_CONDA = "/appl/local/containers/sif-images/lumi-pytorch-rocm-6.2.4-python-3.12-pytorch-v2.6.0.sif"
SQUASHFS = "/project/images/train.sqsh"
NGC = "docker://nvcr.io/nvidia/pytorch:24.03-py3"
HUB = "docker://registry.example.org/project/train:1"


@dataclass(frozen=True, slots=True)
class Case:
    """A launch whose script is kept."""

    site: str
    name: str
    resources: ResourceRequest
    launcher: str = ""
    container_per: str = ""
    mode: str = ""
    options: JobOptions = USUAL
    image: str = "/project/images/train.sif"
    runtime: str = ""

    @property
    def path(self) -> Path:
        return GOLDEN / self.site / f"{self.name}.sh"


CASES = (
    Case("lumi-g", "one-gpu", ResourceRequest(gpus=1)),
    Case("lumi-g", "one-gpu-srun", ResourceRequest(gpus=1), "srun"),
    Case("lumi-g", "one-node", ResourceRequest(gpus=8)),
    Case("lumi-g", "one-node-srun", ResourceRequest(gpus=8), "srun"),
    Case("lumi-g", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=8)),
    Case("lumi-g", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=8), "srun"),
    Case("lumi-g", "many-nodes-mpi", ResourceRequest(nodes=2, gpus_per_node=8), "mpi"),
    Case("lumi-g", "one-node-srun-per-rank", ResourceRequest(gpus=8), "srun", "rank"),
    Case("lumi-g", "many-nodes-srun-per-rank", ResourceRequest(nodes=2, gpus_per_node=8), "srun", "rank"),
    Case("lumi-g", "many-nodes-laif", ResourceRequest(nodes=2, gpus_per_node=8), mode="laif"),
    Case(
        "lumi-g", "one-node-runscript", ResourceRequest(gpus=8), mode="laif", image=f"{LAIF}/lumi-multitorch-latest.sif"
    ),
    Case("lumi-g", "many-nodes-with-conda", ResourceRequest(nodes=2, gpus_per_node=8), image=WITH_CONDA),
    Case("lumi-c", "one-node", ResourceRequest(ranks=128, cpus_per_rank=1), "mpi"),
    Case("lumi-c", "many-nodes-mpi", ResourceRequest(nodes=2, ranks=256, cpus_per_rank=1), "mpi"),
    Case("lumi-c", "many-nodes-hybrid", ResourceRequest(nodes=2, ranks=16, cpus_per_rank=16), "mpi"),
    Case("mn5-acc", "one-gpu", ResourceRequest(gpus=1), options=MN5),
    Case("mn5-acc", "one-node", ResourceRequest(gpus=4), options=MN5),
    Case("mn5-acc", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4), options=MN5),
    Case("mn5-acc", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun", options=MN5),
    Case("mn5-acc", "many-nodes-srun-per-rank", ResourceRequest(nodes=2, gpus_per_node=4), "srun", "rank", options=MN5),
    Case(
        "mn5-gpp",
        "one-node",
        ResourceRequest(ranks=2, cpus_per_rank=4),
        options=JobOptions(account="project_1", qos="gp_debug"),
    ),
    Case("dawn", "one-gpu", ResourceRequest(gpus=1)),
    Case("dawn", "one-node", ResourceRequest(gpus=4)),
    Case("dawn", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4)),
    Case("dawn", "many-nodes-composite", ResourceRequest(nodes=2, gpus_per_node=4), mode="COMPOSITE"),
    Case("aac6", "one-gpu", ResourceRequest(gpus=1)),
    Case("aac6", "one-node", ResourceRequest(gpus=4)),
    Case("aac6", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4)),
    Case("aac6", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun"),
    Case("nvidia-apptainer", "one-gpu", ResourceRequest(gpus=1)),
    Case("nvidia-apptainer", "one-node", ResourceRequest(gpus=2)),
    Case("nvidia-apptainer", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=2, cpus_per_rank=4)),
    Case("nvidia-apptainer", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=2), "srun"),
    Case("nvidia-apptainer", "many-nodes-mpi", ResourceRequest(nodes=2, gpus_per_node=2), "mpi"),
    Case("frontier", "one-gpu", ResourceRequest(gpus=1)),
    Case("frontier", "one-node", ResourceRequest(gpus=8)),
    Case("frontier", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=8)),
    Case("isambard-ai", "one-gpu", ResourceRequest(gpus=1)),
    Case("isambard-ai", "one-node", ResourceRequest(gpus=4)),
    Case("isambard-ai", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4)),
    Case("isambard-ai", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun"),
    Case(
        "isambard-ai",
        "many-nodes-podman-hpc",
        ResourceRequest(nodes=2, gpus_per_node=4),
        image=HUB,
        runtime="podman-hpc",
    ),
    Case("nvidia-pyxis", "one-gpu", ResourceRequest(gpus=1), image=SQUASHFS),
    Case("nvidia-pyxis", "one-node", ResourceRequest(gpus=2), image=SQUASHFS),
    Case("nvidia-pyxis", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=2, cpus_per_rank=4), image=NGC),
    Case("nvidia-pyxis", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=2), "srun", image=SQUASHFS),
    Case("nvidia-pyxis", "many-nodes-mpi", ResourceRequest(nodes=2, gpus_per_node=2), "mpi", image=SQUASHFS),
    Case("nvidia-pyxis", "one-node-none", ResourceRequest(ranks=2, gpus_per_node=2), "none", image=SQUASHFS),
    Case(
        "nvidia-pyxis", "many-nodes-enroot", ResourceRequest(nodes=2, gpus_per_node=2), image=SQUASHFS, runtime="enroot"
    ),
    Case("nvidia-pyxis", "many-nodes-bare", ResourceRequest(nodes=2, gpus_per_node=2), image="bare:/project/venv"),
    Case("alps-daint", "one-gpu", ResourceRequest(gpus=1), image=SQUASHFS),
    Case("alps-daint", "one-node", ResourceRequest(gpus=4), image=SQUASHFS),
    Case("alps-daint", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4), image=SQUASHFS),
    Case("alps-daint", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun", image=NGC),
    Case("alps-daint", "many-nodes-mpi", ResourceRequest(nodes=2, gpus_per_node=4), "mpi", image=SQUASHFS),
    Case("alps-clariden", "one-gpu", ResourceRequest(gpus=1), image=SQUASHFS),
    Case("alps-clariden", "one-node", ResourceRequest(gpus=4), image=SQUASHFS),
    Case("alps-clariden", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun", image=SQUASHFS),
    Case("alps-clariden", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4), image="/project/images/train.toml"),
    Case("perlmutter", "one-gpu", ResourceRequest(gpus=1), image=HUB),
    Case("perlmutter", "one-node", ResourceRequest(gpus=4), image=HUB),
    Case("perlmutter", "many-nodes", ResourceRequest(nodes=2, gpus_per_node=4), image=HUB),
    Case("perlmutter", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun", image=HUB),
    Case("perlmutter", "many-nodes-mpi", ResourceRequest(nodes=2, gpus_per_node=4), "mpi", image=HUB),
    *(
        Case(site, name, ResourceRequest(nodes=nodes, gpus_per_node=gpus), runtime="apptainer")
        for site, full in (
            ("leonardo", 4),
            ("karolina", 8),
            ("juwels-booster", 4),
            ("jupiter", 4),
            ("snellius", 4),
            ("jean-zay", 4),
        )
        for name, nodes, gpus in (("one-gpu", 1, 1), ("one-node", 1, full), ("many-nodes", 2, full))
    ),
    *(
        Case(site, "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=full), "srun", runtime="apptainer")
        for site, full in (("leonardo", 4), ("karolina", 8), ("juwels-booster", 4), ("jupiter", 4), ("jean-zay", 4))
    ),
    Case("snellius", "many-nodes-srun", ResourceRequest(nodes=2, gpus_per_node=4), "srun", runtime="apptainer"),
)


def laptop() -> Session:
    """Give a session on a machine with nothing: no Slurm, no runtime, no GPU, no image."""
    return make_session(host=make_host(cwd="/home/alice/work", cpus=4, user_namespaces=False, fuse=False))


def script_of(case: Case) -> str:
    request = LaunchRequest(
        case.image,
        ("python", "train.py", "50", "10"),
        site=case.site,
        resources=case.resources,
        launcher=case.launcher,
        container_per=case.container_per,
        mode=case.mode,
        options=case.options,
        container=ContainerRequest(runtime=case.runtime),
    )
    return prepare_launch(request, laptop(), purpose=Purpose.SHOW).script


RECORD = "if the change is meant, run 'ARGOSY_RECORD=1 pytest tests/unit/launch', and read the difference"


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.site}-{case.name}")
def test_the_script_of_a_site_is_the_one_that_was_reviewed(case: Case) -> None:
    script = script_of(case)
    if os.environ.get("ARGOSY_RECORD"):
        case.path.parent.mkdir(parents=True, exist_ok=True)
        case.path.write_text(script)
    assert case.path.is_file(), f"{case.path} is missing; {RECORD}"
    assert script == case.path.read_text(), RECORD


def test_no_golden_script_is_left_that_no_case_makes() -> None:
    left = set(GOLDEN.rglob("*.sh")) - {case.path for case in CASES}
    assert not left, "no case makes these scripts: remove them"


def test_an_image_that_only_the_site_has_may_be_named_without_its_folder() -> None:
    script = script_of(Case("lumi-g", "one-gpu", ResourceRequest(gpus=1), image="train.sif"))
    assert "argosy_image=train.sif\n" in script
    assert "is not on this machine" in script


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_every_golden_script_parses(shell: str) -> None:
    for case in CASES:
        ran = subprocess.run([shell, "-n", str(case.path)], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stderr) == (0, ""), case.path


def test_a_script_changes_no_variable_of_the_callers_but_those_that_a_plan_forces() -> None:
    texts = [path.read_text().partition("\nargosy_start_ranks=")[0] for path in GOLDEN.rglob("*.sh")]  # not its Python
    found = {name for text in texts for name in re.findall(r"(?m)(?:^|[ ;{(])([a-z]\w*)=", text)}
    assert {name for name in found if not name.startswith("argosy_")} == {"disable"}  # shellcheck's


def test_a_golden_script_names_nothing_of_the_machine_that_planned_it() -> None:
    for case in CASES:
        assert "/home/alice" not in case.path.read_text()


def _has_words(line: str) -> bool:
    """Tell whether a line could be shorter: it has more than one word, and no command within one."""
    return " " in line.strip(" \\").removeprefix("export ") and "$(" not in line


def test_a_script_of_a_site_is_one_that_a_person_reads() -> None:
    for case in CASES:
        head, _, rest = script_of(case).partition("\nmain() {\n")
        main, _, helpers = rest.partition("\n}\n")
        assert len([line for line in head.splitlines() if not line.startswith("#SBATCH")]) <= MOST_HEAD, case.path
        assert main.count("\n") < MOST_LINES, case.path
        wide = [line for line in f"{head}\n{main}".splitlines() if len(line) > WIDTH and _has_words(line)]
        assert wide == [], case.path
        assert "eval" not in helpers.replace("--no-eval", ""), case.path


@pytest.mark.parametrize("site", sorted({case.path.parent.name for case in CASES}))
def test_shellcheck_finds_nothing_in_any_golden_script(site: str) -> None:
    shellcheck = shutil.which("shellcheck")
    if not shellcheck:
        pytest.skip("shellcheck is not installed")
    paths = [str(case.path) for case in CASES if case.path.parent.name == site]
    ran = subprocess.run([shellcheck, *paths], capture_output=True, text=True, check=False)
    assert ran.stdout == ""
