"""The recorded scripts of sites, submitted unchanged to clusters of their shape (`lab/cluster up --like SITE`)."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from argosy.sites.binding import parse_ranges
from argosy.sites.read import read_site
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.lab.conftest import Cluster, Lab

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden"


class NewCluster(Protocol):
    """Options of `lab/cluster up` -> a cluster."""

    def __call__(self, *options: str) -> AbstractContextManager[Cluster]: ...


def run_golden(
    cluster: Cluster, site: str, name: str, program: Path = HERE / "train.py", before: str = ""
) -> list[dict[str, Any]]:
    """Submit a script as it is, and read what its ranks said; `before` are assignments for sbatch."""
    shutil.copyfile(GOLDEN / site / f"{name}.sh", cluster.shared / f"{name}.sh")
    shutil.copyfile(program, cluster.shared / "train.py")
    job = cluster.sh(f"{before}sbatch --parsable {name}.sh").stdout.strip()
    state = cluster.wait_for(job, timeout=PATIENCE_S)
    output = (cluster.shared / f"train-{job}.out").read_text()
    assert state == "COMPLETED", output[-2000:]
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return sorted(rows, key=lambda row: int(row["rank"]))


def project(image: Path, folder: Path) -> str:
    """Put the image where the scripts name it: the word of --bind."""
    (folder / "images").mkdir(parents=True)
    try:
        (folder / "images/train.sif").hardlink_to(image)
    except OSError:
        shutil.copyfile(image, folder / "images/train.sif")
    return f"{folder}:/project"


ALL = {
    "lumi-g": {"one-gpu": 1, "one-gpu-srun": 1, "one-node": 8, "one-node-srun": 8}
    | {"many-nodes": 8, "many-nodes-srun": 8, "many-nodes-laif": 8}
    | {"one-node-srun-per-rank": 8, "many-nodes-srun-per-rank": 8},
    "mn5-acc": {"one-gpu": 1, "one-node": 4, "many-nodes": 4, "many-nodes-srun": 4},
    "aac6": {"one-gpu": 1, "one-node": 4, "many-nodes": 4, "many-nodes-srun": 4},
    "dawn": {"one-gpu": 2, "one-node": 8, "many-nodes": 8, "many-nodes-composite": 4},
    "nvidia-apptainer": {"one-gpu": 1, "one-node": 2, "many-nodes": 2} | {"many-nodes-srun": 2, "many-nodes-mpi": 2},
}
"""Site -> its scripts and the ranks that each starts on a node; those of pyxis and enroot are not run here."""


@pytest.mark.parametrize(
    ("site", "scripts"),
    [
        ("lumi-g", ("one-node-srun", "one-node-srun-per-rank")),
        *(pytest.param(site, tuple(ALL[site]), marks=pytest.mark.soak, id=f"{site}-all") for site in ALL),
    ],
)
def test_a_sites_scripts_run_unchanged_on_a_cluster_of_its_shape(
    site: str, scripts: tuple[str, ...], new_cluster: NewCluster, torch_image: Path, tmp_path: Path
) -> None:
    bind = project(torch_image, tmp_path / "project")
    most = max(map(nodes_of, scripts))
    with new_cluster("--like", site, "--bind", bind, str(most)) as cluster:
        before = {node: set(files_of_tmp(cluster, node)) for node in cluster.nodes}
        for script in scripts:
            # torchrun needs torch; ranks of srun meet without it, because each import takes seconds of two cores.
            program = HERE / ("meet.py" if "srun" in script else "train.py")
            judge_ranks(run_golden(cluster, site, script, program), site, nodes_of(script), ALL[site][script])
        for node in cluster.nodes:
            left = set(files_of_tmp(cluster, node)) - before[node]
            # torch's own cache is one for all jobs; that of MIOpen is asked for by the profile
            assert {name for name in left if "-miopen-" not in name} <= {"torchinductor_alice"}
        if read_site(site).node.memory_mb:
            too_much = cluster.sh("sbatch --account=a --time=1 --mem=9T --wrap hostname", check=False).stderr
            too_long = cluster.sh("sbatch --account=a --time=99-0 --wrap hostname", check=False).stderr
            assert ("Memory specification" in too_much, "time limit is invalid" in too_long) == (True, True)


def files_of_tmp(cluster: Cluster, node: str) -> list[str]:
    return cluster.sh("ls -A /tmp", node=node).stdout.split()


def nodes_of(script: str) -> int:
    """Give the nodes that a script asks for."""
    return 2 if script.startswith("many") else 1


def judge_ranks(rows: list[dict[str, Any]], site: str, nodes: int, ranks: int) -> None:
    """Hold what ranks said of themselves against the site's profile."""
    world = nodes * ranks
    assert [row["rank"] for row in rows] == list(range(world))
    assert {(row["world"], row["sum"]) for row in rows} == {(world, world * (world - 1) / 2)}
    assert {row["gpus"] for row in rows} == {",".join(map(str, range(ranks)))}
    assert len({row["host"] for row in rows}) == nodes
    expected = read_site(site).node.gpu_cpus
    if len(expected) == ranks:
        assert {row["local"]: set(row["cores"]) for row in rows} == {
            local: parse_ranges(text) for local, text in enumerate(expected)
        }


