"""pyxis for real: srun starts the containers of images that Argosy built, on nodes with a built enroot."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.enroot import NO_ENROOT, built_enroot
from tests.lab.slurm.conftest import ARGOSY, Desk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.lab.conftest import Cluster

pytestmark = [pytest.mark.lab, pytest.mark.skipif(not built_enroot(), reason=NO_ENROOT)]

BUSYBOX = Path("/bin/busybox")
APPLETS = "cat echo env grep ls printenv pwd rm sed sh sleep sort test touch tr umask"
RECIPE = "name: tiny\ndependencies: []\nvariables:\n  COLOUR: deep `blue`\n"
TELL = 'echo "$SLURM_PROCID node$((SLURM_NODEID + 1)) $COLOUR ${FROM_PROFILE-none}"'
FOUR = ("--nodes", "2", "--ranks", "4", "--launcher", "srun")
RUNTIMES = ("pyxis", "enroot")


def build_image(folder: Path) -> Path:
    """Build a squashfs over a base with device nodes, as mmdebstrap makes them."""
    tree = folder / "base"
    for name in ("bin", "etc", "tmp", "var/tmp", "proc", "sys", "dev", "home", "usr"):
        (tree / name).mkdir(parents=True)
    (tree / "bin/busybox").write_bytes(BUSYBOX.read_bytes())
    (tree / "bin/busybox").chmod(0o755)
    for name in APPLETS.split():
        (tree / "bin" / name).symlink_to("busybox")
    (tree / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tree / "etc/group").write_text("root:x:0:\n")
    (folder / "tiny.yml").write_text(RECIPE)
    packed, image = folder / "base.sqfs", folder / "tiny.sqsh"
    nodes = ("-p", "dev/null c 666 0 0 1 3", "-p", "dev/console c 600 0 0 5 1")
    for words in (
        ("mksquashfs", str(tree), str(packed), "-quiet", "-no-progress", "-all-root", *nodes),
        (*ARGOSY, "build", str(folder / "tiny.yml"), "--base", str(packed), "--format", "sqsh", "-o", str(image)),
    ):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    image.chmod(0o644)
    return image


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, new_cluster_at: Callable[..., contextlib.AbstractContextManager[Cluster]]
) -> Iterator[Cluster]:
    with new_cluster_at(tmp_path_factory.mktemp("pyxis"), "--enroot", built_enroot(), "2") as running:
        yield running


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not BUSYBOX.exists():
        pytest.skip("needs /bin/busybox (Debian: busybox-static)")
    return build_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def desk(
    cluster: Cluster, image: Path, new_desk_at: Callable[[Cluster, Path, str], Desk], request: pytest.FixtureRequest
) -> Iterator[Desk]:
    name = re.sub(r"\W+", "-", request.node.name)[:60] + f"-{os.urandom(2).hex()}"
    yield new_desk_at(cluster, image, name)
    cluster.sh("scancel --user=alice; true")


def options(runtime: str) -> tuple[str, ...]:
    return ("--site", "nvidia-pyxis", "--runtime", runtime, "--gpu", "none")


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_ranks_of_an_image_over_a_base_with_device_nodes_start_on_two_nodes_without_infiniband(
    desk: Desk, runtime: str
) -> None:
    """The home's profile would set a variable, write a line, and end the start."""
    desk.cluster.on("ctl", ["sh", "-c", "echo 'export FROM_PROFILE=1; echo NOISE; exit 3' > ~/.bash_profile"])
    try:
        said = desk.follow(*options(runtime), *FOUR, command=("sh", "-c", TELL)).stdout
    finally:
        desk.cluster.on("ctl", ["sh", "-c", "rm ~/.bash_profile"])
    assert sorted(line for line in said.splitlines() if "verdict" not in line) == [
        f"{rank} node{rank // 2 + 1} deep `blue` none" for rank in range(4)
    ]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_values_arrive_verbatim_and_the_umask_is_the_callers(desk: Desk, runtime: str) -> None:
    value = "one\nPATH=/evil\n\"two\" 'three' $HOME"
    show = ("sh", "-c", 'printf "%s\\n" "$MINE"; umask; touch ~/made; ls ~/made /tmp > /dev/null && rm ~/made')
    script = desk.script(*options(runtime), "--ranks", "1", "--env", f"MINE={value}", command=show)
    told = desk.sh(f"umask 027; sbatch --wait --quiet --output=out {script} && cat out").stdout
    assert told == f"{value}\n0027\n"


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_a_rank_sees_its_own_gpus_in_the_container(desk: Desk, runtime: str) -> None:
    program = ("sh", "-c", 'echo "gpu ${CUDA_VISIBLE_DEVICES-unset}"')
    words = ("--runtime", runtime, "--ranks", "1", "--gpus", "1", "--launcher", "none")
    assert "gpu 0\n" in desk.with_gpus.follow(*words, command=program).stdout


def test_contained_home_and_shared_memory_are_the_containers_own(desk: Desk) -> None:
    desk.cluster.on("ctl", ["sh", "-c", "echo x > ~/private"])
    show = ("sh", "-c", 'ls -A "$HOME" /dev/shm /tmp; touch ~/made && echo written')
    words = (*options("pyxis"), "--ranks", "1", "--contain")
    said = desk.follow(*words, command=show).stdout
    assert "private" not in said
    assert "written" in said


def test_a_second_command_runs_in_the_container_of_a_running_job(desk: Desk) -> None:
    words = (*options("pyxis"), *FOUR, "--env", "X_MARK=a 'b'")
    job = desk.argosy(*desk.words(*words, command=("sh", "-c", "echo begun; sleep 60"))).stdout.strip()
    desk.until_written(job, "begun", 4)
    inside = ("sh", "-c", 'echo "$SLURMD_NODENAME $X_MARK $COLOUR $1"', "x", "$HOME *")
    done = desk.argosy("attach", job, "--node", "node2", "--", *inside)
    assert done.stdout == "node2 a 'b' deep `blue` $HOME *\n", done.stderr
    assert desk.argosy("attach", job, "--", "sh", "-c", "exit 9", check=False).code == 9


def test_an_interactive_launch_enters_the_container(desk: Desk) -> None:
    words = ["launch", desk.image, *options("pyxis"), "--interactive", "--", "sh", "-c", 'echo "in $COLOUR"']
    assert desk.argosy(*words).stdout == "in deep `blue`\n"


def test_the_first_code_of_a_rank_is_the_jobs(desk: Desk) -> None:
    program = ("sh", "-c", '[ "$SLURM_PROCID" != 2 ] || exit 7; sleep 60')
    job = desk.argosy(*desk.words(*options("pyxis"), *FOUR, command=program)).stdout.strip()
    desk.wait(job)
    assert json.loads(desk.argosy("jobs", "show", job, "--json").stdout)["code"] == 7
