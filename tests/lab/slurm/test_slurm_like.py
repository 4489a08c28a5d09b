"""The recorded scripts of sites, submitted unchanged to clusters of their shape (`lab/cluster up --like SITE`)."""

from __future__ import annotations

import json
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from argosy.binding import parse_ranges
from argosy.sites import read_site

if TYPE_CHECKING:
    from tests.lab.conftest import Cluster

pytestmark = pytest.mark.lab
HERE = Path(__file__).parent
GOLDEN = HERE.parents[1] / "golden"


class NewCluster(Protocol):
    """Options of `lab/cluster up` -> a cluster."""

    def __call__(self, *options: str) -> AbstractContextManager[Cluster]: ...


def run_golden(cluster: Cluster, site: str, name: str) -> list[dict[str, Any]]:
    """Submit a script as it is, and read what its ranks said."""
    for file in (GOLDEN / site / f"{name}.sh", HERE / "train.py"):
        shutil.copyfile(file, cluster.shared / file.name)
    job = cluster.sh(f"sbatch --parsable {name}.sh").stdout.strip()
    state = cluster.wait_for(job, timeout=400)
    output = (cluster.shared / f"train-{job}.out").read_text()
    assert state == "COMPLETED", output
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


@pytest.mark.parametrize(
    ("site", "script", "gpus"),
    [
        ("lumi-g", "one-node-srun", 8),
        ("mn5-acc", "one-node", 4),
        ("nvidia-apptainer", "many-nodes", 2),
        pytest.param("lumi-g", "many-nodes-srun", 8, marks=pytest.mark.soak),
        pytest.param("lumi-g", "many-nodes", 8, marks=pytest.mark.soak),
        pytest.param("mn5-acc", "many-nodes", 4, marks=pytest.mark.soak),
        pytest.param("aac6", "one-node", 4, marks=pytest.mark.soak),
    ],
)
def test_a_sites_script_runs_unchanged_on_a_cluster_of_its_shape(
    site: str, script: str, gpus: int, new_cluster: NewCluster, torch_image: Path, tmp_path: Path
) -> None:
    bind = project(torch_image, tmp_path / "project")
    nodes = 2 if script.startswith("many") else 1
    with new_cluster("--like", site, "--bind", bind, str(nodes)) as cluster:
        rows = run_golden(cluster, site, script)
    world = nodes * gpus
    assert [row["rank"] for row in rows] == list(range(world))
    assert {(row["world"], row["sum"]) for row in rows} == {(world, world * (world - 1) / 2)}
    assert {row["gpus"] for row in rows} == {",".join(map(str, range(gpus)))}
    assert len({row["host"] for row in rows}) == nodes
    for row in rows:
        expected = read_site(site).node.gpu_cpus
        if expected:
            assert set(row["cores"]) == parse_ranges(expected[row["local"]])


def test_a_cluster_like_a_site_has_its_shape_and_refuses_what_the_site_refuses(new_cluster: NewCluster) -> None:
    with new_cluster("--like", "dawn", "2") as cluster:
        told = cluster.sh("scontrol show node pvc-s1 --oneliner; scontrol show partition --oneliner").stdout
        assert "Gres=gpu:4" in told
        assert "PartitionName=pvc9" in told
        assert cluster.nodes == ("pvc-s1", "pvc-s2")
        refused = cluster.sh("sbatch --time=1 --wrap hostname", check=False)
        assert (refused.code, "demands --account" in refused.stderr) == (1, True)
        assert cluster.sh("sbatch --account=a --time=1 --wrap hostname").stdout.startswith("Submitted")
        brought = cluster.sh(". /etc/profile; module load intel-oneapi-ccl; mpiexec --version", node="pvc-s1").stdout
        assert "HYDRA" in brought