@pytest.mark.soak
def test_the_node_for_builds_runs_a_job_script_too(new_cluster: NewCluster, torch_image: Path, tmp_path: Path) -> None:
    bind = project(torch_image, tmp_path / "project")
    with new_cluster("--like", "mn5-gpp", "--bind", bind, "1") as cluster:
        rows = run_golden(cluster, "mn5-gpp", "one-node")
        refused = cluster.sh("sbatch --account=a --wrap hostname", check=False)
    assert [(row["rank"], row["world"], row["sum"]) for row in rows] == [(rank, 2, 1) for rank in range(2)]
    assert (refused.code, "demands --qos" in refused.stderr) == (1, True)


EACH_WITH_EACH = " ".join(
    f"SINGULARITYENV_{setting}"
    for setting in (
        "MPIR_CVAR_POLLS_BEFORE_YIELD=1",
        "UCX_TLS=tcp,self,posix",
        "UCX_KEEPALIVE_INTERVAL=inf",
        "UCX_TCP_KEEPIDLE=inf",
        "UCX_TCP_MAX_CONN_RETRIES=250",
    )
)
"""For UCX among 128 ranks on two real cores: each connects to each, and those that wait let others go on."""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("script", "nodes", "ranks", "cores"),
    [("one-node", 1, 128, 1), ("many-nodes-hybrid", 2, 16, 16)],
)
def test_ranks_on_all_cores_of_lumis_cpu_nodes_add_up_by_mpi(
    script: str, nodes: int, ranks: int, cores: int, new_cluster: NewCluster, lab: Lab
) -> None:
    # The lab's own root file system stands for an image with MPICH; it has no program of the name python.
    with new_cluster("--like", "lumi-c", "--bind", f"{lab.root}:/project/images/train.sif:ro", str(nodes)) as cluster:
        (cluster.shared / "bin").mkdir()
        (cluster.shared / "bin/python").symlink_to("/usr/bin/python3")
        program = HERE / "mpich_on_cores.py"
        settings = f"SINGULARITYENV_PREPEND_PATH=/shared/bin {EACH_WITH_EACH} "
        rows = run_golden(cluster, "lumi-c", script, program, settings)
    assert [row["rank"] for row in rows] == list(range(ranks))
    assert {(row["size"], row["sum"], len(row["cores"])) for row in rows} == {(ranks, ranks * (ranks - 1) // 2, cores)}
    for host in {row["host"] for row in rows}:
        assert sorted(core for row in rows if row["host"] == host for core in row["cores"]) == list(range(128))


def test_a_cluster_shaped_like_a_site_refuses_what_the_site_refuses(new_cluster: NewCluster) -> None:
    with new_cluster("--like", "dawn", "2") as cluster:
        told = cluster.sh("scontrol show node pvc-s1 --oneliner; scontrol show partition --oneliner").stdout
        assert "Gres=gpu:4" in told
        assert "PartitionName=pvc9" in told
        assert cluster.nodes == ("pvc-s1", "pvc-s2")
        for command in ("sbatch --time=1 --wrap hostname", "salloc --time=1 hostname", "srun --time=1 hostname"):
            refused = cluster.sh(command, check=False)
            assert (refused.code, "demands --account" in refused.stderr) == (1, True)
        assert "demands --time" in cluster.sh("sbatch --account=a --wrap hostname", check=False).stderr
        assert cluster.sh("sbatch --account=a --time=1 --wrap hostname").stdout.startswith("Submitted")
        brought = cluster.sh(". /etc/profile; module load intel-oneapi-ccl; mpiexec --version", node="pvc-s1").stdout
        assert "HYDRA" in brought
